"""`ShippedView`: a shipped directory as it is found.

Nothing in the directory is run: `tuccl.env` is searched for the sum of its table, bundle and
Parquet file are read and checked, and every file is compared with the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import Bundle, load_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.table import Table
from probes.inputs.messages import listed, printable
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import HostError, TableError, UnusableBundleError, UsageError
from tuccl.reports.tuning_result import read_table_file
from tuccl.shipping.locating import bundle_name
from tuccl.shipping.manifest import (
    MANIFEST_NAME,
    MANIFEST_VERSION,
    ManifestDocument,
    ShippedFile,
    other_version,
    read_manifest,
)
from tuccl.shipping.shipped_directory import TABLE_NAME, form_tables, sourced_crc
from tuccl.shipping.sourcing import ENVIRONMENT_NAME

_UNKNOWN = "times of schedules, and what was measured, are not known"


@dataclass(frozen=True)
class ShippedView:
    """The table that jobs get from a directory."""

    directory: Path
    bundle: Bundle
    table: Table | None
    """Table of the Parquet file; None where it is missing, damaged or of another bundle."""
    manifest: ManifestDocument | None
    problems: tuple[str, ...]
    """Contradictions, one sentence each; empty for a directory as it was shipped."""


def view_shipped(directory: Path) -> ShippedView:
    """Read the table that jobs get from a directory.

    Raises:
        UnusableBundleError: Its bundle cannot be used.
        UsageError: It is no directory of `tuccl ship`.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; name one that `tuccl ship` wrote")
    crc = sourced_crc(directory)
    if not crc:
        raise UsageError(
            f"{directory / ENVIRONMENT_NAME} is missing or names no table; name a directory that "
            "`tuccl ship` wrote, or ship there again"
        )
    bundle = _bundle(directory / bundle_name(int(crc, 16)), crc)
    table, table_problem = _table(directory / TABLE_NAME, bundle)
    manifest = read_manifest(directory)
    problems = [table_problem, *_manifest_problems(directory, manifest, crc)]
    problems += _form_problems(directory, crc)
    return ShippedView(directory, bundle, table, manifest, tuple(filter(None, problems)))


def _bundle(path: Path, crc: str) -> Bundle:
    try:
        bundle = load_bundle(path)
    except OSError as error:
        raise UnusableBundleError(
            f"cannot read {path}, which {ENVIRONMENT_NAME} names: {error.strerror}; ship there "
            "again"
        ) from error
    except TableError as error:
        raise UnusableBundleError(str(error)) from error
    if f"{bundle.crc:08x}" != crc:
        raise UnusableBundleError(f"{path} has the sum {bundle.crc:08x}; ship there again")
    return bundle


def _table(path: Path, bundle: Bundle) -> tuple[Table | None, str]:
    """Return the bundle's table with all its figures; else None and the reason."""
    try:
        table = read_table_file(path)
    except OSError as error:
        return None, f"{TABLE_NAME} cannot be read ({error.strerror}): {_UNKNOWN}"
    except HostError as error:
        return None, f"{error}: {_UNKNOWN}"
    except TableError:
        return None, f"{TABLE_NAME} is damaged: {_UNKNOWN}"
    if bundle_crc(bundle_bytes(table, bundle.facts)) != bundle.crc:
        return None, f"{TABLE_NAME} is of another table than the bundle"
    return table, ""


def _manifest_problems(
    directory: Path, manifest: ManifestDocument | None, crc: str
) -> Iterator[str]:
    if other := other_version(directory):
        yield (
            f"{MANIFEST_NAME} is of version {other}, this release reads {MANIFEST_VERSION}: files "
            "were not compared"
        )
    elif manifest is None:
        yield f"{MANIFEST_NAME} is missing or damaged: files were not compared"
    elif manifest.bundle_crc != crc:
        yield (
            f"{MANIFEST_NAME} is of the table {printable(manifest.bundle_crc, 16)}, not of {crc}: "
            "a ship did not end; ship there again"
        )
    else:
        yield from changed_files(directory, tuple(manifest.files))


def _form_problems(directory: Path, crc: str) -> Iterator[str]:
    """Yield a sentence for each table but that of `tuccl.env` that forms give to jobs."""
    others: dict[str, list[str]] = {}
    for path, named in form_tables(directory).items():
        if named != crc:
            others.setdefault(named, []).append(path)
    for named, paths in others.items():
        yield (
            f"{listed(paths)} gives jobs the table {named}, {ENVIRONMENT_NAME} gives {crc}; "
            "ship there again"
        )


def changed_files(directory: Path, files: tuple[ShippedFile, ...]) -> Iterator[str]:
    """Yield how files differ from a manifest, a sentence for each kind of difference."""
    faults: dict[str, list[str]] = {}
    for file in files:
        if fault := _fault(directory, file):
            faults.setdefault(fault, []).append(printable(file.path, 80))
    for fault, names in faults.items():
        yield f"{fault}: {listed(names)}; ship there again"


def _fault(directory: Path, file: ShippedFile) -> str:
    """Return how a file differs from the manifest; empty: it does not."""
    path = PurePosixPath(file.path)
    if path.is_absolute() or ".." in path.parts or "\0" in file.path:
        return "the manifest names files outside of the directory"
    try:
        data = read_regular_file(directory / path)
    except FileNotFoundError:
        return "files of the manifest are missing"
    except OSError as error:
        return f"files of the manifest cannot be read ({error.strerror})"
    same = len(data) == file.bytes and hashlib.sha256(data).hexdigest() == file.sha256
    return "" if same else "files differ from the manifest"
