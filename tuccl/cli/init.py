"""The command `tuccl init`: tune a machine, from the probe to the bundle."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.api.hosts.probe_options import PartialReach
from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, DEFAULT_WORKSPACE, OUTPUT, WORKSPACE, option
from tuccl.options.run_options import RunOptions

if TYPE_CHECKING:
    from tuccl.reports.tuning_result import TuningResult
    from tuccl.tuning.pipeline.record_output import RecordOutput


@dataclass(frozen=True)
class OutputOptions:
    """Where a run of `init`, `tune` or `retune` is kept, and how it is shown."""

    record: Path | None = option(
        OUTPUT, "Write all measurements to this file.", "FILE.parquet", default=None
    )
    force: bool = option(
        OUTPUT, "Let --record replace a file that is not this run's record.", default=False
    )
    plain_log: bool = option(
        OUTPUT, "Print lines on a terminal, too, instead of the live view.", default=False
    )
    workspace: Path = field(default=DEFAULT_WORKSPACE, metadata=WORKSPACE)
    as_json: bool = field(default=False, metadata=AS_JSON)

    def record_output(self, *, dry_run: bool = False) -> RecordOutput | None:
        """Return the file of the record; None: no record.

        Raises:
            UsageError: There is nothing to record or to replace.
        """
        from tuccl.tuning.pipeline.record_output import RecordOutput

        if self.record is None:
            if self.force:
                raise UsageError("--force lets --record replace a file: name one, or leave it out")
            return None
        if dry_run:
            raise UsageError("--record keeps what is measured, and --dry-run measures nothing")
        return RecordOutput(self.record, self.force)

    @property
    def ship_command(self) -> str:
        """The command that ships the table of this workspace."""
        place = self.workspace
        named = "" if place == DEFAULT_WORKSPACE else f" --workspace {shlex.quote(str(place))}"
        return f"tuccl ship DIR{named}"


@command(
    "tuccl init",
    "mpirun -np 16 tuccl init",
    "tuccl init --hosts hostfile",
    "tuccl init --ray",
    "tuccl init --topology topo.xml --nodes 2 --network-gbps 200 --operations all_reduce",
    without=["strategy"],
)
def init(options: RunOptions, output: OutputOptions, reach: PartialReach) -> int:
    """Tune a machine: probe it, make schedules, search, write table and bundle.

    Without --topology or --records this host is probed, or all hosts of the job, of --hosts or of
    --ray, and measured if it has GPUs and an NCCL. Started again, the same command continues;
    with --allow-missing also on the hosts that are left, with what was measured inside them.
    """
    return tune_and_print(options, output, reach)


def tune_and_print(
    options: RunOptions, output: OutputOptions, reach: PartialReach, *, resume: bool = False
) -> int:
    """Tune a machine, or continue, and print the table."""
    from tuccl.api.tuning import begin
    from tuccl.search.trials.events import Listener
    from tuccl.views.terminal.display import say
    from tuccl.views.terminal.live_view import progress_of
    from tuccl.views.terminal.table_display import print_result

    def deliver(result: TuningResult) -> int:
        if result.already_done:
            say(f"nothing to do: {output.workspace} holds this table already")
        else:
            say(f"table and bundle written to {result.run.root}")
        print_result(result, output.as_json)
        say(f"next: {output.ship_command}, then source DIR/tuccl.env in the job")
        return ExitCode.OK

    return begin(
        options,
        output.workspace,
        output.record_output(),
        Listener(say, progress_of(plain=output.plain_log)),
        deliver,
        reach=reach,
        resume=resume,
    )
