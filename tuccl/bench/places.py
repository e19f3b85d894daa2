"""Tables and keys of a bench, from directories of `tuccl ship` or workspaces of finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lookup_tables.table import Operation, Shape
from tuccl.bench.contenders import ShippedTable, read_shipped_table
from tuccl.errors import UsageError
from tuccl.reports.evidence import evidence_of
from tuccl.reports.finished_run import FinishedRun, current_run
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_directory import ENVIRONMENT_NAME
from tuccl.trials.config import Task
from tuccl.workspace.atomic_file import absolute
from tuccl.workspace.runs import Workspace

_MOST_SHAPES = 4
"""Communicator shapes that an error lists."""


@dataclass(frozen=True)
class FoundTable:
    """A table that a bench was given."""

    shipped: ShippedTable
    run: FinishedRun | None
    """Run that the table was shipped from just now; None where it was shipped before."""
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
        TableFileError: A bundle is damaged.
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
        return FoundTable(shipped, None, (caveat,) if caveat else ())
    run = current_run(root)
    folder = stack.enter_context(TemporaryDirectory(prefix="tuccl-bench-"))
    caveats = ship(Workspace(root).current(), Path(folder)).caveats
    shipped = read_shipped_table(Path(folder), str(place), with_executor=with_executor)
    return FoundTable(shipped, run, caveats)


def require_entries(table: ShippedTable, shape: Shape) -> None:
    """Require that a table has entries for a communicator, or none at all.

    Raises:
        UsageError: All its entries are for other communicators.
    """
    shapes = dict.fromkeys(entry.key.shape for entry in table.bundle.entries)
    if shapes and shape not in shapes:
        listed = ", ".join(_describe(tuned) for tuned in list(shapes)[:_MOST_SHAPES])
        raise UsageError(
            f"{table.name} has no entries for {_describe(shape)}, which is what runs here, but "
            f"for {listed}; choose as many with --gpus or --fake-nodes"
        )


def keys_of(
    found: FoundTable,
    shape: Shape,
    operations: Sequence[Operation] | None,
    sizes_bytes: Sequence[int] | None,
) -> tuple[Task, ...]:
    """Return the keys to time, by operation and size.

    Args:
        found: The table whose keys are timed by default.
        shape: Shape of the communicator.
        operations: Operations to time; one without sizes in the table takes those of all others.
        sizes_bytes: Sizes to time, each for every operation.

    Raises:
        UsageError: The table has no keys, and none are named.
    """
    own = _own_keys(found, shape)
    all_sizes = sorted({size for _, size in own})
    chosen: set[tuple[Operation, int]] = set()
    for operation in operations or dict.fromkeys(operation for operation, _ in own):
        tuned = [size for known, size in own if known is operation]
        chosen |= {(operation, size) for size in sizes_bytes or tuned or all_sizes}
    if not chosen:
        raise UsageError(
            f"{found.shipped.name} does not tell what it was tuned for: name --ops and --sizes"
        )
    return tuple(Task(operation, size, shape) for operation, size in sorted(chosen))


def _own_keys(found: FoundTable, shape: Shape) -> list[tuple[Operation, int]]:
    """Return all keys of a run; of a shipped table, those that have an entry."""
    if found.run is not None:
        return [(Operation(key.operation), key.size_bytes) for key in found.run.report.keys]
    table = found.shipped.table
    entries = () if table is None else table.entries
    return [
        (entry.key.operation, entry.tuned_bytes) for entry in entries if entry.key.shape == shape
    ]


def _describe(shape: Shape) -> str:
    return f"{shape.ranks} ranks on {shape.nodes} node(s)"
