"""How far a race of process profiles is."""

from __future__ import annotations

from tuccl.trials.config import ProcessProfile
from tuccl.tuning.race_progress import RaceProgress
from tuccl.words.progress import AtMost, Total


class Told:
    """Each report."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int, Total]] = []

    def __call__(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        assert share is None
        self.reports.append((stage, done, total))


def test_a_race_does_not_know_how_many_profiles_it_looks_at_until_it_is_over() -> None:
    told = Told()
    race = RaceProgress(told, most=9)
    for _ in range(3):
        race.visit(ProcessProfile())
    race.compare(0)
    race.compare(2)
    race.visit(ProcessProfile())
    race.end()
    visits, in_turn = "process profiles", "profiles against stock"
    assert told.reports == [
        (visits, 0, AtMost(9)), (visits, 1, AtMost(9)), (visits, 2, AtMost(9)), (visits, 3, 3),
        (in_turn, 0, AtMost(7)), (in_turn, 2, AtMost(7)),
        (visits, 3, AtMost(9)), (visits, 4, 4),
    ]  # fmt: skip
