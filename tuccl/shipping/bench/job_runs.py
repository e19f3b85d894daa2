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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuccl.crew.job_process import run_job_into
from tuccl.errors import MeasurementError, UsageError
from tuccl.quantities import format_about, format_elapsed
from tuccl.runtime.executor_library import BUNDLE_VARIABLE
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.job_figure import RunFigure, figure_text
from tuccl.shipping.bench.own_job import WITH, WITHOUT, JobRound, JobRun
from tuccl.shipping.bench.surroundings import DIRECTORY_VARIABLE, without_table
from tuccl.workspace.atomic_file import absolute, cannot_write

_LOG_VARIABLE = "NCCL_DEBUG"
_LOADED = re.compile(rb"TUNER/Plugin: Using (?:tuner plugin )?TuCCL|TuCCL: .*\(CRC ")
"""NCCL's line on the plugin (src/plugin/tuner), or the plugin's own on its table."""
_LOG_HEAD_BYTES = 1 << 20
_LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class UserJob:
    """A user's job, and how it is judged."""

    command: tuple[str, ...]
    figure: RunFigure
    limit_s: float | None = None
    """Seconds after which a run is ended; None: it may take as long as it does."""


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
def job_logs(kept: Path | None, say: Callable[[str], None]) -> Iterator[JobLogs]:
    """Yield the directory that keeps the logs; else one that is removed after a success.

    It lies where the job runs, which all its hosts see as a rule.

    Args:
        kept: Directory that the user named; None: none.
        say: Called with the directory that keeps the logs of a failure.

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

    job: UserJob
    logs: JobLogs
    shipped: Path
    """Directory that `tuccl doctor` is told of."""
    rounds: int
    say: Callable[[str], None]
    """Called with each line on a run."""
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
            MeasurementError: It ended with another exit code than 0; it was to load the table, and
                NCCL's log shows that it did not; it printed no figure.
        """
        name = f"{self.prefix}-{number}-{half}".replace(" ", "-")
        output = self.logs.output(name)
        environment = {**without_table(os.environ), **variant.variables}
        environment |= self.logs.nccl_variables(environment, name)
        began = time.monotonic()
        with output.open("wb") as file:
            code = run_job_into(file, self.job.command, environment, self.job.limit_s)
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
        run = JobRun(self.job.figure.of_run(text, seconds), seconds)
        self._report(number, variant, run)
        return run

    def _require_load(self, name: str) -> None:
        seen = self.logs.show_load(name)
        if seen is None:
            self.say(
                "note: NCCL wrote no log, so that it is not known whether the job loaded the table"
            )
        elif not seen:
            raise MeasurementError(
                "no process of the job loaded the table: does its launcher pass the environment "
                "on (mpirun -x NCCL_TUNER_PLUGIN -x TUCCL_BUNDLE ...)? `tuccl doctor "
                f"{self.shipped}` names what else keeps a job from it"
            )
        self.load_seen = bool(seen)

    def _report(self, number: int, variant: Variant, run: JobRun) -> None:
        self._done += 1
        shown, figure = "", self.job.figure
        if figure.pattern is not None:
            shown = f"{figure_text(run.figure)}{'' if figure.unit is None else f' {figure.unit}'}, "
        self.say(
            f"{self.prefix} {number} of {self.rounds}, {variant.name}: "
            f"{shown}{format_elapsed(run.seconds)}"
        )
        if self._done == 2:
            round_s = time.monotonic() - self._began
            self.say(f"all rounds take about {format_about(self.rounds * round_s)}")


def table_variant(table: ShippedTable) -> Variant:
    """Return the variables of a whole table."""
    return Variant(WITH, {**table.variables, DIRECTORY_VARIABLE: str(table.directory)})


def bench_rounds(runs: JobRuns, variant: Variant) -> tuple[JobRound, ...]:
    """Run the job in turn with these variables and without.

    Which comes first changes from round to round, so that a drift of the machine affects both
    alike.
    """
    variants = {WITHOUT: Variant(WITHOUT, {}), WITH: variant}
    done = []
    for number in range(1, runs.rounds + 1):
        order = (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT)
        found = {half: runs.start(number, variants[half], half) for half in order}
        done.append(JobRound(found[WITHOUT], found[WITH]))
    return tuple(done)
