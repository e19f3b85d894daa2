"""How far a race of process profiles is: how many it looks at is known when it is over."""

from __future__ import annotations

from tuccl.trials.config import ProcessProfile
from tuccl.tuning.profile_race import MOST_IN_TURN
from tuccl.words.progress import AtMost, Progress

_VISITS = "process profiles"
_IN_TURN = "profiles against stock"


class RaceProgress:
    """Tells of visits, and of profiles that were started in turn with stock NCCL."""

    def __init__(self, progress: Progress, most: int) -> None:
        """Nothing is visited yet.

        Args:
            progress: Told.
            most: How many profiles there are.
        """
        self._visits = 0
        """Begun so far."""
        self._progress = progress
        self._most = most
        self._in_turn: int | None = None
        """How many were started in turn; None: a visit was the last thing."""

    @property
    def is_past_first(self) -> bool:
        """Whether the first visit is over."""
        return self._visits > 1 or self._in_turn is not None

    def visit(self, _profile: ProcessProfile) -> None:
        """A profile is looked at next."""
        self._progress(_VISITS, self._visits, AtMost(self._most))
        self._visits += 1
        self._in_turn = None

    def compare(self, compared: int) -> None:
        """So many profiles were started in turn so far."""
        if self._in_turn is None:
            self._progress(_VISITS, self._visits, self._visits)
        self._in_turn = compared
        self._progress(_IN_TURN, compared, AtMost(MOST_IN_TURN))

    def end(self) -> None:
        """The race is over."""
        if self._in_turn is None:
            self._progress(_VISITS, self._visits, self._visits)
        else:
            self._progress(_IN_TURN, self._in_turn, self._in_turn)
