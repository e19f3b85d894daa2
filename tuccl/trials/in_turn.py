"""`in_turn`: samples of several calls that drift affects alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuccl.errors import ConfigurationFailedError
from tuccl.trials.config import Config


def in_turn(
    calls: Sequence[Config], turns: int, sample: Callable[[Config], float]
) -> dict[Config, list[float]]:
    """Take `turns` samples of each call in turn, so that drift affects all calls alike.

    The order is reversed in every second turn: if two calls alternated strictly, a property of
    every second launch would look like a difference between them.

    Args:
        calls: In the order of the first turn.
        turns: Number of samples of each call.
        sample: Takes the next sample of a call, in us. A call for which it raises
            ConfigurationFailedError is dropped.
    """
    samples: dict[Config, list[float]] = {config: [] for config in calls}
    for turn in range(turns):
        for config in calls[:: -1 if turn % 2 else 1]:
            if config not in samples:
                continue
            try:
                samples[config].append(sample(config))
            except ConfigurationFailedError:
                del samples[config]
    return samples
