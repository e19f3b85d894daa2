"""The command `tuccl runs`: the runs of a workspace."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.cli.command import command
from tuccl.errors import ExitCode
from tuccl.options.option import AS_JSON, DEFAULT_WORKSPACE, WORKSPACE_DIRECTORY


@dataclass(frozen=True)
class RunsOptions:
    """The options of `tuccl runs`."""

    directory: Path = field(default=DEFAULT_WORKSPACE, metadata=WORKSPACE_DIRECTORY)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl runs", "tuccl runs tuccl-workspace --json")
def runs(options: RunsOptions) -> int:
    """List the runs of a workspace: when, of which machine, how many entries, what gain.

    Exit code 1: a file of the workspace is missing or damaged.
    """
    from tuccl.reports.workspace_runs import runs_of
    from tuccl.views.terminal.json_output import print_either
    from tuccl.views.terminal.shipped_display import print_runs

    shown = runs_of(options.directory)
    print_either(shown, options.as_json, print_runs)
    damaged = shown.problem or any(run.problem for run in shown.runs)
    return ExitCode.FINDING if damaged else ExitCode.OK
