"""What a process profile costs calls beside their computation, by jobs of hand-worked times."""

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.engines.job import LAUNCHES, WARM_UP_LAUNCHES
from tuccl.search.trials.backend import JobCall, JobTable, JobTimes
from tuccl.search.trials.config import ProcessProfile, Task
from tuccl.tuning.beside_computation import ProfileCost

KEY = Task(Collective.ALL_REDUCE, 64 << 20, Shape(4, 1, 4))
PROFILE = ProcessProfile(min_nchannels=32)
STOCK_US = 300.0


class Jobs:
    """Jobs whose calls take times by their profile and number; each takes ten seconds."""

    def __init__(self, own_us: tuple[float, ...], budget_s: float) -> None:
        self.own_us, self.left_s = own_us, budget_s
        self.ran: list[tuple[bool, int]] = []

    def time_job(self, launches: dict[JobCall, int], table: JobTable, number: int) -> JobTimes:
        is_own = table.profile == PROFILE
        self.ran.append((is_own, number))
        self.left_s -= 10.0
        time_us = self.own_us[number] if is_own else 2.0 * STOCK_US
        if not time_us:
            raise ConfigurationFailedError("out of memory")
        return JobTimes(tuple((call, time_us) for call in launches), 10.0)

    def cost(self) -> ProfileCost:
        return ProfileCost.of(
            {KEY: STOCK_US},
            {KEY: 0.001},
            9.0,
            self.time_job,  # type: ignore[arg-type]
            lambda seconds: self.left_s >= seconds,
        )


def test_two_rounds_of_two_jobs_are_what_a_profile_takes() -> None:
    """A call beside computation takes 2 ms, so 24 launches fit into 50 ms."""
    launches = min(LAUNCHES, 24)
    cost = Jobs((), 0.0).cost()
    assert cost.launches == {JobCall(KEY, 600.0): launches}
    job_s = 9.0 + 0.002 * (launches + WARM_UP_LAUNCHES)
    assert cost.seconds == pytest.approx(2 * 2 * job_s)
    assert ProfileCost.of({}, {}, 9.0, cost.time_job, lambda _: False).seconds == 0.0


@pytest.mark.parametrize(
    ("own_us", "ratio", "rounds"),
    [
        ((600.0, 600.0), None, 2),
        ((640.0, 641.0), 600.0 / 640.5, 2),
        # Slower in the mean, but two rounds do not prove it, nor do four.
        ((600.0, 640.0, 600.0, 640.0), 600.0 / (600.0 * 640.0) ** 0.5, 4),
        ((0.0,), None, 1),
    ],
)
def test_rounds_go_on_while_they_look_slower_and_do_not_prove_it(
    own_us: tuple[float, ...], ratio: float | None, rounds: int
) -> None:
    jobs = Jobs(own_us, 1000.0)
    late = jobs.cost().lateness(PROFILE)
    assert (late is None) == (ratio is None)
    if late is not None:
        assert late.ratio == pytest.approx(ratio, rel=1e-3)
    assert {number for _, number in jobs.ran} == set(range(rounds))


def test_a_budget_that_is_used_up_ends_the_rounds_and_what_looks_slower_counts_as_late() -> None:
    jobs = Jobs((600.0, 640.0, 600.0, 640.0), 45.0)
    cost = jobs.cost()
    assert cost.can_be_timed()
    late = cost.lateness(PROFILE)
    assert late is not None
    assert late.low < 1.0 < late.high
    assert len(jobs.ran) == 4
    assert not cost.can_be_timed()
