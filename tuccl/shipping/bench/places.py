"""Tables and keys of a bench, from directories of `tuccl ship` or workspaces of finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import UsageError
from tuccl.reports.evidence import evidence_of
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import memberships, shape_text
from tuccl.shipping.bench.contenders import ShippedTable, read_shipped_table
from tuccl.shipping.bench.placed_calls import placements_here
from tuccl.shipping.manifest import PROFILE_LEFT_OUT, ManifestDocument, read_manifest
from tuccl.shipping.shipment import ship
from tuccl.shipping.sourcing import ENVIRONMENT_NAME
from tuccl.workspace.atomic_file import absolute
from tuccl.workspace.runs import Workspace

_MOST_SHAPES = 4
"""Communicator shapes that an error lists."""


@dataclass(frozen=True)
class FoundTable:
    """A table that a bench was given."""

    shipped: ShippedTable
    listed: ManifestDocument | None
    """Its manifest; None: it has none."""
    notes: tuple[str, ...]
    """Reasons not to rely on its stated gains, and why it runs no schedules."""


@contextmanager
def found_tables(
    places: Sequence[Path], *, with_executor: bool
) -> Iterator[tuple[FoundTable, ...]]:
    """Find the tables in these places, for the duration of a block.

    The table of a workspace is shipped to a directory that is removed after the block.

    Raises:
        UsageError: A place holds no table, or is named twice.
        WorkspaceError: A workspace has no finished run.
        TableError: A bundle is damaged.
    """
    if len({absolute(place) for place in places}) < len(places):
        raise UsageError(f"{places[0]} is named twice; name two different tables")
    with ExitStack() as stack:
        yield tuple(_find(place, stack, with_executor=with_executor) for place in places)


def _find(place: Path, stack: ExitStack, *, with_executor: bool) -> FoundTable:
    root = absolute(place)
    if (root / ENVIRONMENT_NAME).exists() or not (root / "runs").is_dir():
        shipped = read_shipped_table(root, str(place), with_executor=with_executor)
        caveat = "" if shipped.table is None else evidence_of(shipped.table, "").caveat
        manifest = read_manifest(root)
        profile = PROFILE_LEFT_OUT if manifest is not None and manifest.lost_profile else ""
        return FoundTable(shipped, manifest, tuple(filter(None, (caveat, profile))))
    folder = stack.enter_context(TemporaryDirectory(prefix="tuccl-bench-"))
    caveats = ship(Workspace(root).current(), Path(folder)).caveats
    shipped = read_shipped_table(Path(folder), str(place), with_executor=with_executor)
    return FoundTable(shipped, read_manifest(Path(folder)), caveats)


def require_entries(table: ShippedTable, whole: Shape) -> None:
    """Require that a table has entries for communicators that jobs have here, or none at all.

    Raises:
        UsageError: All its entries are for other communicators.
    """
    entries = table.bundle.all_entries
    shapes = dict.fromkeys(entry.key.shape for entry in entries)
    if shapes and all(memberships(shape, whole) is None for shape in shapes):
        listed = ", ".join(shape_text(tuned) for tuned in list(shapes)[:_MOST_SHAPES])
        raise UsageError(
            f"{table.name} has no entries for {shape_text(whole)}, which is what runs here, but "
            f"for {listed}; choose as many with --gpus or --fake-nodes"
        )


def keys_of(
    found: FoundTable,
    whole: Shape,
    operations: Sequence[Collective] | None,
    sizes_bytes: Sequence[int] | None,
) -> tuple[Task, ...]:
    """Return the keys to time, by shape, operation and size.

    The shapes are those of the table that divide the ranks here; all ranks', if it has none. Where
    NCCL's estimates tell a shape's communicators apart, each kind is timed by itself.

    Args:
        found: The table whose keys are timed by default.
        whole: Shape of the communicator of all ranks.
        operations: Operations to time; one without sizes in the table takes those of all others.
        sizes_bytes: Sizes to time, each for every operation.

    Raises:
        UsageError: The table has no keys, and none are named.
    """
    own = _own_keys(found, whole)
    all_sizes = sorted({task.size_bytes for task in own})
    chosen: dict[Task, None] = {}
    for shape in dict.fromkeys(task.shape for task in own) or (whole,):
        for operation in sorted(operations or {t.operation for t in own if t.shape == shape}):
            tuned = [t.size_bytes for t in own if (t.operation, t.shape) == (operation, shape)]
            sizes = sorted(set(sizes_bytes or tuned or all_sizes))
            for placement in placements_here(found.shipped.table, operation, shape, whole):
                tasks = (Task(operation, size, shape, placement) for size in sizes)
                chosen |= dict.fromkeys(tasks)
    if not chosen:
        raise UsageError(
            f"{found.shipped.name} does not say what it was tuned for: name --operations and "
            "--sizes"
        )
    return tuple(chosen)


def _own_keys(found: FoundTable, whole: Shape) -> list[Task]:
    """Return all keys that were tuned; those that have an entry, if no others are known."""
    if found.listed is not None and found.listed.keys:
        keys = [
            Task(own.operation, size_bytes, own.shape)
            for own in found.listed.keys
            for size_bytes in own.sizes_bytes
        ]
    else:
        table = found.shipped.table
        entries = () if table is None else table.all_entries
        keys = [Task(e.key.operation, e.tuned_bytes, e.key.shape) for e in entries]
    fitting = [task for task in keys if memberships(task.shape, whole) is not None]
    return sorted(fitting, key=lambda task: task.shape != whole)
