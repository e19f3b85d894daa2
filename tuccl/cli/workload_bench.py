"""The command `tuccl workload bench`: a user's own job without and with a table, in turn."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, MEASURING, OUTPUT, TABLE_DIRECTORY, named_path, option

if TYPE_CHECKING:
    from tuccl.shipping.bench.job_runs import UserJob


@dataclass(frozen=True)
class WorkloadBenchOptions:
    """The options of `tuccl workload bench`."""

    directory: Path = field(metadata=TABLE_DIRECTORY)
    job: tuple[str, ...] = option(
        "", "The job, after --: torchrun, srun, a script.", "-- CMD", default=(), positional=True
    )
    rounds: int = option(
        MEASURING,
        "Runs without and with the table each, in turn.",
        "N",
        default=5,
        bounds=(2, 1000),
    )
    metric: str | None = option(
        MEASURING,
        "The figure in the job's output: a regular expression with one group, a number. A "
        "run's figure is the median; the time of the whole run if not given.",
        "REGEX",
        default=None,
    )
    skip: int = option(
        MEASURING,
        "Leave out the first N numbers of each run: steps that warm up.",
        "N",
        default=0,
        bounds=(0, 1e9),
    )
    higher_is_better: bool = option(
        MEASURING, "The figure is a throughput, as tokens per second.", default=False
    )
    unit: str | None = option(
        MEASURING,
        "Unit of a figure that is the time of a step: what the table saves is compared with "
        "what it predicts.",
        "us|ms|s",
        default=None,
    )
    limit: str | None = option(
        MEASURING,
        "Time after which a run is ended and the bench fails, as 10m.",
        "TIME",
        default=None,
    )
    logs: Path | None = option(
        OUTPUT,
        "Keep the output of every run in this directory.",
        "DIR",
        default=None,
        parse=named_path,
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl workload bench /shared/tuccl -- torchrun --nproc-per-node 8 train.py",
    "tuccl workload bench DIR --metric 'step time (\\S+) ms' --unit ms -- srun train.sh",
)
def bench(options: WorkloadBenchOptions) -> int:
    """Run a job without and with a table, in turn, and compare its own figure.

    Exit code 1: the job is slower with the table, beyond the noise.
    """
    from tuccl.shipping.bench.job_runs import JobRuns, bench_rounds, job_logs, table_variant
    from tuccl.shipping.bench.own_job import job_bench_result
    from tuccl.shipping.bench.places import found_tables
    from tuccl.shipping.manifest import read_manifest
    from tuccl.views.terminal.display import print_lines, say, say_notes
    from tuccl.views.terminal.job_display import job_bench_lines
    from tuccl.views.terminal.json_output import print_document

    job = job_of(options, "workload bench")
    with (
        found_tables([options.directory], with_executor=True) as (found,),
        job_logs(options.logs, say) as logs,
    ):
        say_notes(found.notes)
        table = found.shipped
        manifest = read_manifest(table.directory)
        runs = JobRuns(job, logs, table.directory, options.rounds, say)
        rounds = bench_rounds(runs, table_variant(table))
        step = manifest.step if manifest else None
        result = job_bench_result(
            job.command, table, job.figure, rounds, step, load_seen=runs.load_seen
        )
    if options.as_json:
        print_document(result)
    else:
        print_lines(job_bench_lines(result))
    return ExitCode.FINDING if result.slower else ExitCode.OK


def job_of(options: WorkloadBenchOptions, name: str) -> UserJob:
    """Return the job of the options, and how it is judged.

    Args:
        options: The options.
        name: Name of the command.

    Raises:
        UsageError: The options contradict each other, or name no job.
    """
    from tuccl.crew.started_rank import ranks_of_launcher
    from tuccl.quantities import parse_seconds
    from tuccl.shipping.bench.job_figure import RunFigure, TimeUnit, parse_pattern
    from tuccl.shipping.bench.job_runs import UserJob

    if not options.job:
        raise UsageError(f"name the job: tuccl {name} DIR -- CMD")
    if ranks_of_launcher(os.environ) > 1:
        raise UsageError(
            "a launcher started this command several times: put it before the launcher, as in "
            f"`tuccl {name} DIR -- srun ...`"
        )
    about_metric = {
        "--skip": bool(options.skip),
        "--higher-is-better": options.higher_is_better,
        "--unit": options.unit is not None,
    }
    given = [flag for flag, is_given in about_metric.items() if is_given]
    if options.metric is None and given:
        raise UsageError(f"{given[0]} is about the figure that --metric finds: name that, too")
    if options.unit is not None and options.higher_is_better:
        raise UsageError("--unit is that of a time, and a higher time is not better")
    units = [unit.value for unit in TimeUnit]
    if options.unit not in {None, *units}:
        raise UsageError(f"--unit {options.unit!a:.40} is unknown; use {', '.join(units)}")
    figure = RunFigure(
        None if options.metric is None else parse_pattern(options.metric),
        options.skip,
        options.higher_is_better,
        None if options.unit is None else TimeUnit(options.unit),
    )
    limit_s = None if options.limit is None else parse_seconds(options.limit, "--limit")
    return UserJob(options.job, figure, limit_s)
