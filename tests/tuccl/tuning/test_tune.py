import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from tests.sketches.machines import two_sockets
from tests.tuccl.silent_progress import silent
from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.models.placements import placements
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Settings, Task
from tuccl.search.trials.events import Total
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.search.trials.shapes import NamedShape, ShapeName
from tuccl.search.trials.space import Family, Space, space_of
from tuccl.tuning.decision import FEW_PAIRS, PAIRS
from tuccl.tuning.placing.safety import SlowerAt
from tuccl.tuning.results import SearchSpaces, TunedKeys
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.searches import TuningMeans
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.stages import KeyTuning
from tuccl.tuning.tune import tune
from tuccl.workspace.measurement_log import MeasurementLog

SHAPE, PAIR = Shape(4, 1, 4), Shape(2, 1, 2)
SIZES = (1 << 10, 1 << 14, 1 << 18)
SETTINGS = RunSettings(operations=(Collective.ALL_REDUCE,), sizes_bytes=SIZES)
THREADS, BUFFERS, LEAST = (128, 256, 0), (1 << 20, 0), (0, 32)
FAMILIES = (
    Family("default", "", (0,), THREADS, BUFFERS, LEAST),
    Family("ring", "LL", (1, 2, 4, 8), THREADS, BUFFERS, LEAST),
    Family("ring", "Simple", (1, 2, 4, 8), THREADS, BUFFERS, LEAST),
)
SPACES = SearchSpaces(lambda _: Space("test", FAMILIES), lambda _: Space("no executor", ()))


class Machine:
    """LL with 4 channels is best below 8 KiB, Simple with 8 above; 256 threads gain a tenth."""

    name = "test"
    provenance = Provenance("test")
    restart_s = 3.0

    def __init__(self, broken: frozenset[Config] = frozenset()) -> None:
        self.broken = broken
        self.measured = 0
        self.checked: list[tuple[Task, Config]] = []
        self.profiles: list[ProcessProfile] = []

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        self.measured += 1
        starts = config.profile not in self.profiles
        self.profiles += [config.profile] if starts else []
        if replace(config, nthreads=0) in self.broken:
            raise ConfigurationFailedError("it hung", seconds=1.0)
        time_us = 20.0 if config.nthreads == 0 else 18.0
        small = task.size_bytes < 8192
        if (config.protocol, config.nchannels) == (("LL", 4) if small else ("Simple", 8)):
            time_us *= 0.7
        elif not config.is_default:
            time_us *= 1.2
        samples = tuple(time_us * (1.0 + 0.001 * (n % 3)) for n in range(first, first + repeats))
        return Measured(samples, 1e-3 * repeats + (self.restart_s if starts else 0.0))

    def restart(self) -> None:
        """All starts are alike."""

    def check(self, task: Task, config: Config) -> None:
        self.checked.append((task, config))
        if (config.protocol, config.nchannels) == ("LL", 4) and "wrong" in str(self.broken):
            raise ConfigurationFailedError("12 bytes are wrong")


def slowed(measured: Measured, factor: float) -> Measured:
    return replace(measured, samples_us=tuple(factor * us for us in measured.samples_us))


def tuned(
    folder: Path, machine: Machine, settings: RunSettings = SETTINGS, spaces: SearchSpaces = SPACES
) -> TunedKeys:
    folder.mkdir(exist_ok=True)
    with MeasurementLog(folder / "log", machine, "id") as log:
        return tune(TuningMeans(settings, spaces, log, silent), SHAPE)


def winners(result: TunedKeys) -> list[tuple[str, int] | None]:
    found = [key.decision.builtin for key in result.keys]
    return [(won.config.protocol, won.config.nchannels) if won else None for won in found]


def test_profile_calls_and_border_are_those_of_the_machine(tmp_path: Path) -> None:
    machine = Machine()
    result = tuned(tmp_path, machine)
    assert result.profile == ProcessProfile(nthreads=256)
    assert winners(result) == [("LL", 4), ("Simple", 8), ("Simple", 8)]
    assert result.starts is None
    small, middle, _ = (key.range_bytes for key in result.keys)
    assert 4096 <= small[1] < 8192 < middle[1]
    for key in result.keys:
        assert key.decision.builtin is not None
        assert (key.task, key.decision.builtin.config) in machine.checked


class UnevenMachine(Machine):
    """Pairs two apart lose by the call that neighbours of small messages gain by."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        measured = super().measure(task, config, first, repeats)
        if task.placement == ANYWHERE:
            return measured
        self.placements[task.placement] += repeats
        slower = task.placement.stride == 2 and config.protocol == "LL"
        return slowed(measured, 2.0 if slower else 1.0)

    placements: Counter[Placement]


def test_a_winner_that_is_slower_where_ranks_sit_elsewhere_is_left_out(tmp_path: Path) -> None:
    machine = UnevenMachine()
    machine.placements = Counter()
    classes = placements(two_sockets(4), PAIR)
    spaces = replace(SPACES, placements=lambda shape: classes if shape == PAIR else ())
    settings = replace(SETTINGS, shapes=(NamedShape(ShapeName.PAIRS, PAIR),))
    result = tuned(tmp_path, machine, settings, spaces)
    assert winners(result) == [None, ("Simple", 8), ("Simple", 8)]
    (left_out,) = result.keys[0].decision.left_out
    assert isinstance(left_out, SlowerAt)
    assert left_out.config.protocol == "LL"
    assert left_out.ratio == pytest.approx(0.5 / 0.7, rel=0.01)
    assert all(not key.decision.left_out for key in result.keys[1:])
    assert set(machine.placements) == {own.placement for own in classes}


def test_a_schedule_across_hosts_is_timed_under_the_profile_of_the_table(tmp_path: Path) -> None:
    across = Family("phases:a", "LL", (4, 8), (256,), (1 << 20,))
    inside = Family("schedule:b", "LL", (4,), (256,), (1 << 20,))
    spaces = replace(SPACES, schedules=lambda _: Space("executor", (across, inside)))
    machine = Machine()
    with MeasurementLog(tmp_path / "log", machine, "id") as log:
        result = tune(TuningMeans(SETTINGS, spaces, log, silent), SHAPE)
        measured = [recorded.config for recorded in log.contents.all]
    assert result.profile == ProcessProfile(nthreads=256)
    profiles = {config.algorithm: config.profile for config in measured if config.is_schedule}
    assert profiles == {"phases:a": result.profile, "schedule:b": ProcessProfile()}


def test_a_run_that_continues_measures_nothing_again_and_ends_alike(tmp_path: Path) -> None:
    first = tuned(tmp_path, Machine())
    again = Machine()
    assert tuned(tmp_path, again) == first
    assert again.measured == 0


def test_a_budget_ends_the_race_and_the_searches(tmp_path: Path) -> None:
    result = tuned(tmp_path, Machine(), replace(SETTINGS, budget_s=12.0))
    assert result.race.out_of_budget
    assert len(result.race.visits) == 2
    assert result.spent_s <= 12.0


def test_large_messages_leave_seconds_for_the_search_of_schedules(tmp_path: Path) -> None:
    # Checks of data are not counted as spent, so their seconds are not to be reserved either.
    schedule = Family("schedule:a", "LL", (4, 8), (256,), (1 << 20,))
    spaces = replace(
        SPACES, schedules=lambda _: Space("executor", (schedule,)), jobs_run_schedules=True
    )
    settings = replace(SETTINGS, sizes_bytes=(1 << 28, 1 << 30), budget_s=10.5)
    result = tuned(tmp_path, Machine(), settings, spaces)
    assert all(found.ranking for key in result.keys for found in key.searches)


NODE = Shape(2, 1, 2)
"""Half of the machine, twice."""
SHAPES = (NamedShape(ShapeName.WHOLE, SHAPE), NamedShape(ShapeName.NODE, NODE, 4.0))


class OtherOnNodes(Machine):
    """256 threads lose a tenth on nodes, where Simple with 8 channels is best at any size."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        if task.shape == SHAPE:
            return super().measure(task, config, first, repeats)
        large = replace(task, size_bytes=1 << 20)
        taken = super().measure(large, config, first, repeats)
        return slowed(taken, 1.0 if config.nthreads == 0 else 1.22)


def test_each_shape_has_its_own_winners_and_one_profile_has_to_suit_all(tmp_path: Path) -> None:
    single = tuned(tmp_path / "one", OtherOnNodes())
    assert single.profile == ProcessProfile(nthreads=256)
    result = tuned(tmp_path / "several", OtherOnNodes(), replace(SETTINGS, shapes=SHAPES))
    assert [key.task.shape for key in result.keys] == [SHAPE] * 3 + [NODE] * 3
    assert result.profile == STOCK.profile, "nodes would lose by the other one"
    assert winners(result) == [("LL", 4), *[("Simple", 8)] * 5]
    assert result.keys[3].range_bytes == (*single.keys[0].range_bytes[:1], 4096)


def test_the_seconds_for_searches_are_divided_by_the_weights_of_shapes(tmp_path: Path) -> None:
    settings = replace(SETTINGS, shapes=SHAPES, budget_s=7.5)
    spaces = replace(SPACES, builtins=lambda _: Space("test", (FAMILIES[1],)))
    result = tuned(tmp_path, OtherOnNodes(), settings, spaces)
    samples = {
        shape: sum(
            found.repeats_measured
            for key in result.keys
            for found in key.searches
            if key.task.shape == shape
        )
        for shape in (SHAPE, NODE)
    }
    assert samples[NODE] > 1.5 * samples[SHAPE]


class OneGroup(Machine):
    """Workers of one profile at a time, and calls that cost a hundredth of a restart."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        before = self.profiles[-1:]
        self.profiles = [config.profile]
        samples_us = super().measure(task, config, first, repeats).samples_us
        restart_s = 0.0 if before == [config.profile] else self.restart_s
        return Measured(samples_us, 0.03 * repeats + restart_s)


def test_restarts_are_not_charged_to_the_search_of_the_key_that_came_first(tmp_path: Path) -> None:
    result = tuned(tmp_path, OneGroup(), replace(SETTINGS, floor=None))
    samples_s = [0.03 * key.searches[0].repeats_measured for key in result.keys]
    assert [key.searches[0].seconds for key in result.keys] == pytest.approx(samples_s)
    assert result.spent_s > sum(samples_s) + OneGroup.restart_s


def test_a_call_that_cannot_run_or_delivers_wrong_data_is_no_entry(tmp_path: Path) -> None:
    best = Config("ring", "Simple", 8)
    assert winners(tuned(tmp_path / "", Machine(frozenset([best]))))[1:] == [None, None]
    wrong = Machine(frozenset([Config("wrong", "LL", 1)]))
    assert winners(tuned(tmp_path / "other", wrong))[0] is None


def test_without_stock_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="cannot run all_reduce-1024@4x1: it hung"):
        tuned(tmp_path, Machine(frozenset([STOCK])))


class SmallBuffers(Machine):
    """A small buffer gains a tenth above 8 KiB and costs 1.3 % below; starts differ."""

    def __init__(self) -> None:
        super().__init__()
        self.up = ProcessProfile()
        self.starts = self.of_stock = 0
        self.order: list[Config] = []

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        self.order.append(config)
        starts = config.profile != self.up
        self.up = config.profile
        self.starts += starts
        self.of_stock += starts and config.profile == STOCK.profile
        factor = 1.0 + 0.001 * (self.starts % 3)
        if config.buffer_bytes == 1 << 20:
            factor *= 1.013 if task.size_bytes < 8192 else 0.9
        time_us = 20.0 * factor * (1.0 if config.is_default else 1.2)
        samples = tuple(time_us * (1.0 + 0.0003 * (n % 3)) for n in range(first, first + repeats))
        return Measured(samples, 1e-3 * repeats + (self.restart_s if starts else 0.0))


@pytest.mark.parametrize(("floor", "buffer_bytes"), [(None, 1 << 20), (0.98, 1 << 20), (0.99, 0)])
def test_the_floor_decides_whether_a_key_may_pay_for_others(
    tmp_path: Path, floor: float | None, buffer_bytes: int
) -> None:
    machine = SmallBuffers()
    result = tuned(tmp_path, machine, replace(SETTINGS, floor=floor))
    assert result.profile == ProcessProfile(buffer_bytes=buffer_bytes)
    ruled_out = [verdict.starts for verdict in result.race.forgone]
    if buffer_bytes:
        assert ruled_out == []
    else:
        assert len(ruled_out) == 3
        assert min(ruled_out) >= 3
        assert machine.of_stock == max(ruled_out) + 1, "similar profiles share the starts of stock"
    again = SmallBuffers()
    assert tuned(tmp_path, again, replace(SETTINGS, floor=floor)) == result
    assert again.measured == again.starts == 0


SCHEDULES = Family("schedule:0a", "LL", (2, 4, 8), (256, 512), (0,))
WITH_EXECUTOR = replace(
    SPACES,
    schedules=lambda task: Space("executor", (SCHEDULES,) if task.size_bytes < 8192 else ()),
    jobs_run_schedules=True,
)


class Executor(SmallBuffers):
    """As `SmallBuffers`; below 8 KiB a schedule takes half of the time.

    With `slows` it takes longer than NCCL once its data was checked twice: before the race, and
    before its entry is decided.
    """

    def __init__(self, *, slows: bool = False, wrong: bool = False) -> None:
        super().__init__()
        self.slows, self.wrong = slows, wrong
        self.checks = 0

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        if not config.is_schedule:
            return super().measure(task, config, first, repeats)
        self.order.append(config)
        time_us = 21.0 if self.slows and self.checks > 1 else 10.0
        return Measured((time_us,) * repeats, 1e-3 * repeats)

    def check(self, task: Task, config: Config) -> None:
        self.checks += config.is_schedule
        if config.is_schedule and self.wrong:
            raise ConfigurationFailedError(f"12 bytes of {task.name} are wrong")


def test_the_floor_counts_the_schedule_that_a_job_runs(tmp_path: Path) -> None:
    """The small buffer costs NCCL's 1 KB 1.3 %, which a schedule takes half of stock's time for."""
    machine = Executor()
    result = tuned(tmp_path, machine, spaces=WITH_EXECUTOR)
    assert result.profile == ProcessProfile(buffer_bytes=1 << 20)
    first, *_ = result.keys
    assert result.race.by_schedule == {first.task}
    assert first.decision.schedule is not None
    assert result.race.verdict is not None
    (by_nccl,) = result.race.verdict.without_executor
    assert by_nccl.ratio == pytest.approx(1.0 / 1.013, rel=0.003)
    again = Executor()
    assert tuned(tmp_path, again, spaces=WITH_EXECUTOR) == result
    assert again.order == []


def test_schedules_that_only_a_model_runs_do_not_count_towards_the_floor(tmp_path: Path) -> None:
    machine = Executor()
    spaces = replace(WITH_EXECUTOR, jobs_run_schedules=False)
    result = tuned(tmp_path, machine, SETTINGS, spaces)
    assert result.profile == STOCK.profile
    assert result.keys[0].decision.schedule is not None
    first = next(at for at, config in enumerate(machine.order) if config.is_schedule)
    visited = {config.profile for config in machine.order[:first]}
    assert len(visited) > 3, "the race came first"


def test_short_searches_take_a_tenth_of_the_budget_at_most(tmp_path: Path) -> None:
    """A key has 0.1 x 390 s / 3 = 13 s, 13 samples of a schedule; 11 are looked at once more."""

    class Slow(Executor):
        before_the_race = 0

        def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
            measured = super().measure(task, config, first, repeats)
            if config.is_schedule:
                self.before_the_race += repeats if self.starts == 0 else 0
                return replace(measured, seconds=1.0 * repeats)
            return replace(measured, seconds=0.5 * repeats + measured.seconds)

    machine = Slow()
    tuned(tmp_path, machine, replace(SETTINGS, budget_s=390.0), WITH_EXECUTOR)
    assert machine.starts > 0
    assert 11 <= machine.before_the_race <= 13 + 11


def test_the_first_look_at_schedules_counts_where_nothing_is_left_for_a_search(
    tmp_path: Path,
) -> None:
    class Slow(Executor):
        def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
            measured = super().measure(task, config, first, repeats)
            return replace(measured, seconds=measured.seconds + 0.1 * repeats)

    result = tuned(tmp_path, Slow(), replace(SETTINGS, budget_s=30.0), WITH_EXECUTOR)
    first, *_ = result.keys
    builtins, schedules = first.searches
    assert builtins.ranking == ()
    assert schedules.ranking  # The look's.
    assert first.decision.schedule is not None


@pytest.mark.long
@pytest.mark.parametrize("floor", [SETTINGS.floor, None])
def test_each_key_has_a_look_at_its_schedules_however_short_the_budget(
    tmp_path: Path, floor: float | None
) -> None:
    """Of 42 keys every second size decides the profile; all have a schedule."""

    class Slow(Executor):
        def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
            measured = super().measure(task, config, first, repeats)
            return replace(measured, seconds=measured.seconds + 0.1 * repeats)

    settings = replace(
        SETTINGS,
        operations=(Collective.ALL_GATHER, Collective.ALL_REDUCE, Collective.REDUCE_SCATTER),
        sizes_bytes=tuple(1 << bits for bits in range(10, 24)),
        floor=floor,
        budget_s=60.0,
    )
    spaces = replace(WITH_EXECUTOR, schedules=lambda _: Space("executor", (SCHEDULES,)))
    result = tuned(tmp_path, Slow(), settings, spaces)
    assert len(result.keys) == 42
    assert all(key.decision.schedule is not None for key in result.keys)
    for key in result.keys:  # Nothing was searched; what was tried is the look's.
        builtins, schedules = key.searches
        assert builtins.configs_tried == 0
        assert schedules.configs_tried == len(schedules.ranking) > 0


def test_a_recorded_schedule_of_another_profile_is_seen_and_not_searched(tmp_path: Path) -> None:
    """The record has it under 32 channels at least, and 256 threads win the race."""
    recorded = space_of("record", [Config("phases:0a", "LL", 2, 512, 0, min_nchannels=32)])
    spaces = replace(WITH_EXECUTOR, schedules=lambda _: recorded)
    result = tuned(tmp_path, Executor(), replace(SETTINGS, budget_s=400.0), spaces)
    assert result.profile.min_nchannels == 0
    for key in result.keys:
        assert [found.configs_tried > 0 for found in key.searches] == [True, True]


def test_the_first_look_at_a_record_starts_no_workers_for_other_variables(tmp_path: Path) -> None:
    under: set[Settings] = set()

    class Noting(Executor):
        def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
            under.add(config.settings)
            return super().measure(task, config, first, repeats)

    own = Config("phases:0a", "LL", 2, 512, 0)
    recorded = space_of("record", [own, replace(own, settings=(("NCCL_A", "1"),))])
    spaces = replace(WITH_EXECUTOR, schedules=lambda _: recorded)
    tuned(tmp_path, Noting(), replace(SETTINGS, budget_s=400.0), spaces)
    assert not any("NCCL_A" in dict(settings) for settings in under)


def test_a_schedule_with_wrong_data_does_not_count_towards_the_floor(tmp_path: Path) -> None:
    result = tuned(tmp_path, Executor(wrong=True), spaces=WITH_EXECUTOR)
    assert result.profile == STOCK.profile


def test_a_profile_that_rests_on_a_schedule_without_an_entry_is_given_up(tmp_path: Path) -> None:
    machine = Executor(slows=True)
    result = tuned(tmp_path, machine, spaces=WITH_EXECUTOR)
    first, *_ = result.keys
    assert first.decision.schedule is None
    assert first.decision.rejected
    assert result.profile == STOCK.profile
    assert result.race.by_schedule == frozenset()
    named = {verdict.worst.task for verdict in result.race.forgone if verdict.worst}
    assert named == {first.task}


class Opposed(Machine):
    """256 threads gain 5 % of an all_gather and cost 6 % of an all_reduce."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        measured = super().measure(task, replace(config, nthreads=0), first, repeats)
        factor = 1.0
        if config.nthreads == 256:
            factor = 0.95 if task.operation is Collective.ALL_GATHER else 1.06
        return slowed(measured, factor)


@pytest.mark.parametrize(("weight", "nthreads"), [(1.0, 0), (10.0, 256)])
def test_the_operation_with_more_weight_decides_the_profile(
    tmp_path: Path, weight: float, nthreads: int
) -> None:
    settings = replace(
        SETTINGS,
        operations=(Collective.ALL_REDUCE, Collective.ALL_GATHER),
        floor=None,
        weights=((Collective.ALL_GATHER, weight),),
    )
    result = tuned(tmp_path, Opposed(), settings)
    assert result.profile == ProcessProfile(nthreads=nthreads)


def test_stock_is_timed_at_the_end_however_often_the_floor_timed_it(tmp_path: Path) -> None:
    machine = SmallBuffers()
    tuned(tmp_path, machine)
    assert machine.order[-len(SIZES) :] == [STOCK] * len(SIZES)


class UnlikeStarts(Machine):
    """A start makes each call up to a fifth slower or faster; LL 4 is twice as fast at 1 KB."""

    def __init__(self) -> None:
        super().__init__()
        self.up: ProcessProfile | None = None
        self.starts = 0

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        starts = config.needs_profile and config.profile != self.up
        if starts:
            self.up = config.profile
        self.starts += starts
        rng = random.Random(f"{self.starts} {task.name} {config.describe()}")
        time_us = 20.0 * rng.uniform(0.8, 1.2)
        if (config.protocol, config.nchannels, task.size_bytes) == ("LL", 4, SIZES[0]):
            time_us *= 0.4
        samples = tuple(time_us * (1.0 + 0.001 * (n % 3)) for n in range(first, first + repeats))
        return Measured(samples, 1e-3 * repeats + (self.restart_s if starts else 0.0))

    def restart(self) -> None:
        self.up = None


class Unsteady(UnlikeStarts):
    """Unlike starts, and samples that differ by up to a tenth."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        measured = super().measure(task, config, first, repeats)
        noise = (0.95, 1.05, 1.0, 0.9, 1.1)
        samples = (time_us * noise[n % 5] for n, time_us in enumerate(measured.samples_us, first))
        return replace(measured, samples_us=tuple(samples))


def test_without_a_profile_the_gain_of_an_entry_is_the_proved_gain(tmp_path: Path) -> None:
    """Stock's time is that of the comparison; another start may differ by a fifth."""
    result = tuned(tmp_path, Unsteady(), replace(SETTINGS, budget_s=27.0))
    assert result.profile == STOCK.profile
    first, *rest = result.keys
    assert first.decision.builtin is not None
    gain = first.stock_us / first.decision.builtin.time_us
    assert gain == pytest.approx(first.decision.builtin.ratio)
    assert not any(key.decision.has_entry for key in rest)


def test_a_budget_reserves_the_starts_that_an_unsteady_machine_needs(tmp_path: Path) -> None:
    """It does so even if it then pays for no further profile."""
    machine = Unsteady()
    result = tuned(tmp_path, machine, replace(SETTINGS, budget_s=16.5))
    assert result.race.out_of_budget
    assert [visit.profile for visit in result.race.visits] == [STOCK.profile]
    assert machine.starts == 1 + 1 + 3, "stock NCCL again, and what confirms"
    assert result.starts == 3
    assert winners(result) == [("LL", 4), None, None]
    assert result.spent_s <= 16.5


class UnsteadyExecutor(Unsteady):
    """Samples take a twentieth of a second; a setting gains at all sizes, and a schedule more."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        measured = super().measure(task, config, first, repeats)
        gain = 0.5 if config.is_schedule else 0.7 if config.nchannels == 4 else 1.0
        return replace(slowed(measured, gain), seconds=measured.seconds + 0.05 * repeats)


def test_a_budget_reserves_starts_for_settings_and_schedules(tmp_path: Path) -> None:
    schedule = Family("schedule:a", "LL", (8,), (256,), (1 << 20,))
    spaces = replace(WITH_EXECUTOR, schedules=lambda _: Space("executor", (schedule,)))
    settings = replace(SETTINGS, budget_s=70.0)
    result = tuned(tmp_path, UnsteadyExecutor(), settings, spaces)
    assert result.starts is not None
    assert result.starts >= 3
    assert result.spent_s <= 70.0


def test_the_first_look_has_a_rival_of_another_schedule(tmp_path: Path) -> None:
    """As a search has where further starts decide: schedules may stall."""
    families = tuple(
        Family(f"schedule:{name}", "LL", (4, 8), (256,), (1 << 20,)) for name in ("a", "b")
    )
    spaces = replace(WITH_EXECUTOR, schedules=lambda _: Space("executor", families))
    result = tuned(tmp_path, UnsteadyExecutor(), replace(SETTINGS, budget_s=38.0), spaces)
    for key in result.keys:
        assert key.searches[0].ranking == ()
        compared = {c.config.schedule for c in (*key.decision.proved, *key.decision.rejected)}
        assert {"a", "b"} <= compared


@pytest.mark.long
def test_borders_that_are_located_again_compare_calls_of_one_start(tmp_path: Path) -> None:
    """The calls of a changed border are compared anew, and a resumed run measures nothing."""

    class Noting(UnlikeStarts):
        def __init__(self) -> None:
            super().__init__()
            self.between: dict[Task, dict[int, Counter[Config]]] = {}

        def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
            measured = super().measure(task, config, first, repeats)
            if task.size_bytes not in SIZES:
                of_start = self.between.setdefault(task, {}).setdefault(self.starts, Counter())
                of_start[config] += repeats
            return measured

    machine, again = Noting(), Noting()
    result = tuned(tmp_path, machine)
    located_twice = [by_start for by_start in machine.between.values() if len(by_start) > 1]
    assert located_twice
    for by_start in machine.between.values():
        for compared in by_start.values():
            assert len(compared) in (2, 3), "NCCL's own choice, too, unless it is one of the two"
            assert set(compared.values()) == {5}
    assert tuned(tmp_path, again) == result
    assert again.measured == 0


class StartCounts:
    """Records the number of starts at each report of them."""

    def __init__(self, starts: list[int]) -> None:
        self.starts = starts

    def __call__(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        assert share is None or 0.0 <= share <= 1.0
        if stage == "starts" and not isinstance(total, int):
            self.starts.append(done)


@pytest.mark.long
def test_starts_that_would_be_too_few_to_decide_are_not_begun(tmp_path: Path) -> None:
    numbers = set()
    for budget_s in range(10, 130, 10):
        starts: list[int] = []
        settings = replace(SETTINGS, budget_s=float(budget_s))
        with MeasurementLog(tmp_path / f"log{budget_s}", UnlikeStarts(), "id") as log:
            tune(TuningMeans(settings, SPACES, log, StartCounts(starts)), SHAPE)
        numbers.add(len(starts))
    assert numbers & {1, 2} == set()
    assert numbers > {0}


@pytest.mark.long
def test_where_starts_differ_entries_are_confirmed_over_restarts(tmp_path: Path) -> None:
    machine = UnlikeStarts()
    result = tuned(tmp_path, machine)
    assert winners(result) == [("LL", 4), None, None]
    by_luck = [c for key in result.keys[1:] for c in key.decision.rejected if c.samples > 15]
    assert by_luck, "a single start proved them"
    kept = result.keys[0].decision.builtin
    assert kept is not None
    assert 1.0 < kept.lower_bound < kept.ratio
    assert tuned(tmp_path, UnlikeStarts()) == result
    few = tmp_path / "few"
    few.mkdir()
    assert tuned(few, UnlikeStarts(), replace(SETTINGS, budget_s=12.0)).spent_s < 30.0


class Wavering(Machine):
    """Every third sample takes 8 % longer."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        measured = super().measure(task, config, first, repeats)
        samples = tuple(
            us * (1.0 + 0.04 * (n % 3)) for n, us in enumerate(measured.samples_us, first)
        )
        return replace(measured, samples_us=samples)


def test_one_start_tells_what_it_can_where_no_seconds_are_left_for_others(tmp_path: Path) -> None:
    settings = replace(SETTINGS, floor=None, budget_s=600.0)
    with MeasurementLog(tmp_path / "log", Wavering(), "id") as log:
        run = KeyTuning(TuningMeans(settings, SPACES, log, silent), keys_of(settings, SHAPE))
        reserve = run.reserve()
        assert reserve.pairs == FEW_PAIRS
        assert run.settled(reserve) == reserve
        short = replace(reserve, starts_s=2000.0, after_s=2000.0 + FEW_PAIRS)
        assert run.settled(short) == replace(short, pairs=PAIRS)
