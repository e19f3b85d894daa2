"""Which process profile has workers that are up: one at a time.

On four H200 (NCCL 2.28.9) a second group of workers on the same GPUs, all others idle, took 3 %
more for messages of a few KB than the first one, whatever its profile: held against each other they
would have told nothing.
"""

from __future__ import annotations

from tuccl.search.trials.config import Config, ProcessProfile

STOCK_PROFILE = ProcessProfile()


class RunningProfiles:
    """The profile whose workers are up."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._profile: ProcessProfile | None = None

    def use(self, profile: ProcessProfile) -> bool:
        """Turn to workers with a profile; whether they have to be started for it."""
        starts = profile != self._profile
        self._profile = profile
        return starts

    def run(self, config: Config) -> bool:
        """Turn to workers that can run a configuration; return whether they have to be started."""
        return config.needs_profile and self.use(config.profile)
