"""A directory of `tuccl ship`: its content, and checks before a new ship.

The manifest lists the files of the table that was shipped last. A directory without one, as
after a ship that was killed, is known by its bundles, whose names are their
checksums. Bundles of earlier tables and their environment files stay, since jobs may use them; what
is known as TuCCL's own are the files of the manifest, these bundles, the schedules that they name,
and the fixed names.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundles.bundle import Bundle, load_bundle
from probes.inputs.messages import listed
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import TableError, UsageError, WorkspaceError
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME
from tuccl.shipping.forms import FORM_FOLDERS, FORM_PATHS
from tuccl.shipping.manifest import (
    MANIFEST_NAME,
    MANIFEST_VERSION,
    ManifestDocument,
    other_version,
    read_manifest,
)
from tuccl.shipping.sourcing import ENVIRONMENT_NAME
from tuccl.workspace.atomic_file import PARTIAL_PREFIX, cannot_write, remove_partial_file

TABLE_NAME = "table.parquet"
MACHINE_NAME = "machine.json"
SCHEDULES_NAME = "schedules"
VERSIONS_NAME = "versions"
"""Folder of the tables that the directory keeps, each in a folder named by its checksum."""
VERSION_FOLDER = re.compile(r"[0-9a-f]{8}")
RECORD_NAME = "tuccl-version.json"
"""File of a version that says when and from where it was shipped."""
_OWN_NAMES = FORM_PATHS | {
    MANIFEST_NAME,
    ENVIRONMENT_NAME,
    TABLE_NAME,
    MACHINE_NAME,
    PLUGIN_NAME,
    EXECUTOR_NAME,
    CALLING_LIBRARY_NAME,
}
_OF_THE_SYSTEM = (".nfs",)
"""Prefixes of the names that NFS gives to replaced files while a job has them open."""
_BUNDLE = re.compile(r"bundle-([0-9a-f]{8})\.tuccl")
_NAMED = re.compile(rb"bundle-([0-9a-f]{8})\.tuccl")
_BOUND = re.compile(r"tuccl-[0-9a-f]{8}\.env")
"""Name of the environment file that is a table's for good."""
_SOURCED = re.compile(r"^\s*export TUCCL_BUNDLE_CRC=([0-9a-f]{8})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a table is for."""

    topology_name: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ShippedDirectory:
    """A directory before something is shipped to it."""

    path: Path
    machine: Machine | None
    """Machine of the table that jobs find there; None where they find none."""
    schedules: frozenset[str]
    """File names of schedules that were shipped there."""
    foreign: tuple[str, ...]
    """Names that were not shipped there, sorted; folders end with a slash."""
    manifest: ManifestDocument | None
    """The manifest, if there is one that this release can read."""
    newer: int
    """Version of a manifest that this release does not know; 0: there is none."""


def look_at(path: Path) -> ShippedDirectory:
    """Read a directory, which need not exist.

    Raises:
        OSError: It cannot be read.
    """
    if not path.exists():
        return ShippedDirectory(path, None, frozenset(), (), None, 0)
    names = {entry.name: entry.is_dir() for entry in os.scandir(path)}
    manifest, newer = read_manifest(path), other_version(path)
    bundles = _bundles(path, names)
    known = manifest is not None or bool(bundles)
    schedules = {f"{s.content_hash}.xml" for bundle in bundles.values() for s in bundle.schedules}
    files = () if manifest is None else (Path(file.path) for file in manifest.files)
    schedules |= {file.name for file in files if file.parts[:1] == (SCHEDULES_NAME,)}
    own = {f"{SCHEDULES_NAME}/{name}" for name in schedules} | FORM_PATHS
    foreign = tuple(sorted(_foreign(path, own if known else None)))
    machine = _machine(path, manifest, bundles)
    return ShippedDirectory(path, machine, frozenset(schedules), foreign, manifest, newer)


def sourced_crc(path: Path) -> str:
    """Return the checksum of the table that jobs get from `tuccl.env`; empty: there is none."""
    try:
        sourced = _SOURCED.search(read_regular_file(path / ENVIRONMENT_NAME).decode())
    except (OSError, UnicodeDecodeError):
        sourced = None
    return "" if sourced is None else sourced[1]


def form_tables(path: Path) -> dict[str, str]:
    """Return the checksum of the table that a file of a form names, by path in the directory."""
    found = {}
    for name in sorted(FORM_PATHS):
        try:
            named = _NAMED.search(read_regular_file(path / name))
        except OSError:
            continue
        if named is not None:
            found[name] = named[1].decode()
    return found


def _foreign(path: Path, own_below: AbstractSet[str] | None) -> Iterator[str]:
    """Yield names that were not shipped, folders with a slash behind.

    Args:
        path: The directory.
        own_below: Own files in folders, by path; None: it is not known to be a shipped directory.
    """
    for entry in os.scandir(path):
        if _is_passing(entry.name):
            continue
        if entry.name == VERSIONS_NAME and entry.is_dir():  # Written before there is a bundle.
            yield from _strange_versions(path)
        elif own_below is None or not entry.is_dir():
            if entry.is_dir() or own_below is None or not _is_own_name(entry.name):
                yield f"{entry.name}/" if entry.is_dir() else entry.name
        elif entry.name in {SCHEDULES_NAME, *FORM_FOLDERS}:
            for below in os.scandir(entry.path):
                name = f"{entry.name}/{below.name}"
                if below.is_dir() or not (_is_passing(below.name) or name in own_below):
                    yield f"{name}/" if below.is_dir() else name
        else:
            yield f"{entry.name}/"


def _is_passing(name: str) -> bool:
    return name.startswith((PARTIAL_PREFIX, *_OF_THE_SYSTEM))


def is_own_path(path: Path) -> bool:
    """Whether a ship writes a file of this path, in the directory or in a version."""
    name, folders = path.name, path.parts[:-1]
    if _is_passing(name) or str(path) in FORM_PATHS:
        return True
    if folders == (SCHEDULES_NAME,):
        return name.endswith(".xml")
    return not folders and (name == RECORD_NAME or _is_own_name(name))


def _strange_versions(path: Path) -> list[str]:
    """Return names below the versions' folder that no ship writes."""
    found = []
    for entry in os.scandir(path / VERSIONS_NAME):
        if not entry.is_dir(follow_symlinks=False) or not VERSION_FOLDER.fullmatch(entry.name):
            found.append(f"{VERSIONS_NAME}/{entry.name}")
            continue
        for root, _, files in os.walk(entry.path):
            paths = (Path(root, name) for name in files)
            found += [
                str(file.relative_to(path))
                for file in paths
                if not is_own_path(file.relative_to(entry.path))
            ]
    return found


def _is_own_name(name: str) -> bool:
    return name in _OWN_NAMES or bool(_BUNDLE.fullmatch(name) or _BOUND.fullmatch(name))


def check_can_be_shipped_to(found: ShippedDirectory, machine: Machine, *, force: bool) -> None:
    """Require that shipping there loses no file, and gives no job another machine's table.

    Args:
        found: The directory.
        machine: Machine of the table to be shipped.
        force: Ship all the same; foreign files stay.

    Raises:
        UsageError: The directory has foreign files, or another machine's or a newer table.
    """
    if force:
        return
    if found.newer:
        raise UsageError(
            f"{found.path / MANIFEST_NAME} is of version {found.newer}, this release writes "
            f"{MANIFEST_VERSION}; name another directory, or add --force to replace the files"
        )
    if found.foreign:
        named = listed([ascii(name)[1:-1] for name in found.foreign])
        raise UsageError(
            f"{found.path} holds what `tuccl ship` did not write: {named}; name a new or empty "
            "directory or one of an earlier ship, or add --force, which leaves these alone"
        )
    present = found.machine
    if present is not None and present.fingerprint != machine.fingerprint:
        raise UsageError(
            f"{found.path} holds the table of {present.topology_name} (topology "
            f"{present.fingerprint}), this one is of {machine.topology_name} (topology "
            f"{machine.fingerprint}); name another directory, or add --force to replace it"
        )


def remove_old_files(found: ShippedDirectory, kept: Mapping[str, bytes]) -> None:
    """Remove the schedules and the machine of earlier tables that this one does not have.

    Args:
        found: The directory before this ship.
        kept: Files of this ship, by path in the directory.

    Raises:
        WorkspaceError: A file cannot be removed.
    """
    for name in sorted(found.schedules):
        if f"{SCHEDULES_NAME}/{name}" not in kept:
            _remove(found.path / SCHEDULES_NAME / name)
    if MACHINE_NAME not in kept:
        _remove(found.path / MACHINE_NAME)


def remove_partial_files(path: Path) -> None:
    """Remove partial files of killed ships, in the directory and folders of its own alone.

    Raises:
        WorkspaceError: A file cannot be removed.
    """
    versions = [
        folder
        for folder in (path / VERSIONS_NAME).glob("*")
        if folder.is_dir() and not folder.is_symlink()
    ]
    below = [root / name for root in (path, *versions) for name in (SCHEDULES_NAME, *FORM_FOLDERS)]
    for folder in (path, *versions, *below):
        for partial in folder.glob(f"{PARTIAL_PREFIX}*"):
            remove_partial_file(partial)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock an existing directory against other ships, where its file system has locks.

    Raises:
        WorkspaceError: Another ship is under way, or the directory cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkspaceError(
                f"{path} is being shipped to by another process; wait for it"
            ) from None
        except OSError:
            pass  # NFS locks no directories.
        yield
    finally:
        os.close(descriptor)


def check_places(files: Iterable[Path]) -> None:
    """Require that each file can be written; --force removes no folders.

    Raises:
        UsageError: A folder has the name of a file, or a file that of the schedules' folder.
    """
    for path in files:
        if path.is_dir():
            raise UsageError(f"{path} is a folder, where a file is to be; move it away")
        if path.parent.exists() and not path.parent.is_dir():
            raise UsageError(f"{path.parent} is a file, where a folder is to be; move it away")


def _bundles(path: Path, names: Mapping[str, bool]) -> dict[str, Bundle]:
    """Return bundles whose checksums are those of their names, by name."""
    found = {}
    for name, is_folder in names.items():
        match = _BUNDLE.fullmatch(name)
        if match is None or is_folder:
            continue
        try:
            bundle = load_bundle(path / name)
        except (TableError, OSError):
            continue
        if bundle.crc == int(match[1], 16):
            found[name] = bundle
    return found


def _machine(
    path: Path, manifest: ManifestDocument | None, bundles: Mapping[str, Bundle]
) -> Machine | None:
    """Return the machine of the table that tuccl.env names; else that of the manifest.

    A bundle that no tuccl.env names, of a first ship that was killed, is ignored.
    """
    crc = sourced_crc(path)
    bundle = bundles.get(f"bundle-{crc}.tuccl") if crc else None
    if bundle is not None:
        return Machine(bundle.topology_name, bundle.fingerprint)
    return None if manifest is None else Machine(manifest.topology_name, manifest.fingerprint)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
