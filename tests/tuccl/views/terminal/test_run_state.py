"""The state behind the live view, from reports and events."""

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials import events
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.views.terminal.run_state import RunState

KEY = Task(Collective.ALL_REDUCE, 1 << 20, Shape(4, 1, 4))
FURTHER = Task(Collective.ALL_GATHER, 1 << 20, Shape(4, 1, 4))
RING = Config("ring", "LL128", 16)
SCHEDULE = Config("schedule:5a5a", "LL", 8)


def test_stages_take_their_time_and_end_what_was_measured_in_them() -> None:
    state = RunState(0.0)
    state.report("stock NCCL", 0, 2, None, 1.0)
    state.note(events.MeasuringBegins(KEY, STOCK, 9))
    state.note(events.RungBegins("bracket 1 of 4", 1, 3, 27, 1))
    state.report("stock NCCL", 2, 2, None, 4.0)
    assert state.took_s == {"stock NCCL": 3.0}
    assert state.rung is not None
    state.report("race", 0, None, None, 5.0)
    after: list[object] = [state.rung, state.measuring]
    assert after == [None, None]
    state.report("borders", 0, 1, None, 7.0)
    state.report("borders", 1, 1, None, 8.0)
    state.report("borders", 1, 1, None, 9.0)
    state.report("borders", 0, 1, None, 10.0)
    state.report("borders", 1, 1, None, 12.0)
    assert state.took_s == {"stock NCCL": 3.0, "race": 2.0, "borders": 3.0}
    with pytest.raises(ValueError, match="2 done of 1"):
        state.report("borders", 2, 1, None, 13.0)


def test_gains_are_those_of_the_best_so_far_until_a_key_is_decided() -> None:
    state = RunState(0.0)
    assert state.gains() == {}
    state.note(events.RunBegins("cluster", "nccl", (KEY, FURTHER), None))
    between = Task(KEY.operation, 3 << 19, KEY.shape)
    state.note(events.SamplesTaken(between, STOCK, (20.0,), 0.5))
    state.note(events.SamplesTaken(KEY, STOCK, (20.0, 20.0), 1.0))
    state.note(events.SamplesTaken(KEY, RING, (10.0,), 2.0))
    state.note(events.SamplesTaken(FURTHER, RING, (5.0,), 3.0))
    assert state.gains() == {KEY: 2.0}
    state.note(events.SamplesTaken(FURTHER, STOCK, (5.0,), 3.5))
    assert state.gains() == {KEY: 2.0, FURTHER: 1.0}
    state.note(events.KeyDecided(KEY, RING, 12.5, None))
    assert state.gains() == {KEY: 1.6, FURTHER: 1.0}
    state.note(events.KeyDecided(KEY, RING, 12.5, 1.5))
    assert state.gains() == {KEY: 1.5, FURTHER: 1.0}
    state.note(events.ConfigurationFailed(FURTHER, RING, 4.0))
    assert state.gains() == {KEY: 1.5, FURTHER: 1.0}
    assert state.spent_s == 4.0


def test_a_schedule_has_its_name_and_workers_their_profile() -> None:
    state = RunState(0.0)
    assert state.describe(SCHEDULE) == "schedule LL ch8"
    state.note(events.SchedulesMade({"5a5a": "all_reduce_ring_8x"}))
    assert state.describe(SCHEDULE) == "all_reduce_ring_8x LL ch8"
    assert state.describe(RING) == "ring LL128 ch16"
    assert state.describe(STOCK) == "stock NCCL"
    assert state.describe(Config("default", nthreads=256)) == "NCCL's own choice th256"
    for count in (1, 2):
        state.note(events.WorkersRestarted(ProcessProfile(nthreads=256)))
        assert (state.restarts, state.profile) == (count, ProcessProfile(nthreads=256))


def test_schedules_count_only_where_a_job_runs_them() -> None:
    """The schedule takes a quarter of stock NCCL's time, the ring half of it."""
    for runs_schedules, gain in ((True, 4.0), (False, 2.0)):
        state = RunState(0.0)
        state.note(events.RunBegins("cluster", "simulated", (KEY,), None, runs_schedules))
        for config, time_us in ((STOCK, 20.0), (RING, 10.0), (SCHEDULE, 5.0)):
            state.note(events.SamplesTaken(KEY, config, (time_us,), 1.0))
        assert state.gains() == {KEY: gain}
        state.note(events.KeyDecided(KEY, SCHEDULE, 5.0, 4.0))
        assert state.gains() == {KEY: gain}
