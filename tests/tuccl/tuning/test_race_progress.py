"""Progress and budget of a race of process profiles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tuccl.search.trials.config import ProcessProfile
from tuccl.search.trials.events import AtMost, Total
from tuccl.tuning.profile_race import RaceProgress
from tuccl.tuning.spending import Spending
from tuccl.tuning.stages import RaceBudget


class Reports:
    """Records the reports of progress."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int, Total]] = []

    def __call__(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        assert share is None
        self.reports.append((stage, done, total))


def test_the_number_of_visits_is_known_only_at_the_end() -> None:
    progress = Reports()
    race = RaceProgress(progress, most=9)
    for _ in range(3):
        race.visit(ProcessProfile())
    race.compare(0)
    race.compare(2)
    race.visit(ProcessProfile())
    race.end()
    visits, in_turn = "process profiles", "profiles against stock"
    assert progress.reports == [
        (visits, 0, AtMost(9)), (visits, 1, AtMost(9)), (visits, 2, AtMost(9)), (visits, 3, 3),
        (in_turn, 0, AtMost(7)), (in_turn, 2, AtMost(7)),
        (visits, 3, AtMost(9)), (visits, 4, 4),
    ]  # fmt: skip


class Spent(SimpleNamespace):
    """What a run of 100 s has spent; a start takes 2 s."""

    def __init__(self) -> None:
        super().__init__(spent_s=10.0, left_s=90.0, restart_s=2.0)

    def spend(self, seconds: float) -> None:
        self.spent_s += seconds
        self.left_s -= seconds


def race_budget(spent: Spent, ends_s: float, past_first: list[bool]) -> RaceBudget:
    """20 s of the run's 100 are kept, 5 of them for calls beside computation."""
    return RaceBudget(
        cast("Spending", spent),
        ends_s=ends_s,
        kept_s=15.0,
        beside_s=5.0,
        proof_s=1.0,
        is_past_first=lambda: bool(past_first),
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
    assert budget.proves(15), "46 s are left, and what was spent is no visit"
    assert budget.affords(13, False)
    spent.spend(12.0)
    assert not budget.affords(8, False), "34 s are left; the longest visit took 10 s and its start"
    assert budget.affords(7, False)
    assert budget.lacking_s(1) == 2.0, "the first question that was too long was so by 2 s"
    assert budget.lacking_s(3) == 26.0


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
