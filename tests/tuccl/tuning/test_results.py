"""Results of the stages, against values worked by hand."""

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.tuning.test_confirmation import UNDECIDED, compared
from tuccl.search.trials.config import ProcessProfile, Task
from tuccl.tuning.decision import Decision
from tuccl.tuning.profile_race import RaceResult
from tuccl.tuning.results import Tuned

KEY = Task(Collective.ALL_REDUCE, 65536, Shape(2, 2, 1))


def under_floor(decision: Decision, stock_us: float) -> list[Task]:
    """Those of one key that the profile needed a schedule for, with a floor of 0.99."""
    race = RaceResult(ProcessProfile(), (), {}, out_of_budget=False, by_schedule=frozenset({KEY}))
    tuned = Tuned(race, {KEY: ()}, {KEY: decision}, {KEY: (0, 0)}, None)
    return tuned.under_floor({KEY: stock_us}, 0.99)


def test_a_key_whose_schedule_won_no_entry_may_keep_the_floor_by_a_setting_of_nccl() -> None:
    setting = compared(1.15, 1.10)
    won = Decision(setting, None, 137.0, ())
    exact = 0.99 * setting.time_us * 1.15 / 1.10
    assert under_floor(won, 1.001 * exact) == []
    assert under_floor(won, 0.999 * exact) == [KEY]
    assert under_floor(Decision(None, compared(1.3, 1.2), 137.0, ()), 1.0) == []
    assert under_floor(UNDECIDED, 1000.0) == [KEY], "NCCL's own choice has no further evidence"
