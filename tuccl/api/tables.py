"""Tables: read them, and look up what a job runs for a call, and why."""

from __future__ import annotations

from pathlib import Path

from lookup_tables.bundle_layout import MAGIC
from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.collective import parse_collective
from lookup_tables.table import Shape
from tuccl.errors import UsageError
from tuccl.quantities import parse_size
from tuccl.reports.explanation import ExplainedCall, communicator_words, explain
from tuccl.reports.tuning_result import TunedTable, current_run, read_table_file
from tuccl.runtime import EXECUTOR_NAME, has_executor
from tuccl.shipping.shipped_directory import TABLE_NAME


def read_table(path: str | Path) -> TunedTable:
    """Read a table.

    Args:
        path: A workspace, of which the current run is read, a shipped directory, or a file: a
            table (Parquet) or a bundle.

    Returns:
        Of a workspace a `TuningResult`, which has all keys and what a job here gains.

    Raises:
        TableError: The file is damaged, of another version, or no table.
        WorkspaceError: The workspace has no finished run, or its files are damaged.
        UsageError: The path does not exist, or cannot be read.
    """
    path, beside = Path(path), has_executor()
    if path.is_dir():
        if not (path / TABLE_NAME).is_file():
            return current_run(path)
        beside = (path / EXECUTOR_NAME).is_file()
        path /= TABLE_NAME
    try:
        with path.open("rb") as file:
            is_bundle = path.is_file() and file.read(len(MAGIC)) == MAGIC
        table = load_bundle(path) if is_bundle else read_table_file(path)
        return TunedTable(table, has_executor=beside)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; name a workspace, a shipped directory, a table "
            "or a bundle"
        ) from error


def lookup(
    table: TunedTable | str | Path,
    operation: str,
    size: int | str,
    *,
    ranks: int | None = None,
    nodes: int | None = None,
) -> ExplainedCall:
    """Look up what a job on this installation runs for a call, and why.

    Args:
        table: A table, the result of a tuning, or the path that a table is read from.
        operation: Its name in nccl-tests.
        size: Bytes, or `64K`, `1M`; as nccl-tests counts them.
        ranks: Ranks of the communicator; None: those that the table is for.
        nodes: Nodes of the communicator; None: as many as in the table, or one.

    Raises:
        UsageError: The operation or size is unknown, or the communicator impossible.
        TableError, WorkspaceError: As for `read_table`.
    """
    found = table if isinstance(table, TunedTable) else read_table(table)
    shape = _shape(found, ranks, nodes)
    return explain(found, parse_collective(operation), parse_size(str(size)), shape)


def _shape(found: TunedTable, ranks: int | None, nodes: int | None) -> Shape:
    """Return the table's communicator that fits, or the one that ranks and nodes name."""
    shapes = found.shapes
    fitting = [
        shape for shape in shapes if ranks in {None, shape.ranks} and nodes in {None, shape.nodes}
    ]
    if len(fitting) == 1:
        return fitting[0]
    if ranks is None:
        known = " and ".join(map(communicator_words, shapes)) or "no communicator"
        name = found.table.topology_name
        raise UsageError(f"the table of {name} is for {known}: name ranks and nodes")
    nodes = 1 if nodes is None else nodes
    if not 1 <= nodes <= ranks:
        raise UsageError(f"{ranks} ranks on {nodes} nodes: give at least one node, and a rank each")
    return Shape(ranks, nodes, 0 if ranks % nodes else ranks // nodes)
