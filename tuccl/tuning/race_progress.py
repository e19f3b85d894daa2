"""Progress of a race of process profiles, whose number of visits is known only at its end."""

from __future__ import annotations

from tuccl.search.trials.config import ProcessProfile
from tuccl.search.trials.events import AtMost, Progress
from tuccl.tuning.profile_race import MOST_IN_TURN

_VISITS = "process profiles"
_IN_TURN = "profiles against stock"


class RaceProgress:
    """Reports visits, and profiles that were started in turn with stock NCCL."""

    def __init__(self, progress: Progress, most: int) -> None:
        """Start with no visit.

        Args:
            progress: Receives the progress.
            most: Number of profiles in the space.
        """
        self._visits = 0
        """Visits begun so far."""
        self._progress = progress
        self._most = most
        self._in_turn: int | None = None
        """Profiles started in turn so far; None: the latest step was a visit."""

    @property
    def is_past_first(self) -> bool:
        """Whether the first visit is over."""
        return self._visits > 1 or self._in_turn is not None

    def visit(self, _profile: ProcessProfile) -> None:
        """Report that the visit of a profile begins."""
        self._progress(_VISITS, self._visits, AtMost(self._most))
        self._visits += 1
        self._in_turn = None

    def compare(self, compared: int) -> None:
        """Report that `compared` profiles were started in turn so far."""
        if self._in_turn is None:
            self._progress(_VISITS, self._visits, self._visits)
        self._in_turn = compared
        self._progress(_IN_TURN, compared, AtMost(MOST_IN_TURN))

    def end(self) -> None:
        """Report that the race is over."""
        if self._in_turn is None:
            self._progress(_VISITS, self._visits, self._visits)
        else:
            self._progress(_IN_TURN, self._in_turn, self._in_turn)
