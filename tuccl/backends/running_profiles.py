"""Which process profiles have workers that are up: two at a time, the least recently used one goes.

Two, so that a configuration under the table's profile and stock NCCL are measured in turn without a
restart between them: one process cannot be both.
"""

from __future__ import annotations

from tuccl.search.config import ProcessProfile

AT_ONCE = 2


class RunningProfiles:
    """Profiles in the order of their last use."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._profiles: list[ProcessProfile] = []

    def use(self, profile: ProcessProfile) -> bool:
        """Turn to workers with a profile; whether they have to be started for it."""
        starts = profile not in self._profiles
        kept = [other for other in self._profiles if other != profile]
        self._profiles = [*kept, profile][-AT_ONCE:]
        return starts

    def displaced(self, profile: ProcessProfile) -> ProcessProfile | None:
        """Whose workers have to end before those of another profile start."""
        full = len(self._profiles) == AT_ONCE and profile not in self._profiles
        return self._profiles[0] if full else None
