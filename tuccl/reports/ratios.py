"""The gain of one contender over another, and its uncertainty.

A round starts new processes for every contender, so it gives one ratio per key; the differences
from start to start are the noise. A key's gain is the geometric mean of its ratios. Its interval is
Student's on their logarithms, with the variance over all keys where the key's own says too little
(`tuccl.search.statistics.moderation`). The intervals of all keys hold together with the
confidence (Bonferroni), so that one of hundreds does not stand out by luck alone.

The gain that a table states is as uncertain as the interval of its entry, where the entry was
compared with stock NCCL. Any other was measured in a start of its own, which is as uncertain as one
more round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeVar

from tuccl.reports.keys import Gain
from tuccl.search.statistics.distributions import student_quantile
from tuccl.search.statistics.looks import bonferroni
from tuccl.search.statistics.moderation import KnownMean, means_together

_Key = TypeVar("_Key")
CONFIDENCE = 0.95
LEAST_ROUNDS = 2
"""Rounds that a bench needs at least: one shows no noise."""


@dataclass(frozen=True, slots=True)
class MeasuredGain(Gain):
    """The gain of a contender, with an interval."""

    low: float
    high: float
    one_more_round: float
    """The largest ratio that a further round might give."""

    def falls_short(self, stated: Gain | None) -> bool:
        """Return whether it is below the gain that a table states, beyond the noise of both.

        The two are independent, so that their widths add as squares (JCGM 100:2008, Guide to the
        expression of uncertainty in measurement, 5.1.2). A stated gain without bounds is as
        uncertain as one more round.
        """
        if stated is None:
            return False
        if stated.low is None:
            return self.one_more_round < stated.ratio
        width = math.hypot(math.log(self.high / self.ratio), math.log(stated.ratio / stated.low))
        return self.ratio * math.exp(width) < stated.ratio


def key_gains(
    base_us: Mapping[_Key, Sequence[float]],
    own_us: Mapping[_Key, Sequence[float]],
    kind: Callable[[_Key], object] = lambda _: None,
) -> dict[_Key, MeasuredGain]:
    """Return the gain of every key.

    Args:
        base_us: Times of each key by round, two rounds at least.
        own_us: Times of the contender that may be faster, in the same rounds.
        kind: What is timed of a key; kinds may vary more or less than the first key's.
    """
    logs = _logs(base_us, own_us)
    error = bonferroni((1.0 - CONFIDENCE) / 2.0, len(logs))
    means = means_together(logs, error, kind)
    return {key: _gain(mean, len(logs[key])) for key, mean in means.items()}


def mean_gain(
    base_us: Mapping[_Key, Sequence[float]], own_us: Mapping[_Key, Sequence[float]]
) -> MeasuredGain:
    """Return the geometric mean gain over all keys; its noise is that of the rounds' means."""
    logs = _logs(base_us, own_us)
    return _gain_of_logs([fmean(of_round) for of_round in zip(*logs.values(), strict=True)])


def gain_of_rounds(base_us: Sequence[float], own_us: Sequence[float]) -> MeasuredGain:
    """Return the gain of a time, by its ratio in each round alone."""
    return _gain_of_logs([math.log(b / own) for b, own in zip(base_us, own_us, strict=True)])


def _gain_of_logs(logs: Sequence[float]) -> MeasuredGain:
    quantile = student_quantile(1.0 - (1.0 - CONFIDENCE) / 2.0, len(logs) - 1)
    reach = quantile * stdev(logs) / math.sqrt(len(logs))
    return _gain(KnownMean(fmean(logs), reach), len(logs))


def _logs(
    base_us: Mapping[_Key, Sequence[float]], own_us: Mapping[_Key, Sequence[float]]
) -> dict[_Key, list[float]]:
    return {
        key: [math.log(base / own) for base, own in zip(base_us[key], times, strict=True)]
        for key, times in own_us.items()
    }


def _gain(log: KnownMean, rounds: int) -> MeasuredGain:
    """Return the gain with this logarithm, the mean over so many rounds."""
    mean, reach = log.value, log.reach
    further = mean + reach * math.sqrt(rounds + 1)
    return MeasuredGain(*map(math.exp, (mean, mean - reach, mean + reach, further)))
