"""Progress of a race of process profiles."""

from __future__ import annotations

from tuccl.search.trials.config import ProcessProfile
from tuccl.search.trials.events import AtMost, Total
from tuccl.tuning.profile_race import RaceProgress


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
