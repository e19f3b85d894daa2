import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.tuning.guaranteed_minimum import Floor, KeyRatio, Verdict
from tuccl.tuning.profile_verdicts import Verdicts
from tuccl.tuning.profile_visits import Visit

TASK = Task(Collective.ALL_REDUCE, 1 << 10, Shape(4, 1, 4))
PROFILES = tuple(ProcessProfile(nthreads=count) for count in (64, 96, 128, 160, 192))


def refuse_start(task: Task, config: Config, count: int) -> tuple[float, ...]:
    pytest.fail(f"{config.describe()} of {task.name} was started {count} times")


def visit(profile: ProcessProfile, gain: float, ratio: float) -> Visit:
    """A visit that showed a ratio within 1.5 %."""
    key = KeyRatio(TASK, ratio, ratio / 1.015, ratio * 1.015)
    return Visit(profile, {TASK: (profile.default, 10.0)}, gain, 0.0, 1.0 + gain, (key,))


def verdicts(*visits: Visit) -> Verdicts:
    return Verdicts(Floor(0.99, refuse_start), {visit.profile: visit for visit in visits})


def test_finalists_are_the_best_and_the_two_safest_that_gain_nearly_as_much() -> None:
    best = visit(PROFILES[0], 0.080, 0.991)
    rest = [
        visit(PROFILES[1], 0.075, 0.993),
        visit(PROFILES[2], 0.074, 0.996),
        visit(PROFILES[3], 0.073, 0.995),
        visit(PROFILES[4], 0.069, 1.0),
    ]
    found = verdicts(best, *rest).finalists(best)
    assert [finalist.profile for finalist in found] == [PROFILES[0], PROFILES[2], PROFILES[3]]


def test_a_profile_that_was_started_in_turn_or_is_under_the_floor_is_no_finalist() -> None:
    best, compared = visit(PROFILES[0], 0.080, 0.991), visit(PROFILES[1], 0.079, 0.995)
    under = visit(PROFILES[2], 0.079, 0.97)
    found = verdicts(best, compared, under)
    found.compared[compared.profile] = Verdict(compared.profile, None, True, 3)
    assert found.finalists(best) == [best]


def test_a_profile_that_gains_less_than_one_known_to_hold_is_no_finalist() -> None:
    best, less = visit(PROFILES[0], 0.080, 0.991), visit(PROFILES[1], 0.073, 0.996)
    assert verdicts(best, less).finalists(best) == [best, less]
    assert verdicts(best, less, visit(STOCK.profile, 0.074, 1.0)).finalists(best) == [best]
    assert verdicts(best, less, visit(PROFILES[2], 0.074, 1.2)).finalists(best) == [best]


def test_the_best_that_is_clear_of_the_floor_wins_or_else_the_safest() -> None:
    ratios = {PROFILES[0]: 0.992, PROFILES[1]: 0.996, PROFILES[2]: 0.995, PROFILES[3]: 0.994}
    gains = dict(zip(ratios, (0.080, 0.078, 0.074, 0.075), strict=True))
    judged = verdicts(*(visit(profile, gains[profile], ratio) for profile, ratio in ratios.items()))

    def judge(profile: ProcessProfile, *, holds: bool, proved: bool) -> None:
        key = KeyRatio(TASK, ratios[profile], 0.98, 1.01)
        judged.compared[profile] = Verdict(profile, key, holds, 5, proved)

    incumbent, *_ = judged.visited.values()

    def best() -> ProcessProfile | None:
        found = judged.best(incumbent)
        return None if found is None else found.profile

    assert best() is None
    for profile in PROFILES[:2]:
        judge(profile, holds=True, proved=False)
    assert best() == PROFILES[1], "the safest"
    for profile in PROFILES[2:4]:
        judge(profile, holds=True, proved=True)
    assert best() == PROFILES[3], "the best that is clear"
    judge(PROFILES[3], holds=False, proved=False)
    assert best() == PROFILES[2]
    judged.compared.clear()
    incumbent = judged.visited[PROFILES[1]]
    for profile in PROFILES[:2]:
        judge(profile, holds=True, proved=True)
    assert best() == PROFILES[1], "a larger gain than the incumbent's is within the noise"


def test_where_one_start_shows_enough_no_further_ones_are_needed() -> None:
    empty = verdicts()
    assert empty.needs_no_starts(visit(PROFILES[0], 0.08, 1.01))
    assert not empty.needs_no_starts(visit(PROFILES[0], 0.08, 1.0))
    assert empty.needs_no_starts(visit(STOCK.profile, 0.0, 0.9))
    assert Verdicts(None, {}).needs_no_starts(visit(PROFILES[0], 0.08, 0.9))


def test_a_visit_leaves_the_starts_of_a_verdict_unless_one_showed_enough() -> None:
    stock, doubtful = visit(STOCK.profile, 0.0, 1.0), visit(PROFILES[0], 0.08, 1.0)
    assert verdicts(stock).starts_of_verdict() == 2 * 3, "three rounds may decide"
    assert verdicts(stock, doubtful).starts_of_verdict() == 2 * 5, "five rounds always decide"
    assert verdicts(stock, doubtful, visit(PROFILES[1], 0.08, 1.01)).starts_of_verdict() == 0
    assert verdicts(visit(STOCK.profile, 0.2, 1.2)).starts_of_verdict() == 0
    assert Verdicts(None, {STOCK.profile: stock}).starts_of_verdict() == 0
