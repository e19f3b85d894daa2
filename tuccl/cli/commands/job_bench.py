"""The command `tuccl workload bench`: a user's own job without and with a table, in turn."""

from __future__ import annotations

from tuccl.cli.commands.job_runs import (
    JobRuns,
    bench_rounds,
    job_logs,
    table_place,
    table_variant,
    understood,
)
from tuccl.errors import ExitCode
from tuccl.options.workload_bench_command import WorkloadBenchCommand
from tuccl.shipping.bench.own_job import job_bench_result
from tuccl.shipping.bench.places import found_tables
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.views.terminal.display import print_lines, say_notes
from tuccl.views.terminal.job_display import job_bench_lines
from tuccl.views.terminal.json_output import print_document


def bench_job(command: WorkloadBenchCommand) -> int:
    """Run `tuccl workload bench`; exit code 1 where the job is slower with the table."""
    figure, limit_s = understood(command)
    place = table_place(command)
    with found_tables([place], with_executor=True) as (found,), job_logs(command.logs) as logs:
        say_notes(found.notes)
        table = found.shipped
        manifest, _ = read_manifest(table.directory / MANIFEST_NAME)
        runs = JobRuns(command, figure, limit_s, logs, table.directory, command.rounds)
        rounds = bench_rounds(runs, table_variant(table))
        step = manifest.step if manifest else None
        result = job_bench_result(
            command.job, table, figure, rounds, step, load_seen=runs.load_seen
        )
    if command.as_json:
        print_document(result)
    else:
        print_lines(job_bench_lines(result))
    return ExitCode.FINDING if result.slower else ExitCode.OK
