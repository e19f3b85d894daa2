"""The part of a run's budget that a race of process profiles may spend."""

from __future__ import annotations

from collections.abc import Callable

from tuccl.tuning.spending import Spending


class RaceBudget:
    """Says what a race may begin, from what its visits and starts took so far."""

    def __init__(
        self,
        spending: Spending,
        *,
        ends_s: float,
        kept_s: float,
        beside_s: float,
        proof_s: float,
        is_past_first: Callable[[], bool],
        shared: float = 0.0,
    ) -> None:
        """Begin a race.

        Args:
            spending: Machine time of the run.
            ends_s: Seconds of the run after which no visit and no decision begins, except on what a
                user asked for.
            kept_s: Seconds of the budget that are left to what follows.
            beside_s: Seconds in which a profile is timed beside computation, which visits leave.
            proof_s: Seconds of a start of a proof or a verdict, beyond the start itself.
            is_past_first: Whether the first visit is over.
            shared: Share of a longer budget that would not go to later visits.
        """
        self._spending, self._ends_s, self._kept_s = spending, ends_s, kept_s + beside_s
        self._proof_s, self._is_past_first = proof_s, is_past_first
        self._began_s, self._visit_s, self._short_s = spending.spent_s, 0.0, 0.0
        self._was_asked, self._decides, self._shared = False, False, shared

    def affords(self, starts: int, is_asked: bool) -> bool:
        """Whether the budget pays for a visit, and for starts of a verdict after it.

        What was spent since the last question was a visit. One that a user asked for may take all
        that is not kept, and so may the starts that decide on it.
        """
        self._was_asked |= is_asked
        self._decides = False
        took_s = self._spending.spent_s - self._began_s - self._spending.restart_s
        # The first visit times all calls, later ones a few calls of each key.
        took_s /= 1.0 if self._is_past_first() else 4.0
        self._visit_s = max(self._visit_s, took_s)
        return self._pays(1 + starts, self._visit_s + starts * self._proof_s, is_asked)

    def proves(self, starts: int) -> bool:
        """Whether the budget pays for these starts; what was spent until now was no visit.

        Once some were begun, those that follow may take all that is not kept: a decision that ends
        half-way wastes what it took.
        """
        is_begun = self._was_asked or self._decides
        pays = self._pays(starts, starts * self._proof_s, is_begun)
        self._decides |= pays and starts > 0
        return pays

    def lacking_s(self, visits: int) -> float:
        """Return the seconds of a longer budget that would pay for visits that this did not."""
        short_s = self._short_s + (visits - 1) * (self._spending.restart_s + self._visit_s)
        return short_s / (1.0 - self._shared)

    def _pays(self, starts: int, samples_s: float, is_asked: bool) -> bool:
        spent_s = self._began_s = self._spending.spent_s
        left_s = self._spending.left_s - self._kept_s
        if not is_asked:
            left_s = min(left_s, self._ends_s - spent_s)
        short_s = starts * self._spending.restart_s + samples_s - left_s
        # What ends the visits comes first: later questions are of comparisons of several profiles.
        self._short_s = self._short_s or max(0.0, short_s)
        return short_s <= 0.0
