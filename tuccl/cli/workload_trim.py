"""The command `tuccl workload trim`: a table without what slows a user's own job down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuccl.cli.command import command
from tuccl.cli.workload_bench import WorkloadBenchOptions, job_of
from tuccl.errors import ExitCode, TucclError
from tuccl.options.option import MEASURING, OUTPUT, named_path, option


@dataclass(frozen=True)
class WorkloadTrimOptions(WorkloadBenchOptions):
    """The options of `tuccl workload trim`."""

    part_rounds: int | None = option(
        MEASURING,
        "Rounds that distinguish the table's parts, two runs each, rounded up to what their "
        "number takes: 8 for up to 5 parts, 16 for up to 13; 8 if not given.",
        "N",
        default=None,
        bounds=(2, 1000),
    )
    output: Path | None = option(
        OUTPUT,
        "Ship the table without what slows the job down to this directory, which may be the "
        "one that was tried; nothing is written if not given.",
        "DIR",
        default=None,
        parse=named_path,
    )


@command(
    "tuccl workload trim /shared/tuccl --output DIR --metric 'step (\\S+) ms' -- srun job.sh",
    helps={
        "rounds": "Runs of what is left and of stock NCCL each, in turn.",
        "unit": "Unit of a figure that is the time of a step.",
    },
)
def trim(options: WorkloadTrimOptions) -> int:
    """Run a job with parts of a table, and leave out what slows it down.

    Exit code 1: nothing is left, or the job is slower with what is, beyond the noise; nothing is
    shipped.
    """
    from tuccl.shipping.bench.job_runs import job_logs
    from tuccl.shipping.bench.job_trim import Trim
    from tuccl.shipping.bench.places import found_tables
    from tuccl.views.terminal.display import print_lines, say, say_notes
    from tuccl.views.terminal.job_display import job_trim_lines
    from tuccl.views.terminal.json_output import print_document

    job = job_of(options, "workload trim")
    with (
        found_tables([options.directory], with_executor=True) as (found,),
        job_logs(options.logs, say) as logs,
    ):
        say_notes(found.notes)
        table = found.shipped
        trim = Trim(job, table, logs, options.rounds, options.part_rounds, options.output, say)
        result = trim.run()
        try:
            result = trim.ship(result)
        except TucclError:
            # The figures of the runs would be lost.
            for line in job_trim_lines(result):
                say(line)
            raise
    if options.as_json:
        print_document(result)
    else:
        print_lines(job_trim_lines(result))
    say_notes(result.caveats)
    return ExitCode.FINDING if result.slower or result.is_nothing_left else ExitCode.OK
