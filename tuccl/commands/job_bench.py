"""The command `tuccl workload bench`: a user's own job without and with a table, in turn."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuccl.bench.contenders import ShippedTable
from tuccl.bench.job_figure import Figure, TimeUnit, parse_pattern
from tuccl.bench.own_job import WITH, JobOutcome, JobRun, job_outcome, run_rounds
from tuccl.bench.places import found_tables
from tuccl.bench.surroundings import DIRECTORY_VARIABLE, without_table
from tuccl.console.display import print_lines, say, say_notes
from tuccl.console.job_bench_display import job_bench_document, job_bench_lines, run_line
from tuccl.console.json_output import print_document
from tuccl.errors import ExitCode, MeasurementError, UsageError
from tuccl.inputs.option import require_bounds
from tuccl.inputs.workload_bench_command import WorkloadBenchCommand
from tuccl.probes.cluster.mpi import mpi_tasks
from tuccl.processes.job_process import run_job_into
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.words.durations import format_about, parse_seconds
from tuccl.workspace.atomic_file import absolute, cannot_write
from tuccl.workspace.runs import Workspace

_LOG_VARIABLE = "NCCL_DEBUG"
_LOADED = re.compile(rb"TUNER/Plugin: Using (?:tuner plugin )?TuCCL|TuCCL: .*\(CRC ")
"""NCCL's line on the plugin (src/plugin/tuner), or the plugin's own on its table."""
_LOG_HEAD_BYTES = 1 << 20
_LAST_LINES = 5


class JobFailedError(MeasurementError):
    """A run of the job failed."""


class TableNotLoadedError(MeasurementError):
    """The job ran NCCL without the table."""


def bench_job(command: WorkloadBenchCommand) -> int:
    """Run `tuccl workload bench`; exit code 1 where the job is slower with the table."""
    figure, limit_s = _understood(command)
    place = command.workspace if command.table is None else command.table
    if command.table is None:
        Workspace(place).current()
    with found_tables([place], with_executor=True) as (found,), _logs(command.logs) as logs:
        say_notes(found.notes)
        manifest, _ = read_manifest(found.shipped.directory / MANIFEST_NAME)
        runs = _Runs(command, found.shipped, figure, limit_s, logs)
        rounds = run_rounds(runs.start, command.rounds)
        outcome = job_outcome(
            rounds, figure, manifest.step if manifest else None, load_seen=runs.load_seen
        )
        _print(command, found.shipped, outcome)
    return ExitCode.FINDING if outcome.is_slower else ExitCode.OK


def _understood(command: WorkloadBenchCommand) -> tuple[Figure, float | None]:
    """Return the figure and the time limit of a run.

    Raises:
        UsageError: The options contradict each other, or name no job.
    """
    require_bounds(command)
    if not command.job:
        raise UsageError("name the job: tuccl workload bench --table DIR -- CMD")
    if mpi_tasks(os.environ) > 1:
        raise UsageError(
            "a launcher started this command several times: put it before the launcher, as in "
            "`tuccl workload bench --table DIR -- srun ...`"
        )
    of_metric = {
        "--skip": bool(command.skip),
        "--higher-is-better": command.higher_is_better,
        "--unit": command.unit is not None,
    }
    given = [name for name, is_given in of_metric.items() if is_given]
    if command.metric is None and given:
        raise UsageError(f"{given[0]} is about the figure that --metric finds: name that, too")
    if command.unit is not None and command.higher_is_better:
        raise UsageError("--unit is that of a time, which is not better where it is higher")
    units = [unit.value for unit in TimeUnit]
    if command.unit not in {None, *units}:
        raise UsageError(f"--unit {command.unit!a:.40} is unknown; use {', '.join(units)}")
    figure = Figure(
        None if command.metric is None else parse_pattern(command.metric),
        command.skip,
        command.higher_is_better,
        None if command.unit is None else TimeUnit(command.unit),
    )
    limit_s = None if command.limit is None else parse_seconds(command.limit, "--limit")
    return figure, limit_s


@dataclass(frozen=True, slots=True)
class _Logs:
    """A directory for the output of runs and the logs of NCCL in their processes."""

    directory: Path

    def output(self, number: int, variant: str) -> Path:
        return self.directory / f"round-{number}-{variant.replace(' ', '-')}.log"

    def nccl(self, variant: str) -> str:
        """Return the first part of the names of NCCL's logs."""
        return f"nccl-{variant.replace(' ', '-')}-"

    def nccl_variables(self, environment: Mapping[str, str], variant: str) -> dict[str, str]:
        """Return variables that have NCCL tell of its start, unless the job asks it for a log."""
        if _LOG_VARIABLE in environment:
            return {}
        name = f"{self.nccl(variant)}%h.%p"
        return {
            _LOG_VARIABLE: "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV",
            "NCCL_DEBUG_FILE": str(self.directory / name),
        }

    def show_load(self, number: int) -> bool | None:
        """Return whether logs show that the table was loaded; None: there are none."""
        logs = [*self.directory.glob(f"{self.nccl(WITH)}*")]
        if any(_LOADED.search(_head(path)) for path in (*logs, self.output(number, WITH))):
            return True
        return False if logs else None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LOG_HEAD_BYTES)


@contextmanager
def _logs(kept: Path | None) -> Iterator[_Logs]:
    """Yield the directory that keeps the logs; else one that is removed after a success.

    It lies where the job runs, which all its hosts see as a rule.

    Raises:
        UsageError: The directory holds files.
        WorkspaceError: It cannot be made.
    """
    directory = Path.cwd() if kept is None else absolute(kept)
    try:
        if kept is None:
            directory = Path(tempfile.mkdtemp(prefix="tuccl-job-", dir=directory))
        else:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise UsageError(f"--logs {kept} is not empty: name a new directory")
    except OSError as error:
        raise cannot_write(directory, error) from error
    try:
        yield _Logs(directory)
    except MeasurementError:
        say(f"{directory} keeps what the job printed")
        raise
    except BaseException:
        if kept is None:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    if kept is None:
        shutil.rmtree(directory, ignore_errors=True)


class _Runs:
    """Starts the job."""

    def __init__(
        self,
        command: WorkloadBenchCommand,
        table: ShippedTable,
        figure: Figure,
        limit_s: float | None,
        logs: _Logs,
    ) -> None:
        self._command = command
        self._table = table
        self._figure = figure
        self._limit_s = limit_s
        self._logs = logs
        self._began = time.monotonic()
        self._done = 0
        self.load_seen = False
        """Whether a log has shown that the job loaded the table."""

    def start(self, number: int, variant: str) -> JobRun:
        """Run the job once.

        Raises:
            JobFailedError: It ended with another exit code than 0.
            TableNotLoadedError: It was to load the table, and NCCL's log shows that it did not.
            FigureMissingError: It printed no figure.
        """
        output = self._logs.output(number, variant)
        began = time.monotonic()
        with output.open("wb") as file:
            code = run_job_into(file, self._command.job, self._environment(variant), self._limit_s)
        seconds = time.monotonic() - began
        text = output.read_text(encoding="utf-8", errors="replace")
        if code != 0:
            last = " | ".join(text.split("\n")[-_LAST_LINES:]).strip(" |")
            raise JobFailedError(f"the job ended with exit code {code} {variant}: {last!a:.600}")
        if variant == WITH and number == 1:
            self._require_load(number)
        run = JobRun(self._figure.of_run(text, seconds), seconds)
        self._tell(number, variant, run)
        return run

    def _environment(self, variant: str) -> dict[str, str]:
        environment = without_table(os.environ)
        if variant == WITH:
            environment |= self._table.variables
            environment[DIRECTORY_VARIABLE] = str(self._table.directory)
        return environment | self._logs.nccl_variables(environment, variant)

    def _require_load(self, number: int) -> None:
        seen = self._logs.show_load(number)
        if seen is None:
            say("note: there is no log of NCCL: whether the job loaded the table is not known")
        elif not seen:
            raise TableNotLoadedError(
                "no process of the job loaded the table: does its launcher pass the environment "
                "on (mpirun -x NCCL_TUNER_PLUGIN -x TUCCL_BUNDLE ...)? `tuccl doctor "
                f"{self._table.directory}` tells what else keeps a job from it"
            )
        self.load_seen = bool(seen)

    def _tell(self, number: int, variant: str, run: JobRun) -> None:
        self._done += 1
        say(run_line(number, self._command.rounds, variant, run, self._figure))
        if self._done == 2:
            round_s = time.monotonic() - self._began
            say(f"all rounds take about {format_about(self._command.rounds * round_s)}")


def _print(command: WorkloadBenchCommand, table: ShippedTable, outcome: JobOutcome) -> None:
    if command.as_json:
        print_document(job_bench_document(command, table, outcome))
    else:
        print_lines(job_bench_lines(command, table, outcome))
