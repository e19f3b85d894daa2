"""`in_turn`: samples of several calls that drift affects alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.config import Config

Samples = dict[Config, list[float]]
"""Samples of each call in us, in the order of the turns."""


def in_turn(
    calls: Sequence[Config],
    turns: int,
    sample: Callable[[Config], float],
    settled: Callable[[Samples], Collection[Config]] = lambda _: (),
) -> Samples:
    """Take `turns` samples of each call in turn, so that drift affects all calls alike.

    The order is reversed in every second turn: if two calls alternated strictly, a property of
    every second launch would look like a difference between them.

    Args:
        calls: In the order of the first turn.
        turns: Number of samples of each call.
        sample: Takes the next sample of a call, in us. A call for which it raises
            ConfigurationFailedError is dropped.
        settled: Which calls need no further samples, by those after a turn.
    """
    samples: Samples = {config: [] for config in calls}
    for turn in range(turns):
        enough = settled(samples) if turn else ()
        for config in calls[:: -1 if turn % 2 else 1]:
            if config not in samples or config in enough:
                continue
            try:
                samples[config].append(sample(config))
            except ConfigurationFailedError:
                del samples[config]
    return samples
