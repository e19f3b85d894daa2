"""Versions: the tables that a shipped directory had, each whole below `versions/`.

    versions/CRC/
        tuccl-manifest.json   the manifest, and beside it the files that it lists
        tuccl-version.json    number, time and run of the version, written last

A folder without its record is of a ship that was killed, and not a version. A table that is shipped
again gets a new number, and its former version goes. Jobs load nothing from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from probes.inputs.regular_file import read_regular_file
from tuccl.errors import UsageError, WorkspaceError
from tuccl.shipping.forms import EXECUTABLE
from tuccl.shipping.manifest import MANIFEST_NAME, ManifestDocument, read_manifest
from tuccl.shipping.shipped_directory import (
    RECORD_NAME,
    VERSION_FOLDER,
    VERSIONS_NAME,
    is_own_path,
    sourced_crc,
)
from tuccl.shipping.shipped_view import changed_files
from tuccl.workspace.atomic_file import cannot_write, write_atomically

MOST_VERSIONS: Final = 8
"""Versions that a directory keeps, the current one among them."""
_RECORD_VERSION: Final = 1
_NUMBER = re.compile(r"[0-9]{1,7}", re.ASCII)


class _RecordModel(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)
    schema_version: Literal[1] = _RECORD_VERSION
    number: int
    shipped_at: str
    run: str | None
    gain: float | None


@dataclass(frozen=True, slots=True)
class Origin:
    """The ship that a version comes from."""

    shipped_at: str
    """ISO 8601, UTC."""
    run: str | None
    """Directory of the run; None: unknown."""
    gain: float | None
    """Speedup of a job over stock NCCL, geometric mean over the run's keys; None: unknown."""


@dataclass(frozen=True, slots=True)
class Version:
    """A table that a shipped directory keeps."""

    number: int
    """Versions count from 1 in the order of their ships; no number is used again."""
    folder: Path
    origin: Origin
    manifest: ManifestDocument

    @property
    def crc(self) -> str:
        """Checksum of the bundle, 8 hexadecimal digits."""
        return self.manifest.bundle_crc

    def problems(self) -> tuple[str, ...]:
        """Return how the files differ from the manifest, a sentence each; empty: they do not."""
        return tuple(changed_files(self.folder, tuple(self.manifest.files)))


def utc_now() -> str:
    """Return the time as ISO 8601, UTC."""
    return datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def versions_of(directory: Path) -> tuple[Version, ...]:
    """Return the versions that a directory keeps, the oldest first."""
    found = []
    for folder in _folders(directory):
        try:
            record = _RecordModel.model_validate_json(read_regular_file(folder / RECORD_NAME))
        except (OSError, ValidationError):
            continue
        manifest = read_manifest(folder)
        if manifest is not None and manifest.bundle_crc == folder.name:
            origin = Origin(record.shipped_at, record.run, record.gain)
            found.append(Version(record.number, folder, origin, manifest))
    return tuple(sorted(found, key=lambda version: version.number))


def find_version(directory: Path, versions: tuple[Version, ...], named: str) -> Version:
    """Return the version of a number or checksum.

    Raises:
        UsageError: The directory keeps no such version.
    """
    for version in versions:
        if named == version.crc or (_NUMBER.fullmatch(named) and int(named) == version.number):
            return version
    kept = ", ".join(str(version.number) for version in versions) or "none"
    raise UsageError(
        f"{directory} keeps no version {named!a:.40}, only {kept}: see `tuccl history`"
    )


def keep_version(
    directory: Path, crc: str, contents: Mapping[str, bytes], manifest: str, origin: Origin
) -> None:
    """Keep a table as the newest version; the newest one with the same files stays as it is.

    Args:
        directory: Shipped directory, locked.
        crc: Checksum of the bundle.
        contents: Files by path in the directory, without the manifest.
        manifest: The manifest.
        origin: The ship.

    Raises:
        WorkspaceError: A file cannot be written.
    """
    kept = versions_of(directory)
    newest = kept[-1] if kept else None
    number = 1 if newest is None else newest.number + 1
    folder = directory / VERSIONS_NAME / crc
    if newest is not None and newest.crc == crc:
        if _text_of(folder / MANIFEST_NAME) == manifest and not newest.problems():
            return
        number = newest.number
    _unlink(folder / RECORD_NAME)
    for name, content in contents.items():
        mode = 0o755 if name in EXECUTABLE else 0o644
        write_atomically(folder / name, content, mode=mode)
    write_atomically(folder / MANIFEST_NAME, manifest)
    record = _RecordModel(
        number=number, shipped_at=origin.shipped_at, run=origin.run, gain=origin.gain
    )
    write_atomically(folder / RECORD_NAME, record.model_dump_json(indent=1) + "\n")


def drop_old_versions(directory: Path) -> None:
    """Remove the oldest versions beyond the limit but the current one, and incomplete folders.

    Raises:
        WorkspaceError: A file cannot be removed.
    """
    versions = versions_of(directory)
    current = sourced_crc(directory)
    spare = [version for version in versions if version.crc != current]
    dropped = spare[: max(0, len(versions) - MOST_VERSIONS)]
    kept = {version.folder for version in versions} - {version.folder for version in dropped}
    for folder in _folders(directory):
        if folder not in kept:
            _remove_version(folder)


def _folders(directory: Path) -> list[Path]:
    place = directory / VERSIONS_NAME
    # A link leads to files of others, which are not to be removed.
    return sorted(
        path
        for path in place.glob("*")
        if VERSION_FOLDER.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    )


def _remove_version(folder: Path) -> None:
    """Remove the files of a version, its record first; files of others stay."""
    _unlink(folder / RECORD_NAME)
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(root, name)
            if is_own_path(path.relative_to(folder)):
                _unlink(path)
        if not any(Path(root).iterdir()):
            Path(root).rmdir()


def _text_of(path: Path) -> str:
    return read_regular_file(path).decode()


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def require_whole(version: Version) -> None:
    """Require that a version's files are those of its manifest.

    Raises:
        WorkspaceError: A file is missing or damaged.
    """
    if problems := version.problems():
        raise WorkspaceError(f"version {version.number} in {version.folder}: {problems[0]}")
