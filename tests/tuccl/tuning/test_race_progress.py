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


def test_a_race_pays_for_a_visit_by_the_longest_and_for_starts_by_their_own_seconds() -> None:
    """A start takes 2 s; 20 s of 100 are kept, 5 of them
    for calls beside computation, and the race ends at 90 s of the run."""
    spending = SimpleNamespace(spent_s=10.0, left_s=90.0, restart_s=2.0)
    past_first = False

    def spend(seconds: float) -> None:
        spending.spent_s += seconds
        spending.left_s -= seconds

    budget = RaceBudget(
        cast("Spending", spending),
        ends_s=90.0,
        kept_s=15.0,
        beside_s=5.0,
        proof_s=1.0,
        is_past_first=lambda: past_first,
    )
    spend(18.0)  # A start and 16 s of the first visit, of which later ones are expected to take 4.
    assert budget.affords(15)
    assert not budget.affords(16), "52 s are left, 6 s for the visit and 3 s for each start"
    assert budget.proves(17)
    assert not budget.proves(18)
    past_first = True
    spend(6.0)
    assert budget.proves(15), "46 s are left, and what was spent is no visit"
    assert budget.affords(13)
    spend(12.0)
    assert not budget.affords(8), "34 s are left, and the longest visit took 10 s beyond its start"
    assert budget.affords(7)
    assert budget.lacking_s(1) == 2.0, "the first question that was too long was so by 2 s"
    assert budget.lacking_s(3) == 26.0
