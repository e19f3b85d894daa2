"""The whole table against stock NCCL: what jobs lose by is left out, and what they got is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from tests.tuccl.silent_progress import silent
from tuccl.errors import ConfigurationFailedError
from tuccl.reports.report import Dropped
from tuccl.search.trials.backend import JobCall, JobTable, JobTimes, Measured
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.space import Family, Space
from tuccl.tuning.results import SearchSpaces, TunedKeys, WholeTable
from tuccl.tuning.searches import TuningMeans
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.tune import tune
from tuccl.tuning.whole_table import hold_whole, reserved_seconds
from tuccl.workspace.measurement_log import MeasurementLog

SHAPE = Shape(4, 1, 4)
SIZES = tuple(1 << exponent for exponent in (10, 12, 14, 16, 18))
SETTINGS = RunSettings(operations=(Collective.ALL_REDUCE,), sizes_bytes=SIZES)
BUILTINS = Space(
    "test", (Family("default", "", (0,), (0,), (0,)), Family("ring", "LL", (4,), (0,), (0,)))
)
SCHEDULES = Space("executor", (Family("schedule:b", "LL", (4,), (256,), (1 << 20,)),))
SPACES = SearchSpaces(lambda _: BUILTINS, lambda _: SCHEDULES, jobs_run_schedules=True)
STOCK_US, START_S = 20.0, 3.0


@dataclass
class Jobs:
    """A backend that runs jobs, in which what is loaded costs something.

    The ring gains 5 % at the largest size; the schedule gains by size.
    """

    gains: Mapping[int, float] = field(default_factory=lambda: {SIZES[0]: 2.0, SIZES[1]: 2.0})
    """Speedup of the schedule by size; elsewhere it loses."""
    presence: float = 1.0
    """Time of a key without an entry where a job has loaded the executor, over stock NCCL's."""
    in_job: Mapping[int, float] = field(default_factory=dict)
    """Time of an entry in a job over that in the search's workers; 1 if left out."""
    beside: float = 1.0
    """Time of a computation beside what a table changes over that beside stock NCCL's call."""
    failure: str = ""
    """Why jobs do not run with the executor, or with any table if `fails_always`."""
    fails_always: bool = False
    failures: int = 1 << 30
    """Number of jobs that fail so."""
    computations_us: dict[int, float] = field(default_factory=dict)
    """Computation beside a call by size, in jobs."""
    jobs: list[tuple[str, int]] = field(default_factory=list)
    name = "test"
    provenance = Provenance("test")
    restart_s = START_S
    runs_jobs = True
    has_windows = False

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        us = self._us(task, config)
        samples = tuple(us * (1.0 + 0.001 * (n % 3)) for n in range(first, first + repeats))
        return Measured(samples, 1e-3 * repeats)

    def _us(self, task: Task, config: Config) -> float:
        if config.is_schedule:
            return STOCK_US / self.gains.get(task.size_bytes, 0.5)
        gains = not config.is_default and task.size_bytes == SIZES[-1]
        return STOCK_US / (1.05 if gains else 1.0 if config.is_default else 0.8)

    def time_job(
        self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
    ) -> JobTimes:
        self.jobs.append(("" if table is None else table.name, number))
        fails = table is not None and (table.loads_executor or self.fails_always)
        if fails and self.failure and self.failures > 0:
            self.failures -= 1
            raise ConfigurationFailedError(self.failure, seconds=1.0)
        times_us = tuple(
            (call, self.call_us(call, table) * (1.0 + 0.001 * ((number + place) % 2)))
            for place, call in enumerate(launches)
        )
        self.computations_us |= {
            call.task.size_bytes: call.computation_us for call in launches if call.computation_us
        }
        return JobTimes(times_us, START_S + 0.1)

    def call_us(self, call: JobCall, table: JobTable | None) -> float:
        if not call.computation_us:
            return self.job_us(call.task, table)
        entry = None if table is None else table.calls.get(call.task)
        is_slowed = entry is not None or (table is not None and table.profile != STOCK.profile)
        return call.computation_us * (self.beside if is_slowed else 1.0)

    def job_us(self, task: Task, table: JobTable | None) -> float:
        if table is None:
            return STOCK_US
        if task in table.calls:
            return self._us(task, table.calls[task]) * self.in_job.get(task.size_bytes, 1.0)
        return STOCK_US * (self.presence if table.loads_executor else 1.0)

    def restart(self) -> None:
        """All starts are alike."""

    def check(self, task: Task, config: Config) -> None:
        """All data is right."""


class WithoutJobs:
    """The same without jobs."""

    name, provenance, restart_s = Jobs.name, Jobs.provenance, Jobs.restart_s

    def __init__(self) -> None:
        self.measure, self.restart, self.check = Jobs().measure, lambda: None, lambda *_: None


def table_of(tuning: TunedKeys) -> JobTable:
    calls = {key.task: won for key in tuning.keys if (won := key.decision.winner)}
    name = f"{crc32(repr(calls).encode()):08x}"
    loads = any(config.is_schedule for config in calls.values())
    return JobTable(name, b"", tuning.profile, calls, loads)


def held(
    folder: Path, backend: Jobs, run: RunSettings = SETTINGS, spaces: SearchSpaces = SPACES
) -> TunedKeys:
    folder.mkdir(exist_ok=True)
    with MeasurementLog(folder / "log", backend, "id") as log:
        means = TuningMeans(run, spaces, log, silent)
        return hold_whole(tune(means, SHAPE), means, SHAPE, table_of)


def whole_of(tuning: TunedKeys) -> WholeTable:
    assert tuning.whole is not None
    return tuning.whole


def ratios(tuning: TunedKeys) -> dict[int, float]:
    seen = whole_of(tuning).keys
    return {task.size_bytes: round(key.gain.ratio, 2) for task, key in seen.items()}


def winners(tuning: TunedKeys) -> list[str]:
    found = (key.decision.winner for key in tuning.keys)
    return ["" if won is None else won.algorithm.partition(":")[0] for won in found]


def test_a_job_with_all_of_the_table_is_timed_in_turn_with_stock_nccl(tmp_path: Path) -> None:
    backend = Jobs()
    tuning = held(tmp_path, backend)
    assert winners(tuning) == ["schedule", "schedule", "", "", "ring"]
    name = table_of(tuning).name
    assert backend.jobs == [("", 0), (name, 0), (name, 1), ("", 1)]
    assert ratios(tuning) == dict(zip(SIZES, (2.0, 2.0, 1.0, 1.0, 1.05), strict=True))
    whole = whole_of(tuning)
    assert (whole.rounds, whole.dropped, whole.failed) == (2, None, "")
    assert whole.seconds == pytest.approx(4 * 3.1)
    with MeasurementLog(tmp_path / "log", backend, "id") as log:
        assert log.contents.bill.spent_s == pytest.approx(tuning.spent_s)


def test_an_executor_that_costs_other_calls_more_than_it_gains_is_left_out(tmp_path: Path) -> None:
    backend = Jobs({SIZES[0]: 1.1}, presence=1.08)
    tuning = held(tmp_path, backend)
    assert whole_of(tuning).dropped is Dropped.EXECUTOR
    assert winners(tuning) == ["", "", "", "", "ring"]
    (left_out,) = tuning.keys[0].decision.left_out
    assert left_out.sentence.endswith("costs other calls more than its schedules gain")
    # What is left was started again, and no job is slower than stock NCCL.
    assert ratios(tuning) == dict(zip(SIZES, (1.0, 1.0, 1.0, 1.0, 1.05), strict=True))
    final = table_of(tuning)
    assert all(backend.job_us(key.task, final) <= STOCK_US for key in tuning.keys)


def test_where_schedules_gain_more_the_executor_stays_and_slower_keys_are_told(
    tmp_path: Path,
) -> None:
    backend = Jobs(dict.fromkeys(SIZES[:3], 3.0), presence=1.08)
    tuning = held(tmp_path, backend)
    whole = whole_of(tuning)
    assert winners(tuning) == ["schedule", "schedule", "schedule", "", "ring"]
    slower = {task.size_bytes for task, key in whole.keys.items() if key.is_slower}
    assert (whole.dropped, slower) == (None, {SIZES[3]})
    assert ratios(tuning)[SIZES[3]] == 0.93


def test_an_entry_that_loses_in_jobs_is_left_out(tmp_path: Path) -> None:
    backend = Jobs(in_job={SIZES[1]: 2.2})
    tuning = held(tmp_path, backend)
    assert winners(tuning) == ["schedule", "", "", "", "ring"]
    (left_out,) = tuning.keys[1].decision.left_out
    assert "with the whole table loaded a job was slower than with stock NCCL (0.909x" in (
        left_out.sentence
    )
    assert ratios(tuning)[SIZES[1]] == 1.0
    assert len(backend.jobs) == 8, "what is left was started again"


def test_a_profile_that_costs_more_than_it_gains_leaves_the_table_empty(tmp_path: Path) -> None:
    """In the workers 256 threads gain 10 % everywhere, in jobs they lose as much."""

    class Profiled(Jobs):
        def _us(self, _task: Task, config: Config) -> float:
            return STOCK_US if config.nthreads == 0 else STOCK_US / 1.1

        def job_us(self, _task: Task, table: JobTable | None) -> float:
            return STOCK_US * (1.1 if table and table.profile.nthreads else 1.0)

    threads = (0, 256)
    families = (
        Family("default", "", (0,), threads, (0,)),
        Family("ring", "LL", (4,), threads, (0,)),
    )
    builtins = Space("test", families)
    spaces = SearchSpaces(lambda _: builtins, lambda _: Space("none", ()))
    tuning = held(tmp_path, Profiled(), spaces=spaces)
    assert tuning.race.winner == ProcessProfile(nthreads=256)
    assert (whole_of(tuning).dropped, tuning.profile) == (Dropped.TABLE, STOCK.profile)
    assert tuning.race.verdict is None
    assert not whole_of(tuning).keys


LARGE = (1 << 10, 64 << 20, 256 << 20)
TRAINING = replace(SETTINGS, sizes_bytes=LARGE)


def test_calls_that_trainings_hide_are_timed_beside_computation(tmp_path: Path) -> None:
    """Where the table changes them: not the small call, and not the one that stays NCCL's."""
    backend = Jobs(dict.fromkeys(LARGE[:2], 2.0), beside=1.01)
    tuning = held(tmp_path, backend, TRAINING)
    assert backend.computations_us == {LARGE[1]: 2.0 * STOCK_US}
    # 1 % is beyond the noise of these jobs, so the entry goes; alone it gains.
    assert winners(tuning) == ["schedule", "", ""]
    (left_out,) = tuning.keys[1].decision.left_out
    assert "a job was slower beside computation than with stock NCCL (0.990x" in left_out.sentence
    assert [key.beside for key in whole_of(tuning).keys.values()] == [None] * 3


def test_schedules_are_timed_on_registered_buffers_where_a_backend_has_them(
    tmp_path: Path,
) -> None:
    """NCCL's own kernels for windows take 60 of the 100 us that its others do."""

    class Registering(Jobs):
        has_windows = True

        def call_us(self, call: JobCall, table: JobTable | None) -> float:
            if call.in_windows and table is None:
                return 0.6 * STOCK_US
            return super().call_us(call, table)

    gains = {SIZES[0]: 2.0, SIZES[1]: 1.25}
    tuning = held(tmp_path / "with", Registering(gains))
    assert winners(tuning)[:2] == ["schedule", "schedule"]
    of_schedules = [whole_of(tuning).keys[key.task] for key in tuning.keys[:2]]
    ratios = [key.in_windows.ratio for key in of_schedules if key.in_windows is not None]
    assert ratios == [pytest.approx(1.2, rel=1e-3), pytest.approx(0.75, rel=1e-3)]
    assert [key.serves_windows for key in of_schedules] == [True, False]
    assert [key.gain.ratio for key in of_schedules] == pytest.approx([2.0, 1.25], rel=1e-3)
    assert whole_of(tuning).keys[tuning.keys[2].task].in_windows is None, "NCCL's own setting"
    without = held(tmp_path / "without", Jobs(gains))
    assert all(key.in_windows is None for key in whole_of(without).keys.values())


class Wobbling(Jobs):
    """Every second job with a table ends its computations 15 % later."""

    def time_job(
        self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
    ) -> JobTimes:
        self.beside = 1.15 if number % 2 else 1.0
        return super().time_job(launches, table, number)


def test_a_call_that_looks_slower_beside_computation_goes_without_a_proof(tmp_path: Path) -> None:
    backend = Wobbling(dict.fromkeys(LARGE[:2], 2.0))
    tuning = held(tmp_path, backend, TRAINING)
    assert winners(tuning) == ["schedule", "", ""]
    (left_out,) = tuning.keys[1].decision.left_out
    assert re.search(r"beside computation .*0\.94\dx, 0\.8\d+ to 1\.0", left_out.sentence)


def test_a_call_that_costs_the_computation_nothing_stays(tmp_path: Path) -> None:
    tuning = held(tmp_path, Jobs(dict.fromkeys(LARGE[:2], 2.0)), TRAINING)
    assert winners(tuning) == ["schedule", "schedule", ""]
    beside = [key.beside for key in whole_of(tuning).keys.values()]
    assert beside[::2] == [None, None]
    assert beside[1] is not None
    assert beside[1].ratio == pytest.approx(1.0, abs=1e-3)


def test_a_call_that_trainings_hide_is_compared_with_fewer_channels(tmp_path: Path) -> None:
    """More channels gain little; with the search's two best alone the eight are not compared."""

    class Channels(Jobs):
        def _us(self, task: Task, config: Config) -> float:
            return super()._us(task, config) * (1.0 - 1e-4 * config.nchannels)

    family = Family("schedule:b", "LL", (4, 8, 16, 32), (256, 512), (1 << 20,))
    spaces = replace(SPACES, schedules=lambda _: Space("executor", (family,)))
    tuning = held(tmp_path, Channels(dict.fromkeys(LARGE[:2], 2.0)), TRAINING, spaces)
    won = [key.decision.winner for key in tuning.keys]
    assert [config.nchannels for config in won if config] == [32, 8]


def test_a_profile_that_lengthens_the_computation_is_not_taken(tmp_path: Path) -> None:
    class Profiled(Jobs):
        def _us(self, _task: Task, config: Config) -> float:
            return STOCK_US if config.nthreads == 0 else STOCK_US / 1.1

        def job_us(self, _task: Task, table: JobTable | None) -> float:
            return STOCK_US / (1.1 if table and table.profile.nthreads else 1.0)

    threads = (0, 256)
    families = (
        Family("default", "", (0,), threads, (0,)),
        Family("ring", "LL", (4,), threads, (0,)),
    )
    spaces = SearchSpaces(lambda _: Space("test", families), lambda _: Space("none", ()))
    for beside, nthreads in ((1.0, 256), (1.04, 0)):
        backend = Profiled(beside=beside)
        tuning = held(tmp_path / f"{beside}", backend, TRAINING, spaces)
        assert backend.computations_us == dict.fromkeys(LARGE[1:], 2.0 * STOCK_US)
        assert tuning.profile == ProcessProfile(nthreads=nthreads)
        forgone = [verdict.beside for verdict in tuning.race.forgone if verdict.beside]
        assert [round(gain.ratio, 2) for gain in forgone] == [0.96] * (nthreads == 0)
        own = JobTable.bare(ProcessProfile(nthreads=256)).name
        stock, also_stock = (name for name, _ in backend.jobs[:4] if name != own)
        assert stock == also_stock
        assert backend.jobs[:4] == [(stock, 0), (own, 0), (own, 1), (stock, 1)]


def test_on_request_no_call_is_timed_beside_computation(tmp_path: Path) -> None:
    backend = Jobs(dict.fromkeys(LARGE[:2], 2.0), beside=1.5)
    alone = replace(TRAINING, options=replace(TRAINING.options, alone=True))
    assert winners(held(tmp_path, backend, alone)) == ["schedule", "schedule", ""]
    assert not backend.computations_us


def test_a_run_that_continues_starts_no_job_twice(tmp_path: Path) -> None:
    whole = held(tmp_path / "whole", Jobs(in_job={SIZES[1]: 2.2}))
    lines = (tmp_path / "whole" / "log").read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if b'"job":' in line)
    for killed, left in ((first, 8), (first + 3, 5), (len(lines), 0)):
        folder = tmp_path / str(killed)
        folder.mkdir()
        (folder / "log").write_bytes(b"".join(lines[:killed]))
        backend = Jobs(in_job={SIZES[1]: 2.2})
        assert held(folder, backend) == whole
        assert len(backend.jobs) == left
        assert (folder / "log").read_bytes() == b"".join(lines)


def test_an_executor_with_which_no_job_runs_is_left_out(tmp_path: Path) -> None:
    backend = Jobs(failure="the job does not start: out of memory")
    tuning = held(tmp_path, backend)
    whole = whole_of(tuning)
    assert (whole.rounds, whole.dropped, whole.failed) == (2, Dropped.EXECUTOR, "")
    assert whole.dropped_why == backend.failure
    assert winners(tuning) == ["", "", "", "", "ring"]
    assert tuning.keys[0].decision.left_out[0].sentence.endswith("with the executor does not run")
    again = Jobs()
    assert held(tmp_path, again) == tuning
    assert not again.jobs


def test_a_table_with_which_no_job_runs_is_left_empty(tmp_path: Path) -> None:
    backend = Jobs(failure="another machine", fails_always=True)
    tuning = held(tmp_path, backend)
    whole = whole_of(tuning)
    assert (whole.rounds, whole.dropped, whole.dropped_why) == (0, Dropped.TABLE, "another machine")
    assert winners(tuning) == [""] * 5
    jobs = [name for name, _ in backend.jobs]
    assert jobs == ["", jobs[1], jobs[1], "", jobs[4], jobs[4]]
    assert jobs[4] not in {"", jobs[1]}


def test_a_job_that_fails_once_is_started_again(tmp_path: Path) -> None:
    tuning = held(tmp_path, Jobs(failure="a port was taken", failures=1))
    whole = whole_of(tuning)
    assert (whole.rounds, whole.dropped, whole.failed) == (2, None, "")
    assert winners(tuning) == ["schedule", "schedule", "", "", "ring"]


def test_a_job_of_stock_nccl_that_does_not_run_says_nothing_of_the_table(tmp_path: Path) -> None:
    class StockFails(Jobs):
        def time_job(
            self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
        ) -> JobTimes:
            if table is None:
                raise ConfigurationFailedError("no memory", seconds=1.0)
            return super().time_job(launches, table, number)

    tuning = held(tmp_path, StockFails())
    whole = whole_of(tuning)
    assert (whole.rounds, whole.dropped, whole.failed) == (0, None, "no memory")
    assert winners(tuning) == ["schedule", "schedule", "", "", "ring"]


def test_a_backend_without_jobs_tunes_as_before(tmp_path: Path) -> None:
    backend = WithoutJobs()
    with MeasurementLog(tmp_path / "log", backend, "id") as log:
        means = TuningMeans(replace(SETTINGS, budget_s=30.0), SPACES, log, silent)
        tuning = tune(means, SHAPE)
        assert hold_whole(tuning, means, SHAPE, table_of) is tuning


def test_rounds_are_reserved_of_the_budget_and_left_out_where_it_is_spent(tmp_path: Path) -> None:
    # A launch of 1 s is made twice, and twice to warm up; one of 1 ms six times: 3 + 4.008 s.
    assert reserved_seconds(3.0, [1.0, 0.001], 200.0) == pytest.approx(4 * 7.008)
    assert reserved_seconds(3.0, [1.0, 0.001], 150.0) == pytest.approx(0.15 * 150.0)
    assert reserved_seconds(3.0, [1.0, 0.001], 60.0) == pytest.approx(4 * 3.0 + 0.03 * 60.0)
    assert reserved_seconds(3.0, [1.0, 0.001], 48.0) == 0.0
    for budget_s, rounds in ((100.0, 2), (13.5, 2), (10.0, 0)):
        run = replace(SETTINGS, budget_s=budget_s)
        tuning = held(tmp_path / str(budget_s), Jobs(), run)
        assert whole_of(tuning).rounds == rounds, budget_s
        if rounds:
            assert tuning.spent_s <= budget_s


def test_a_key_that_looks_slower_has_further_rounds_of_its_own(tmp_path: Path) -> None:
    """Jobs differ by 4 %; one key is 8 % slower, which two rounds do not tell from luck."""

    class Noisy(Jobs):
        timed: list[int]

        def time_job(
            self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
        ) -> JobTimes:
            self.timed.append(len(launches))
            found = super().time_job(launches, table, number)
            noise = (1.0, 1.04, 0.98, 1.02, 1.0) if table else (1.02, 0.98, 1.0, 1.0, 1.02)
            times_us = tuple(
                (call, us * noise[(number + at) % 5])
                for at, (call, us) in enumerate(found.times_us)
            )
            return replace(found, times_us=times_us)

        def job_us(self, task: Task, table: JobTable | None) -> float:
            slower = table is not None and task.size_bytes == SIZES[2]
            return super().job_us(task, table) * (1.08 if slower else 1.0)

    backend = Noisy()
    backend.timed = []
    tuning = held(tmp_path, backend)
    seen = {task.size_bytes: key for task, key in whole_of(tuning).keys.items()}
    assert backend.timed[:4] == [len(SIZES)] * 4
    assert 2 <= len(backend.timed[4:]) <= 6
    assert set(backend.timed[4:]) == {1}
    assert seen[SIZES[2]].rounds == len(backend.timed) // 2
    assert {key.rounds for size, key in seen.items() if size != SIZES[2]} == {2}


def test_jobs_that_differ_too_much_by_themselves_say_nothing(tmp_path: Path) -> None:
    """Every second job with the table takes four times as long."""

    class Wild(Jobs):
        def time_job(
            self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
        ) -> JobTimes:
            found = super().time_job(launches, table, number)
            slow = 4.0 if table is not None and number % 2 else 1.0
            return replace(found, times_us=tuple((call, slow * us) for call, us in found.times_us))

    tuning = held(tmp_path, Wild())
    assert (whole_of(tuning).rounds, ratios(tuning)) == (2, {})
    assert winners(tuning) == ["schedule", "schedule", "", "", "ring"]


def test_the_dearest_keys_are_not_timed_in_jobs_where_the_budget_is_short(tmp_path: Path) -> None:
    """A sample of the largest size takes 0.6 s, of which a job takes four."""

    class Dear(Jobs):
        def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
            taken = super().measure(task, config, first, repeats)
            return replace(taken, seconds=repeats * (0.6 if task.size_bytes == SIZES[-1] else 1e-3))

    for left_s, count in ((20.0, len(SIZES) - 1), (22.0, len(SIZES)), (11.0, 0)):
        with MeasurementLog(tmp_path / f"{left_s}", Dear(), "id") as log:
            means = TuningMeans(SETTINGS, SPACES, log, silent)
            tuning = tune(means, SHAPE)
            run = replace(SETTINGS, budget_s=tuning.spent_s + left_s)
            seen = hold_whole(tuning, replace(means, settings=run), SHAPE, table_of)
            assert list(ratios(seen)) == list(SIZES[:count])


@pytest.mark.long
@settings(deadline=None)
@given(
    gains=st.fixed_dictionaries({size: st.floats(0.5, 3.0) for size in SIZES[:4]}),
    presence=st.floats(1.0, 1.3),
    in_job=st.dictionaries(st.sampled_from(SIZES), st.floats(0.7, 2.0)),
)
def test_no_entry_of_the_table_is_one_that_jobs_were_slower_with(
    tmp_path_factory: pytest.TempPathFactory,
    gains: Mapping[int, float],
    presence: float,
    in_job: Mapping[int, float],
) -> None:
    backend = Jobs(gains, presence, in_job)
    tuning = held(tmp_path_factory.mktemp("held"), backend)
    final = table_of(tuning)
    slow = {key.task for key in tuning.keys if backend.job_us(key.task, final) > 1.02 * STOCK_US}
    told = {task for task, key in whole_of(tuning).keys.items() if key.is_slower}
    assert slow <= told
    assert not told & final.calls.keys()
