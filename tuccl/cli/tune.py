"""The command `tuccl tune`: search NCCL's own settings alone, or plan the search."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from tuccl.api.hosts.probe_options import PartialReach
from tuccl.cli.command import command
from tuccl.cli.init import OutputOptions, tune_and_print
from tuccl.errors import ExitCode, UsageError
from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import OUTPUT, option
from tuccl.options.run_options import RunOptions

if TYPE_CHECKING:
    from probes.topology.graph import Topology

_INIT_ALONE = {"fake_nodes", "share_gpus", "own_schedules"} | {
    field.name for field in fields(MachineOptions) if field.name != "topology"
}


@dataclass(frozen=True)
class TuneOptions:
    """The options that `tuccl tune` has beside those of a run."""

    dry_run: bool = option(
        OUTPUT, "Only print how large the search is and what it may cost.", default=False
    )
    resume: bool = option(
        OUTPUT, "Continue a run that was begun; never begin another.", default=False
    )


@command(
    "tuccl tune --backend nccl --record h200.parquet --budget 10m",
    "tuccl tune --records h200.parquet",
    without=_INIT_ALONE,
    helps={"topology": "As for init; if not given, the record's, or this host is probed."},
)
def tune(options: RunOptions, own: TuneOptions, output: OutputOptions, reach: PartialReach) -> int:
    """Search NCCL's own settings alone, without schedules. Run again, it continues."""
    options = replace(options, schedules=False)
    if own.dry_run:
        return _plan(options, output)
    return tune_and_print(options, output, reach, resume=own.resume)


def _plan(options: RunOptions, output: OutputOptions) -> int:
    from tuccl.reports.json_form import SCHEMA_VERSION
    from tuccl.tuning.pipeline.dry_run import make_plan, plan_lines
    from tuccl.tuning.pipeline.preparing import prepare
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_json

    def probed() -> Topology:
        raise UsageError("--dry-run needs --topology or --records: to probe is to measure")

    output.record_output(dry_run=True)
    prepared = prepare(options, probed, display.say_notes)
    plan = make_plan(prepared.settings, prepared.request())
    if output.as_json:
        print_json(asdict(plan), SCHEMA_VERSION)
    else:
        print("\n".join(plan_lines(plan)))
    return ExitCode.OK
