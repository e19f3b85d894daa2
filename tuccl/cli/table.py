"""The command `tuccl table`, which imports no code that measures, synthesizes or searches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, DEFAULT_WORKSPACE, SCOPE, WORKSPACE_DIRECTORY, option

if TYPE_CHECKING:
    from tuccl.reports.tuning_result import TuningResult


@dataclass(frozen=True)
class TableOptions:
    """The options of `tuccl table`."""

    directory: Path = field(default=DEFAULT_WORKSPACE, metadata=WORKSPACE_DIRECTORY)
    shape: str | None = option(
        SCOPE, "Only communicators of this shape, as node.", "SHAPE", default=None
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl table", "tuccl table --shape node", "tuccl table --json")
def table(options: TableOptions) -> int:
    """Show what a job gets here against stock NCCL, key by key."""
    from tuccl.reports.tuning_result import current_run
    from tuccl.views.terminal.table_display import print_result

    current = current_run(options.directory)
    shown = current if options.shape is None else _only(current, options.shape)
    print_result(shown, options.as_json)
    return ExitCode.OK


def _only(current: TuningResult, name: str) -> TuningResult:
    """Return the part of a run that is about the communicators of one shape.

    Raises:
        UsageError: These were not tuned.
    """
    from tuccl.models.figures import communicator_shape
    from tuccl.reports.tuning_result import read_machine
    from tuccl.search.trials.shapes import ShapeName

    whole = communicator_shape(read_machine(current.run))
    shapes = current.report.shapes or {ShapeName.WHOLE.value: whole}
    if name not in shapes:
        raise UsageError(f"--shape {name!a:.40} was not tuned here, only {', '.join(shapes)}")
    shape = shapes[name]
    keys = [key for key in current.report.keys if key.shape == shape]
    entries = tuple(entry for entry in current.table.entries if entry.key.shape == shape)
    placements = tuple(own for own in current.table.placements if own.shape == shape)
    part = replace(current.table, entries=entries, placements=placements)
    # A step is of all shapes.
    report = current.report.model_copy(update={"keys": keys, "workload": None})
    return replace(current, table=part, report=report)
