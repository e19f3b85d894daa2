"""The command `tuccl explain`: what a job runs for a call, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, DEFAULT_WORKSPACE, SCOPE, WORKSPACE_DIRECTORY, option

if TYPE_CHECKING:
    from lookup_tables.collective import Collective
    from lookup_tables.table import Shape
    from tuccl.reports.tuning_result import TuningResult


@dataclass(frozen=True)
class ExplainOptions:
    """The options of `tuccl explain`."""

    operation: str = option("", "As nccl-tests names it: all_reduce.", "OP", positional=True)
    size: str = option("", "As 64K, 1M, 1G.", "SIZE", positional=True)
    directory: Path = field(default=DEFAULT_WORKSPACE, metadata=WORKSPACE_DIRECTORY)
    ranks: int | None = option(
        SCOPE,
        "Ranks of the communicator; if not given, all GPUs of the machine.",
        "N",
        default=None,
    )
    nodes: int | None = option(
        SCOPE, "Nodes that they are on; if not given, one.", "N", default=None
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl explain all_reduce 4M", "tuccl explain all_gather 1M --ranks 8 --nodes 1")
def explain(options: ExplainOptions) -> int:
    """Show what a job here runs for a call, and why. Exit code 1: NCCL chooses."""
    from lookup_tables.collective import parse_collective
    from tuccl.models.figures import communicator_shape
    from tuccl.quantities import parse_size
    from tuccl.reports.explanation import explain as explain_call
    from tuccl.reports.keys import Runner
    from tuccl.reports.tuning_result import current_run, read_machine
    from tuccl.views.terminal.display import print_lines
    from tuccl.views.terminal.explanation_display import explanation_lines
    from tuccl.views.terminal.json_output import print_document

    operation, size_bytes = parse_collective(options.operation), parse_size(options.size)
    current = current_run(options.directory)
    whole = communicator_shape(read_machine(current.run))
    shape = _communicator(options.ranks, options.nodes, whole)
    _require_tuned(current, operation, shape)
    call = explain_call(current, operation, size_bytes, shape)
    if options.as_json:
        print_document(call)
    else:
        print_lines(explanation_lines(call, current.report))
    applies = call.runner in {Runner.EXECUTOR, Runner.PLUGIN}
    return ExitCode.OK if applies else ExitCode.FINDING


def _require_tuned(run: TuningResult, operation: Collective, shape: Shape) -> None:
    """Require that a run tuned an operation on communicators of a shape.

    Raises:
        UsageError: It did not.
    """
    from tuccl.reports.choice_text import untuned_text
    from tuccl.search.trials.shapes import shape_text

    keys, untuned = run.report.keys, untuned_text(run.profile_of(shape))
    shapes = dict.fromkeys(key.shape for key in keys if key.operation is operation)
    if not shapes:
        known = ", ".join(sorted({key.operation for key in keys}))
        raise UsageError(
            f"{operation.value} was not tuned in this workspace, only {known}: {untuned}; "
            "run `tuccl init --operations` with it"
        )
    if shape not in shapes:
        raise UsageError(
            f"communicators of {shape_text(shape)} were not tuned in this workspace, only "
            f"{', '.join(map(shape_text, shapes))}: {untuned}; `tuccl init --shapes` tunes others"
        )


def _communicator(ranks: int | None, nodes: int | None, whole: Shape) -> Shape:
    """Return the shape that --ranks and --nodes name; ranks alone are on one node.

    Raises:
        UsageError: There is no such communicator.
    """
    from lookup_tables.table import Shape

    if ranks is None:
        if nodes is not None:
            raise UsageError(f"--nodes {nodes}: name --ranks, too")
        return whole
    nodes = (whole.nodes if ranks == whole.ranks else 1) if nodes is None else nodes
    if not 1 <= nodes <= ranks:
        raise UsageError(f"--ranks {ranks} --nodes {nodes}: at least one node, and a rank on each")
    if (ranks, nodes) == (whole.ranks, whole.nodes):
        return whole
    return Shape(ranks, nodes, 0 if ranks % nodes else ranks // nodes)
