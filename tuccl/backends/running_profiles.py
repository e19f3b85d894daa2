"""Which process profiles have workers that are up: stock NCCL's, and those of the two last used.

A configuration under the table's profile and stock NCCL are measured in turn, and one process
cannot be both; and while profiles race, the best one so far stays up beside the one that is tried.
"""

from __future__ import annotations

from tuccl.search.config import ProcessProfile

STOCK_PROFILE = ProcessProfile()
BESIDE_STOCK = 2


class RunningProfiles:
    """Profiles in the order of their last use."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._stock = False
        self._others: list[ProcessProfile] = []

    def use(self, profile: ProcessProfile) -> bool:
        """Turn to workers with a profile; whether they have to be started for it."""
        if profile == STOCK_PROFILE:
            starts, self._stock = not self._stock, True
            return starts
        starts = profile not in self._others
        kept = [other for other in self._others if other != profile]
        self._others = [*kept, profile][-BESIDE_STOCK:]
        return starts

    def displaced(self, profile: ProcessProfile) -> ProcessProfile | None:
        """Whose workers have to end before those of another profile start."""
        if profile == STOCK_PROFILE or profile in self._others:
            return None
        return self._others[0] if len(self._others) == BESIDE_STOCK else None
