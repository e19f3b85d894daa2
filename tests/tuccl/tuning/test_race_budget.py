"""What a race of process profiles may begin under a budget."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tuccl.tuning.race_budget import RaceBudget
from tuccl.tuning.spending import Spending


class Spent(SimpleNamespace):
    """What a run of 100 s has spent; a start takes 2 s."""

    def __init__(self) -> None:
        super().__init__(spent_s=10.0, left_s=90.0, restart_s=2.0)

    def spend(self, seconds: float) -> None:
        self.spent_s += seconds
        self.left_s -= seconds


def race_budget(spent: Spent, ends_s: float, past_first: list[bool]) -> RaceBudget:
    """20 s of the run's 100 are kept, 5 of them for calls beside computation; half of a longer
    budget would be kept, too."""
    return RaceBudget(
        cast("Spending", spent),
        ends_s=ends_s,
        kept_s=15.0,
        beside_s=5.0,
        proof_s=1.0,
        is_past_first=lambda: bool(past_first),
        shared=0.5,
    )


def test_a_race_pays_for_a_visit_by_the_longest_and_for_starts_by_their_own_seconds() -> None:
    spent, past_first = Spent(), list[bool]()
    budget = race_budget(spent, 90.0, past_first)
    spent.spend(18.0)  # A start and 16 s of the first visit; later ones are expected to take 4.
    assert budget.affords(15, False)
    assert not budget.affords(16, False), "52 s are left, 6 s for the visit and 3 s for each start"
    assert budget.proves(17)
    assert not budget.proves(18)
    past_first.append(True)
    spent.spend(6.0)
    assert budget.proves(15), "46 s are left; the last 6 s count for no visit"
    assert budget.affords(13, False)
    spent.spend(12.0)
    assert not budget.affords(8, False), "34 s are left; the longest visit took 10 s and its start"
    assert budget.affords(7, False)
    assert budget.lacking_s(1) == 4.0, "the first question that was too long was so by 2 s"
    assert budget.lacking_s(3) == 52.0


def test_a_visit_that_a_user_asked_for_and_what_decides_on_it_may_take_what_is_not_kept() -> None:
    """The race ends after 40 s of the run."""
    spent = Spent()
    budget = race_budget(spent, 40.0, [True])
    spent.spend(10.0)
    assert budget.affords(3, False)
    assert not budget.affords(4, False), "20 s are left, 10 for the visit and 3 for each start"
    assert not budget.proves(7)
    assert budget.affords(16, True), "60 s are not kept"
    assert not budget.affords(17, True)
    assert budget.proves(20)
    assert not budget.affords(4, False), "nobody asked for this one"


def test_starts_that_follow_others_may_take_what_is_not_kept_until_the_next_visit() -> None:
    """The race ends after 40 s of the run."""
    spent = Spent()
    budget = race_budget(spent, 40.0, [True])
    spent.spend(10.0)
    assert not budget.proves(7), "20 s are left, 3 s for each start"
    assert budget.proves(6)
    spent.spend(18.0)
    assert budget.proves(14), "42 s are not kept"
    assert not budget.proves(15)
    assert not budget.affords(1, False), "2 s are left of the race"
    assert not budget.proves(1)
