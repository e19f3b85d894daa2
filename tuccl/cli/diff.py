"""The command `tuccl diff`: what changed between two tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuccl.cli.command import command
from tuccl.errors import ExitCode
from tuccl.options.option import AS_JSON, option


@dataclass(frozen=True)
class DiffOptions:
    """The options of `tuccl diff`."""

    directory: str = option(
        "",
        "A workspace, a run of one, a directory of `tuccl ship`, or a version that it keeps: "
        "DIR@3.",
        "DIR",
        positional=True,
    )
    other: str = option("", "What it is compared with; likewise.", "OTHER", positional=True)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl diff /shared/tuccl tuccl-workspace",
    "tuccl diff /shared/tuccl@2 /shared/tuccl@3",
)
def diff(options: DiffOptions) -> int:
    """Compare two tables: machine, NCCL, process profile, and what changed for each key.

    Exit code 1: they differ beyond the noise.
    """
    from tuccl.shipping.table_places import diff_tables
    from tuccl.views.terminal.json_output import print_either
    from tuccl.views.terminal.shipped_display import print_difference

    shown = diff_tables(options.directory, options.other)
    print_either(shown, options.as_json, print_difference)
    return ExitCode.OK if shown.same else ExitCode.FINDING
