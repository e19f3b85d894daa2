"""Runs of a user's job under variables of a table, for `workload bench` and `workload trim`.

What every run prints goes to a file, in which the job's own figure is found, and NCCL logs its
start beside it, which tells whether the job loaded the table.
"""

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

from probes.cluster.mpi import mpi_tasks
from tuccl.errors import MeasurementError, UsageError
from tuccl.options.option import require_bounds
from tuccl.options.workload_bench_command import WorkloadBenchCommand
from tuccl.processes.job_process import run_job_into
from tuccl.quantities import format_about, parse_seconds
from tuccl.runtime.executor_library import BUNDLE_VARIABLE
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.job_figure import Figure, TimeUnit, parse_pattern
from tuccl.shipping.bench.own_job import WITH, WITHOUT, JobRound, JobRun, run_rounds
from tuccl.shipping.bench.surroundings import DIRECTORY_VARIABLE, without_table
from tuccl.views.terminal.display import say
from tuccl.views.terminal.job_display import run_line
from tuccl.workspace.atomic_file import absolute, cannot_write
from tuccl.workspace.runs import Workspace

_LOG_VARIABLE = "NCCL_DEBUG"
_LOADED = re.compile(rb"TUNER/Plugin: Using (?:tuner plugin )?TuCCL|TuCCL: .*\(CRC ")
"""NCCL's line on the plugin (src/plugin/tuner), or the plugin's own on its table."""
_LOG_HEAD_BYTES = 1 << 20
_LAST_LINES = 5


def understood(command: WorkloadBenchCommand) -> tuple[Figure, float | None]:
    """Return the figure and the time limit of a run.

    Raises:
        UsageError: The options contradict each other, or name no job.
    """
    require_bounds(command)
    if not command.job:
        raise UsageError(f"name the job: tuccl {command.NAME} --table DIR -- CMD")
    if mpi_tasks(os.environ) > 1:
        raise UsageError(
            "a launcher started this command several times: put it before the launcher, as in "
            f"`tuccl {command.NAME} --table DIR -- srun ...`"
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


def table_place(command: WorkloadBenchCommand) -> Path:
    """Return the directory or the workspace with the table.

    Raises:
        WorkspaceError: The workspace has no finished run.
    """
    if command.table is None:
        Workspace(command.workspace).current()
        return command.workspace
    return command.table


@dataclass(frozen=True, slots=True)
class JobLogs:
    """A directory for the output of runs and the logs of NCCL in their processes."""

    directory: Path

    def output(self, name: str) -> Path:
        """Return the file for what a run prints."""
        return self.directory / f"{name}.log"

    def nccl_variables(self, environment: Mapping[str, str], name: str) -> dict[str, str]:
        """Return variables that have NCCL tell of its start, unless the job asks it for a log."""
        if _LOG_VARIABLE in environment:
            return {}
        return {
            _LOG_VARIABLE: "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV",
            "NCCL_DEBUG_FILE": str(self.directory / f"nccl-{name}-%h.%p"),
        }

    def show_load(self, name: str) -> bool | None:
        """Return whether a run's logs show that it loaded a table; None: there are none."""
        logs = [*self.directory.glob(f"nccl-{name}-*")]
        if any(_LOADED.search(_head(path)) for path in (*logs, self.output(name))):
            return True
        return False if logs else None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LOG_HEAD_BYTES)


@contextmanager
def job_logs(kept: Path | None) -> Iterator[JobLogs]:
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
        yield JobLogs(directory)
    except MeasurementError:
        say(f"{directory} keeps what the job printed")
        raise
    except BaseException:
        if kept is None:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    if kept is None:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Variant:
    """Variables under which the job is run."""

    name: str
    """For people: `with the table`."""
    variables: Mapping[str, str]
    """Those of a table; empty: the environment as it stands."""

    @property
    def loads_table(self) -> bool:
        """Whether the job is to load a table."""
        return BUNDLE_VARIABLE in self.variables


@dataclass
class JobRuns:
    """Runs the job in rounds of two runs."""

    command: WorkloadBenchCommand
    figure: Figure
    limit_s: float | None
    logs: JobLogs
    shipped: Path
    """Directory that `tuccl doctor` is told of."""
    rounds: int
    prefix: str = "round"
    """First word of a round's lines and of the names of its files."""

    def __post_init__(self) -> None:
        """Begin."""
        self._began = time.monotonic()
        self._done = 0
        self._looked = False
        self.load_seen = False
        """Whether a log has shown that the job loaded a table."""

    def start(self, number: int, variant: Variant, half: str) -> JobRun:
        """Run the job once.

        Args:
            number: The round, from 1 on.
            variant: Variables of this run.
            half: Name of this run in the names of files, unlike that of the round's other run.

        Raises:
            MeasurementError: It ended with another exit code than 0.
            MeasurementError: It was to load the table, and NCCL's log shows that it did not.
            MeasurementError: It printed no figure.
        """
        name = f"{self.prefix}-{number}-{half}".replace(" ", "-")
        output = self.logs.output(name)
        environment = {**without_table(os.environ), **variant.variables}
        environment |= self.logs.nccl_variables(environment, name)
        began = time.monotonic()
        with output.open("wb") as file:
            code = run_job_into(file, self.command.job, environment, self.limit_s)
        seconds = time.monotonic() - began
        text = output.read_text(encoding="utf-8", errors="replace")
        if code != 0:
            last = " | ".join(text.split("\n")[-_LAST_LINES:]).strip(" |")
            raise MeasurementError(
                f"the job ended with exit code {code} {variant.name}: {last!a:.600}"
            )
        if variant.loads_table and not self._looked:
            self._looked = True
            self._require_load(name)
        run = JobRun(self.figure.of_run(text, seconds), seconds)
        self._tell(number, variant, run)
        return run

    def _require_load(self, name: str) -> None:
        seen = self.logs.show_load(name)
        if seen is None:
            say("note: there is no log of NCCL: whether the job loaded the table is not known")
        elif not seen:
            raise MeasurementError(
                "no process of the job loaded the table: does its launcher pass the environment "
                "on (mpirun -x NCCL_TUNER_PLUGIN -x TUCCL_BUNDLE ...)? `tuccl doctor "
                f"{self.shipped}` tells what else keeps a job from it"
            )
        self.load_seen = bool(seen)

    def _tell(self, number: int, variant: Variant, run: JobRun) -> None:
        self._done += 1
        say(run_line(f"{self.prefix} {number} of {self.rounds}", variant.name, run, self.figure))
        if self._done == 2:
            round_s = time.monotonic() - self._began
            say(f"all rounds take about {format_about(self.rounds * round_s)}")


def table_variant(table: ShippedTable) -> Variant:
    """Return the variables of a whole table."""
    return Variant(WITH, {**table.variables, DIRECTORY_VARIABLE: str(table.directory)})


def bench_rounds(runs: JobRuns, variant: Variant) -> tuple[JobRound, ...]:
    """Run the job in turn with these variables and without."""
    variants = {WITH: variant, WITHOUT: Variant(WITHOUT, {})}
    return run_rounds(lambda number, name: runs.start(number, variants[name], name), runs.rounds)
