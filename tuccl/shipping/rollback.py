"""`tuccl rollback`: makes a version that a shipped directory keeps its current table again.

Plugin, executor and table are those of the version; the forms are all that the directory has now,
at the place that it has now, so that every way in which jobs start follows. Files are replaced as
by a ship, `tuccl.env` after all that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probes.inputs.regular_file import read_regular_file
from tuccl.errors import UsageError, WorkspaceError
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.shipping.manifest import MANIFEST_NAME, ManifestDocument
from tuccl.shipping.shipment import ShippedSource, forms_and_place, make_current, render
from tuccl.shipping.shipped_directory import (
    MACHINE_NAME,
    Machine,
    check_can_be_shipped_to,
    check_places,
    held,
    look_at,
    remove_partial_files,
    sourced_crc,
)
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.sourcing import ENVIRONMENT_NAME
from tuccl.shipping.versions import (
    Version,
    drop_old_versions,
    find_version,
    require_whole,
    versions_of,
)
from tuccl.workspace.atomic_file import absolute


@dataclass(frozen=True, slots=True)
class RolledBack:
    """`rollback`: the version that is current now."""

    directory: Path
    version: int
    bundle_crc: str
    shipped_at: str
    """ISO 8601, UTC."""
    before: int | None
    """Version that was current before; None: its files were not whole."""
    caveats: tuple[str, ...]
    """Reasons not to rely on the table, and why the executor is not loaded."""


def rollback(directory: Path, named: str | None = None, *, force: bool = False) -> RolledBack:
    """Make a version the current one.

    Args:
        directory: A directory of `tuccl ship`.
        named: Number or checksum of the version; None: the one shipped before the current one.
        force: Accept files of others, which stay, and a version of another machine.

    Raises:
        UsageError: The directory keeps no such version, or `force` is needed.
        WorkspaceError: Another process ships there; the version is damaged, or the directory cannot
            be written.
    """
    target = absolute(directory)
    if not (target / ENVIRONMENT_NAME).is_file():
        raise UsageError(
            f"{target / ENVIRONMENT_NAME} is missing; name a directory that `tuccl ship` wrote"
        )
    with held(target):
        found = look_at(target)
        remove_partial_files(target)
        kept = versions_of(target)
        crc = sourced_crc(target)
        current = next((version for version in kept if version.crc == crc), None)
        if named is None:
            version = _before(target, kept, current)
        else:
            version = find_version(target, kept, named)
        require_whole(version)
        machine = Machine(version.manifest.topology_name, version.manifest.fingerprint)
        check_can_be_shipped_to(found, machine, force=force)
        name = f"version {version.number} in {version.folder}"
        source = source_of(version.folder, version.manifest, name)
        rendered = render(source, target, *forms_and_place(target, (), None))
        check_places([target / name for name in (*rendered.contents, MANIFEST_NAME)])
        make_current(found, rendered.contents, rendered.manifest)
        drop_old_versions(target)
    return RolledBack(
        target,
        version.number,
        version.crc,
        version.origin.shipped_at,
        None if current is None else current.number,
        rendered.caveats,
    )


def _before(target: Path, kept: tuple[Version, ...], current: Version | None) -> Version:
    """Return the version before the current one; the newest where the current one is not kept."""
    earlier = [each for each in kept if current is None or each.number < current.number]
    if not earlier:
        raise UsageError(f"{target} keeps no version before the current one: see `tuccl history`")
    return earlier[-1]


def source_of(folder: Path, manifest: ManifestDocument, name: str) -> ShippedSource:
    """Return the table in a folder of shipped files with its own libraries.

    Args:
        folder: A version, or a directory of `tuccl ship`.
        manifest: Its manifest.
        name: Its name in an error.

    Raises:
        WorkspaceError: The table is not that of the bundle.
    """
    view = view_shipped(folder)
    if view.table is None:
        raise WorkspaceError(f"{name}: {view.problems[0]}")
    library, machine = folder / EXECUTOR_NAME, folder / MACHINE_NAME
    return ShippedSource(
        view.table,
        manifest.times,
        manifest.machine,
        read_regular_file(machine) if machine.is_file() else None,
        read_regular_file(folder / PLUGIN_NAME),
        library if library.is_file() else None,
        manifest.graphs,
        manifest.in_place,
        manifest.computations,
        manifest.host,
        manifest.keys,
        manifest.step,
        lost_profile=manifest.lost_profile,
        assumed=manifest.assumed,
        base=manifest.base,
        facts=view.bundle.facts,
    )
