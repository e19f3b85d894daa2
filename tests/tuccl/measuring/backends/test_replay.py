from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.measuring.records.small_record import FAST, HUNG, SIZES, SLOW, small_record
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.records.recorded_run import RecordedRun, RecordedSchedule, RecordedSearch
from tuccl.search.trials.backend import JobCall, JobTable, JobTimes, Measured
from tuccl.search.trials.config import STOCK, Config
from tuccl.search.trials.space import Knob, Space
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Answer, Recorded, RecordedJob

RECORD = small_record()
TASK = RECORD.tasks[0]
_OWN = [replace(r, config=FAST.profile.default) for r in RECORD.rows if r.config == STOCK]
OF_PROFILE = replace(RECORD, rows=(*RECORD.rows, *_OWN))
"""With NCCL's own choice under the profile, too."""


def test_samples_come_in_the_order_of_the_record() -> None:
    backend = ReplayBackend(RECORD)
    assert backend.measure(TASK, FAST, 0, 3).samples_us == (8.0, 8.5, 8.25)
    assert backend.measure(TASK, FAST, 1, 2).samples_us == (8.5, 8.25)


def test_further_samples_are_the_same_ones_again_each_as_often() -> None:
    samples = ReplayBackend(RECORD, seed=3).measure(TASK, FAST, 0, 30).samples_us
    for turn in range(10):
        assert sorted(samples[3 * turn : 3 * turn + 3]) == [8.0, 8.25, 8.5]
    assert len({samples[3 * turn : 3 * turn + 3] for turn in range(10)}) > 1
    one_by_one = ReplayBackend(RECORD, seed=3)
    assert samples == tuple(
        one_by_one.measure(TASK, FAST, number, 1).samples_us[0] for number in range(30)
    )
    assert samples != ReplayBackend(RECORD, seed=4).measure(TASK, FAST, 0, 30).samples_us


@pytest.mark.parametrize(("place", "calls"), [(0, 20), (1, 5), (2, 2)])
def test_a_sample_costs_its_launch(place: int, calls: int) -> None:
    backend = ReplayBackend(RECORD, restart_s=0.0)
    task = RECORD.tasks[place]
    assert task.size_bytes == SIZES[place]
    assert backend.measure(task, FAST, 0, 2).seconds == pytest.approx(16.5e-6 * calls)


def test_the_record_says_how_many_calls_a_launch_had() -> None:
    record = replace(RECORD, timing=Timing((), 7))
    backend = ReplayBackend(record, restart_s=0.0)
    assert backend.measure(TASK, SLOW, 0, 1).seconds == pytest.approx(20e-6 * 7)


def test_what_is_not_in_the_record_fails_and_what_failed_fails_again_at_its_price() -> None:
    backend = ReplayBackend(RECORD, restart_s=3.0)
    with pytest.raises(ConfigurationFailedError, match=r"^not in the record$") as unknown:
        backend.measure(TASK, Config("tree", "LL"), 0, 1)
    assert unknown.value.seconds == 3.0
    for price in (7.5, 7.5):
        with pytest.raises(ConfigurationFailedError, match=r"^hung for 5 s$") as hung:
            backend.measure(TASK, HUNG, 0, 1)
        assert hung.value.seconds == pytest.approx(price)


def test_samples_that_were_taken_before_a_failure_are_given_out() -> None:
    failed = tuple(
        replace(row, failed="crashed", unasked_s=row.seconds + 2.0) if row.config == FAST else row
        for row in RECORD.rows
    )
    backend = ReplayBackend(replace(RECORD, rows=failed), restart_s=0.0)
    assert backend.measure(TASK, FAST, 0, 3).samples_us == (8.0, 8.5, 8.25)
    with pytest.raises(ConfigurationFailedError, match="crashed") as caught:
        backend.measure(TASK, FAST, 3, 1)
    assert caught.value.seconds == pytest.approx(2.0)


def test_it_says_what_it_replays() -> None:
    assert ReplayBackend(RECORD).provenance == replace(RECORD.provenance, replayed=True)


def test_the_space_of_a_task_is_exactly_what_was_tried() -> None:
    schedule = replace(RECORD.rows[0], config=Config("schedule:0123", "LL", 1))
    backend = ReplayBackend(replace(RECORD, rows=(*OF_PROFILE.rows, schedule)))
    default = FAST.profile.default
    assert sorted(backend.space_of(TASK)) == sorted([STOCK, default, FAST, SLOW, HUNG])
    assert Config("ring", "LL", 8, 256, 4 << 20, 32) not in backend.space_of(TASK)


def test_a_profile_that_only_some_keys_visited_is_none_of_the_space() -> None:
    """No other key could be decided under it."""
    last = OF_PROFILE.tasks[-1], FAST.profile.default
    visited = [row for row in OF_PROFILE.rows if (row.task, row.config) != last]
    backend = ReplayBackend(replace(RECORD, rows=tuple(visited)))
    assert sorted(backend.space_of(TASK)) == sorted([STOCK, HUNG])


def test_variables_are_turned_as_far_as_they_were_tried() -> None:
    one, two = ((("NCCL_A", value),) for value in "12")
    under = [
        replace(row, config=replace(row.config, settings=one))
        for row in OF_PROFILE.rows
        if row.config.is_default
    ]
    turned, untried = Knob(((), one, two), (two,)), Knob(((), (("NCCL_B", "1"),)))
    search = RecordedSearch({}, (Space("nccl", (), knobs=(turned, untried)),), ((TASK, 0),), ())
    tried = replace(RECORD, rows=(*OF_PROFILE.rows, *under))
    backend = ReplayBackend(replace(tried, of_run=RecordedRun(search=search)))
    assert backend.space_of(TASK).knobs == (Knob(((), one)),)
    assert ReplayBackend(tried).space_of(TASK).knobs == ()


def test_what_failed_when_it_was_recorded_is_not_accepted() -> None:
    backend = ReplayBackend(RECORD)
    backend.check(TASK, FAST)
    with pytest.raises(ConfigurationFailedError, match="hung for 5 s"):
        backend.check(TASK, HUNG)


def asked(samples: tuple[float, ...], *requests: Answer, **failure: Any) -> ReplayBackend:
    """A replay of one configuration with the requests that it had."""
    row = Recorded(TASK, FAST, samples, requests, **failure)
    return ReplayBackend(replace(RECORD, rows=(row,)), restart_s=3.0)


def test_a_recorded_request_is_answered_as_it_was() -> None:
    requests = Answer(1, 1, 4.5, 2.5), Answer(9, 3, 0.125, 2.25)
    backend = asked((8.0, 8.5, 8.25), *requests)
    assert backend.measure(TASK, FAST, 0, 1) == Measured((8.0,), 4.5)
    assert backend.restart_s == 2.5
    # Nine were asked for, and the backend stopped at three.
    assert backend.measure(TASK, FAST, 1, 8) == Measured((8.5, 8.25), 0.125)
    assert backend.restart_s == 2.25


def test_another_request_than_the_recorded_costs_its_launches() -> None:
    backend = asked((8.0, 8.5, 8.25), Answer(1, 1, 4.5, 2.5), Answer(3, 3, 0.125, 2.25))
    assert backend.measure(TASK, FAST, 0, 3).seconds == pytest.approx(3.0 + 24.75e-6 * 20)


@pytest.mark.parametrize("check", [False, True])
def test_a_failure_comes_where_it_came_and_costs_what_it_cost(check: bool) -> None:
    failure = {"failed": "crashed", "failed_check": check, "failed_s": 0.0}
    backend = asked((8.0,), Answer(1, 1, 4.5, 2.5), **failure)
    assert backend.measure(TASK, FAST, 0, 1).seconds == 4.5
    with pytest.raises(ConfigurationFailedError, match="crashed") as caught:
        backend.measure(TASK, FAST, 1, 2)
    assert caught.value.seconds == 0.0
    with pytest.raises(ConfigurationFailedError) if check else nullcontext():
        backend.check(TASK, FAST)


def test_schedules_are_those_whose_steps_the_record_has() -> None:
    known, unknown = (Config(f"schedule:{digit * 16}", "LL", 1) for digit in "0a")
    rows = tuple(replace(RECORD.rows[0], config=config) for config in (known, unknown))
    schedule = RecordedSchedule(
        "0" * 16, "ring", Collective.ALL_REDUCE, "", b"program", "whole", "", "expert", False, ()
    )
    record = replace(RECORD, rows=(*RECORD.rows, *rows), of_run=RecordedRun(schedules=(schedule,)))
    assert list(ReplayBackend(record).schedules_of(TASK)) == [known]
    assert list(ReplayBackend(replace(record, of_run=RecordedRun())).schedules_of(TASK)) == []


def test_a_job_is_answered_by_that_of_the_very_same_table() -> None:
    assert not ReplayBackend(RECORD).runs_jobs
    times_us = tuple((JobCall(task), 8.0) for task in RECORD.tasks)
    jobs = RecordedJob("", 0, times_us, 3.1), RecordedJob("00aa", 0, (), 1.0, "it hung")
    backend = ReplayBackend(replace(RECORD, of_run=replace(RECORD.of_run, jobs=jobs)))
    assert backend.runs_jobs
    assert backend.time_job({JobCall(TASK): 6}, None, 0) == JobTimes(((JobCall(TASK), 8.0),), 3.1)
    beside = {JobCall(TASK): 6, JobCall(TASK, 16.0): 2}
    assert backend.time_job(beside, None, 0).times_us == ((JobCall(TASK), 8.0),)
    own = JobTable("00aa", b"", STOCK.profile, {}, loads_executor=False)
    with pytest.raises(ConfigurationFailedError, match="it hung") as failed:
        backend.time_job({JobCall(TASK): 6}, own, 0)
    assert failed.value.seconds == 1.0
    unknown = JobCall(replace(TASK, size_bytes=2048))
    for number, call in ((1, JobCall(TASK)), (0, unknown)):
        with pytest.raises(ConfigurationFailedError, match="not in the record"):
            backend.time_job({call: 6}, None, number)
