"""The decision for one key: does the best configuration beat NCCL's own choice beyond the noise?

The finalists of a search are measured again, in turn with NCCL's own choice under the table's
profile, which a job would run without the entry. Taking turns spreads drift over all of them alike,
and fresh samples remove the luck that made a configuration a finalist. An entry is written only if
the lower confidence bound of the gain is above 1. The bound is that of Hodges and Lehmann for the
paired ratios, corrected for the number of finalists; where a call stalls now and then it is that of
the ratio of mean times, since a job waits for the stalls. A finalist that loses most
turns is measured no further. The bound holds for one start of the workers only
(`tuccl.tuning.confirmation` covers several).

A call that waits holds a multiprocessor with each of its channels, while the computation beside it
has the others. So of calls that trainings hide the one with the fewest channels wins, if it keeps
nine tenths of the fastest one's gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

from lookup_tables.confirmation import Estimator
from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.search.statistics.estimators import quartile_spread, ratios_of_turns, stalls
from tuccl.search.statistics.intervals import UNKNOWN, Interval, interval_of_means, pairs_interval
from tuccl.search.statistics.looks import bonferroni
from tuccl.search.trials.config import Config
from tuccl.search.trials.in_turn import Samples, in_turn
from tuccl.tuning.placing.safety import SlowerAt

Measure = Callable[[Config, int], tuple[float, ...]]
"""`measure(config, repeats)`: the first `repeats` samples, in us."""
ERROR = 0.01
"""Error probability per key: a finalist that gains nothing is proved faster in one start."""
CONFIDENCE = 1.0 - ERROR
"""Confidence of each bound of a proved gain, from one start or several."""
PAIRS = 15
"""Samples of each finalist and of the reference, unless the finalist is beaten before."""
FEW_PAIRS = 5
"""The same where further starts decide in any case: enough to tell which calls they shall time."""
_ALONE = 3
"""Samples of NCCL's own choice where no finalist is left."""
FEWEST_FOR_BOUNDS = 8
"""Fewest pairs that have bounds of this error."""
MIN_GAIN = 1.002
"""Least ratio of a gain: differences below 0.2 % occur from launch to launch."""
_KEPT = 0.9
"""Share of the logarithm of a gain that fewer channels have to keep."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A configuration against a reference, in samples taken in turn."""

    config: Config
    reference: Config
    """The configuration that it is compared with."""
    time_us: float
    reference_us: float
    ratio: float
    """The reference's time over the configuration's: above 1 is faster."""
    interval: Interval
    """One-sided confidence bounds of the ratio."""
    samples: int
    spread: float
    """Half the interquartile range of the configuration's samples over their median; over several
    starts the standard deviation of the logarithms."""
    estimator: Estimator
    """Estimator of the times and the ratio."""
    starts: int
    """Number of starts of the workers that the samples come from."""
    stalls: int = 0
    """Samples that took more than 1.5 times the median, if a tenth of them or more did. A job waits
    for these too, so that means count them."""
    stall_cost: float = 1.0
    """Mean of the configuration's samples over their median."""

    @property
    def lower_bound(self) -> float:
        """One-sided lower confidence bound of the ratio."""
        return self.interval.low

    @property
    def proved(self) -> bool:
        """Whether the configuration is faster beyond the noise."""
        return self.lower_bound > 1.0 and self.ratio >= MIN_GAIN


@dataclass(frozen=True, slots=True)
class SlowerInJob:
    """A proved call that is left out, since jobs with the whole table lose by it."""

    config: Config
    why: str

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.config.describe()} is left out: {self.why}"


Slower = SlowerAt | SlowerInJob


@dataclass(frozen=True, slots=True)
class Decision:
    """Outcome of the comparisons for one key."""

    builtin: Comparison | None
    """Best built-in configuration against NCCL's own choice under the profile."""
    schedule: Comparison | None
    """Best schedule against the better of `builtin` and NCCL's own choice."""
    profile_default_us: float
    """Time of NCCL's own choice under the profile: median, or geometric mean over starts."""
    rejected: tuple[Comparison, ...]
    """Comparisons, of one start or several, in which the configuration was not proved faster."""
    outdone: tuple[Comparison, ...] = ()
    """Built-in configurations that were proved faster, too, but are not the best."""
    left_out: tuple[Slower, ...] = ()
    """Proved calls that are slower where ranks sit elsewhere, or with the whole table loaded."""
    is_obliged: bool = False
    """Whether the winner was not proved faster, and runs since the table's sums must not move."""
    is_hidden: bool = False
    """Whether trainings hide the call, so that it had better take few channels."""

    @property
    def winner(self) -> Config | None:
        """The call that runs where there is an executor; None: NCCL's own choice."""
        winner = self.schedule or self.builtin
        return None if winner is None else winner.config

    @property
    def proved(self) -> tuple[Comparison, ...]:
        """The comparisons of what was proved faster: a built-in, a schedule."""
        return tuple(each for each in (self.builtin, self.schedule) if each is not None)

    def gain_of(self, comparison: Comparison) -> float:
        """Ratio of NCCL's own choice under the profile to a call's time."""
        return self.profile_default_us / comparison.time_us

    @property
    def has_entry(self) -> bool:
        """Whether a gain was proved, so that the key gets an entry."""
        return self.builtin is not None or self.schedule is not None

    def unproved(self) -> Decision:
        """Return the decision as one in which nothing was proved."""
        rejected = (*self.rejected, *self.proved)
        return replace(self, builtin=None, schedule=None, rejected=rejected)

    def without(self, slower: Mapping[Config, Slower]) -> Decision:
        """Return the decision without calls that are slower elsewhere or in a job."""
        proved = (self.builtin, self.schedule)
        kept = [None if each is None or each.config in slower else each for each in proved]
        left_out = [slower[each.config] for each in proved if each and each.config in slower]
        known = tuple(dict.fromkeys((*self.left_out, *left_out)))
        return replace(self, builtin=kept[0], schedule=kept[1], left_out=known)


def decide(
    builtins: Sequence[Config],
    schedules: Sequence[Config],
    profile_default: Config,
    measure: Measure,
    taken: Callable[[Config], int],
    pairs: int = PAIRS,
    *,
    is_hidden: bool = False,
) -> Decision:
    """Confirm the finalists of one key.

    Args:
        builtins: Built-in finalists under the profile, best first.
        schedules: Schedule finalists, best first.
        profile_default: NCCL's own choice under the profile.
        measure: `measure(config, repeats)`: all samples of a configuration so far.
        taken: Number of samples of a configuration that the search used; fresh samples follow.
        pairs: Fresh samples of each call, unless it is beaten before.
        is_hidden: Whether trainings hide the call.

    Raises:
        MeasurementError: when NCCL's own choice under the profile cannot run.
    """
    fresh = _fresh(profile_default, [*builtins, *schedules], measure, taken, pairs)
    builtins = [config for config in builtins if config in fresh]
    schedules = [config for config in schedules if config in fresh]
    default = fresh[profile_default]
    error = bonferroni(ERROR, max(1, len(builtins) + len(schedules)))
    compared = [_compare(config, profile_default, fresh, error) for config in builtins]
    builtin = _best(compared, is_hidden=is_hidden)

    def reference(config: Config) -> Config:
        """The call that a schedule must beat; one that NCCL's own choice beats went no further."""
        is_beaten = len(fresh[config]) < len(default)
        return profile_default if builtin is None or is_beaten else builtin.config

    schedules_compared = [_compare(config, reference(config), fresh, error) for config in schedules]
    schedule = _best(schedules_compared, is_hidden=is_hidden)
    return Decision(
        builtin=builtin,
        schedule=schedule,
        profile_default_us=median(default),
        rejected=tuple(c for c in (*compared, *schedules_compared) if not c.proved),
        outdone=tuple(c for c in compared if c.proved and c is not builtin),
        is_hidden=is_hidden,
    )


def compare_alone(
    config: Config, default: Config, measure: Measure, taken: Callable[[Config], int]
) -> Comparison:
    """Compare a call with NCCL's own choice, however many turns it loses.

    Args:
        config: The call.
        default: NCCL's own choice under the profile.
        measure: As for `decide`.
        taken: As for `decide`.

    Raises:
        MeasurementError: One of them stopped running.
    """
    counts = {each: taken(each) for each in (default, config)}

    def sample(each: Config) -> float:
        counts[each] += 1
        return measure(each, counts[each])[-1]

    fresh = in_turn(list(counts), FEWEST_FOR_BOUNDS, sample)
    for each in counts:
        if each not in fresh:
            raise MeasurementError(f"{each.describe()} stopped running")
    return _compare(config, default, fresh, ERROR)


def _fresh(
    reference: Config,
    finalists: Sequence[Config],
    measure: Measure,
    taken: Callable[[Config], int],
    pairs: int,
) -> dict[Config, list[float]]:
    """Fresh samples of the reference and of the finalists that run."""
    counts = {config: taken(config) for config in (reference, *finalists)}

    def sample(config: Config) -> float:
        counts[config] += 1
        try:
            samples = measure(config, counts[config])
            if len(samples) < counts[config]:  # The backend stopped a call that is far too slow.
                raise ConfigurationFailedError("too slow to be measured on")
        except ConfigurationFailedError as error:
            if config == reference:
                raise MeasurementError(f"{config.describe()} stopped running: {error}") from error
            raise
        return samples[-1]

    return in_turn(
        list(counts),
        pairs if finalists else _ALONE,
        sample,
        partial(_settled, reference, pairs=pairs),
    )


def _settled(reference: Config, samples: Samples, *, pairs: int) -> set[Config]:
    """Return the finalists that are beaten, with the reference once all of them are."""
    references = samples[reference]
    beaten = {
        config
        for config, own in samples.items()
        if config != reference and _is_beaten(ratios_of_turns(own, references), pairs)
    }
    alone = len(beaten) == len(samples) - 1 and len(references) >= _ALONE
    return beaten | {reference} if alone else beaten


def _is_beaten(ratios: Sequence[float], pairs: int) -> bool:
    """Whether the median ratio of all turns is at most 1, whatever the turns to come.

    Curtailed sampling: such a finalist is not proved, and not likely enough to be compared over
    further starts.
    """
    return sum(ratio <= 1.0 for ratio in ratios) > pairs // 2


def _compare(
    config: Config, reference: Config, fresh: Mapping[Config, Sequence[float]], error: float
) -> Comparison:
    samples, references = fresh[config], fresh[reference]
    found = Comparison(
        config=config,
        reference=reference,
        time_us=median(samples),
        reference_us=median(references),
        ratio=1.0,
        interval=UNKNOWN,
        samples=len(samples),
        spread=quartile_spread(samples),
        estimator=Estimator.MEDIAN_OF_PAIRS,
        starts=1,
        stalls=stalls(samples),
        stall_cost=fmean(samples) / median(samples),
    )
    if not (found.stalls or stalls(references)):
        ratio, interval = pairs_interval(ratios_of_turns(samples, references), error)
        return replace(found, ratio=ratio, interval=interval)
    ratio, interval = interval_of_means(samples, references, error)
    return replace(
        found,
        time_us=fmean(samples),
        reference_us=fmean(references),
        ratio=ratio,
        interval=interval,
        estimator=Estimator.MEAN_OF_SAMPLES,
    )


def _best(compared: Sequence[Comparison], *, is_hidden: bool) -> Comparison | None:
    proved = [comparison for comparison in compared if comparison.proved]
    ranked = sorted(proved, key=lambda c: (c.time_us, c.config))
    return best_of(ranked, lambda c: c.ratio, is_hidden=is_hidden)


def best_of(
    ranked: Sequence[Comparison], gain: Callable[[Comparison], float], *, is_hidden: bool
) -> Comparison | None:
    """Return the first call, or that with the fewest channels of those that gain nearly as much.

    Args:
        ranked: The calls, best first.
        gain: The ratio that counts.
        is_hidden: Whether trainings hide the call.
    """
    if not ranked or not is_hidden:
        return next(iter(ranked), None)
    least = _KEPT * math.log(max(1.0, gain(ranked[0])))
    near = [comparison for comparison in ranked[1:] if math.log(gain(comparison)) >= least]
    # 0 is NCCL's own count, which is not known.
    return min((ranked[0], *near), key=lambda comparison: comparison.config.nchannels or math.inf)
