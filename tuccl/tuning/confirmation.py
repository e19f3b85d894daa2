"""Confirmation over restarts: entries hold if their calls stay faster when the workers restart.

A decision is made within one start of the workers, but the time of a call varies from start to
start: by some tenths of a per cent on NVLink, by up to 20 % over TCP. Stock NCCL's times in the
first and the last start show by how much on this machine. An entry whose lower bound stays above 1
with that allowance is kept (`held_against_starts`); the others are timed again in several starts,
in turn with NCCL's own choice under the profile. Where the median key varies much, all keys are
timed again, whether one start proved a gain or only showed it; a key without a proved call may then
borrow the winner of the size above or below, since its own start may have been unlucky. Each start
gives one ratio per key, of samples taken in turn, since the machine changes within a tenth of a
second. A call becomes an entry if the lower bound of the mean logarithm shows a gain, at a false
discovery rate of 1 % over the keys. Keys that are proved, or gain nothing on average, are closed,
and later starts time the rest. Where the budget does not pay for the fewest starts of all keys,
each takes fewer samples, and the keys that promise least for their seconds are left out. Where that
shows only after the first start, because it took longer than was told, the seconds that were kept
for later stages go to the others first, since what a start has cost would be lost; those stages
then exceed the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.search.statistics.estimators import geometric_mean, interquartile_mean, log_gains
from tuccl.search.statistics.looks import Looks, false_discovery_level
from tuccl.search.statistics.moderation import VariancePrior
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.in_turn import in_turn
from tuccl.tuning.decision import ERROR, MIN_GAIN, Decision
from tuccl.tuning.restart_decision import (
    Logs,
    allowing_for_starts,
    compared_over_starts,
    decided_again,
    entries_of,
    neighbour_winner,
    with_likely,
)
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import StockTimes

_LOOKS = Looks((3, 5, 8, 12, 16), power=3.0)
"""Numbers of starts after which open keys are decided, where they suffice. Some key mostly takes
all of them, so that deciding others earlier saves little."""
_FEWEST_STARTS, MOST_STARTS = _LOOKS.planned[0], _LOOKS.planned[-1]
_FEW, _MANY = 6, 24
"""Fewest and most samples of a call in a start. An even number: over TCP on four H200 every second
launch of small messages took twice as long as the one before."""
_CALL_S = 0.05
"""Seconds that a call's samples in a start may take, if that allows the fewest samples."""
_WARM_UP = 2
"""Cost of a call's first use in a start, in samples: connections, a graph, a launch."""
_TURN_S = 0.0006
"""Extra cost of a sample that is not taken in a row, on H200: the leader requests each."""
_ALIKE: Mapping[Task, float] = MappingProxyType({})
"""Weights of keys that count alike."""


def seconds(
    restart_s: float, sample_s: Mapping[Task, float], calls: int, most_s: float = math.inf
) -> float:
    """Seconds of the fewest starts that can decide, with the fewest samples.

    Between two starts another profile runs.

    Args:
        restart_s: Seconds of a change of the process profile.
        sample_s: Seconds of a sample of each key.
        calls: Calls of each key that are timed, NCCL's own choice included.
        most_s: Most seconds for samples: with less, starts time fewer keys.
    """
    keys_s = (_seconds_of_key(key_s, calls, _FEW) for key_s in sample_s.values())
    return _FEWEST_STARTS * 2.0 * restart_s + min(most_s, _FEWEST_STARTS * sum(keys_s))


def _seconds_of_key(sample_s: float, calls: int, most_samples: int) -> float:
    """Seconds that the calls of a key take in a start."""
    return calls * (_WARM_UP + _samples(sample_s, most_samples)) * (sample_s + _TURN_S)


def _samples(sample_s: float, most: int = _MANY) -> int:
    if sample_s <= 0.0:
        return most
    return max(_FEW, min(most, int(_CALL_S / sample_s) // 2 * 2))


def held_against_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    other_defaults: Sequence[Config],
    spending: Spending,
    stock: StockTimes,
    progress: Callable[[int], None],
    keep_s: float = 0.0,
    weights: Mapping[Task, float] = _ALIKE,
) -> tuple[dict[Task, Decision], int | None]:
    """Confirm decisions over several starts where one start does not suffice.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        other_defaults: See `confirmed_over_starts`.
        spending: Measures.
        stock: Stock NCCL's times in two starts, which show how much starts differ.
        progress: Receives the number of starts so far.
        keep_s: Part of the budget that is reserved for later stages.
        weights: See `confirmed_over_starts`.

    Returns:
        The decisions, and the number of starts that confirmed some of them. 0: none were possible,
        so that only gains beyond the deviation of starts are entries; None: none were needed.
    """
    allowed = allowing_for_starts(decisions, default, stock.between_starts())
    if stock.has_moved():
        doubtful = dict(decisions)
    else:
        doubtful = {
            task: decision
            for task, decision in decisions.items()
            if entries_of(decision) != entries_of(allowed[task])
        }
    if not doubtful:
        return allowed, None
    confirmed, starts = confirmed_over_starts(
        doubtful, default, other_defaults, spending, stock.sample_s, progress, keep_s, weights
    )
    return (allowed | confirmed if starts else allowed), starts


def confirmed_over_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    other_defaults: Sequence[Config],
    spending: Spending,
    sample_s: Mapping[Task, float],
    progress: Callable[[int], None],
    keep_s: float = 0.0,
    weights: Mapping[Task, float] = _ALIKE,
) -> tuple[dict[Task, Decision], int]:
    """Decide again by several starts, which may drop entries and add new ones.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        other_defaults: The same under further profiles. The first that differs and runs is used to
            restart the workers; without it the decisions stay.
        spending: Measures. Where its budget pays for fewer than three starts, decisions stay.
        sample_s: Seconds of a sample of each key.
        progress: Receives the number of starts so far.
        keep_s: Part of the budget that is reserved for later stages.
        weights: What the gain of a key counts; 1 where none is named.

    Returns:
        The decisions on all keys that starts timed or had nothing to time of, and the number of
        starts behind them; 0: the decisions are unchanged.
    """
    check = _Check(decisions, default, spending, sample_s, weights)
    between = [config for config in other_defaults if config.profile != default.profile]
    starts = 0
    over_s = 0.0  # Cost of the previous start beyond its plan.
    while check.open and starts < MOST_STARTS:
        missing = max(1, _FEWEST_STARTS - starts)
        kept_s = 0.0 if 0 < starts < _FEWEST_STARTS else keep_s
        start_s = (spending.left_s - kept_s) / missing - over_s
        if starts < _FEWEST_STARTS:
            check.fit(start_s, begun=starts > 0)
        planned_s = check.seconds_of_start()
        if planned_s > start_s:
            break
        progress(starts)
        restarts_s, before_s = 2.0 * spending.restart_s, spending.spent_s
        if not _switch_profile(between, list(decisions), spending):
            break
        check.start_profile()
        starts += 1
        started_s = spending.spent_s
        check.time(starts)
        # Restarts and samples apart: what samples take less than planned pays for no restart.
        over_s = max(0.0, started_s - before_s - restarts_s)
        over_s += max(0.0, spending.spent_s - started_s - (planned_s - restarts_s))
        if starts in _LOOKS.planned:
            check.look(starts, last=starts == MOST_STARTS)
    if starts < _FEWEST_STARTS:
        return dict(decisions), 0
    check.look(starts, last=True)
    return {t: made for t, made in check.decisions.items() if t not in check.left_out}, starts


def _switch_profile(between: list[Config], tasks: Sequence[Task], spending: Spending) -> bool:
    """Start workers of another profile; profiles that run no key are removed from `between`."""
    while between:
        for task in tasks:
            with suppress(ConfigurationFailedError):
                spending.fresh(task, between[0], 1)
                return True
        del between[0]
    return False


class _Check:
    """The open keys, with their times in the starts so far."""

    def __init__(
        self,
        decisions: Mapping[Task, Decision],
        default: Config,
        spending: Spending,
        sample_s: Mapping[Task, float],
        weights: Mapping[Task, float],
    ) -> None:
        self._weights = weights
        self.decisions = dict(decisions)
        self._default = default
        self._spending = spending
        self._sample_s = sample_s
        self._borrowed = {
            task: config
            for task in decisions
            if (config := neighbour_winner(task, decisions)) is not None
        }
        """Winners of neighbouring sizes, whose data is not checked for the key until the first
        start."""
        self.left_out: set[Task] = set()
        """Keys that the budget does not pay for."""
        self._most_samples = _MANY
        self._likely: dict[Task, Decision] = {}
        self._logs: dict[Task, Logs] = {}
        for task in decisions:
            self._set_calls(task)
        self.open: Sequence[Task] = list(self._logs)
        """Keys that further starts may still decide."""

    def _set_calls(self, task: Task) -> None:
        """Set the calls of a key that starts time; none where no call is likely to gain."""
        likely = with_likely(self.decisions[task], self._borrowed.get(task), self._default)
        self._likely[task] = likely
        self._logs.pop(task, None)
        if entries_of(likely):
            self._logs[task] = {config: [] for config in (self._default, *entries_of(likely))}

    def drop_borrowed(self, tasks: Sequence[Task] | None = None) -> None:
        """Drop the borrowed calls of these keys, or of all, before the first start is timed."""
        for task in list(self._borrowed) if tasks is None else tasks:
            del self._borrowed[task]
            self._set_calls(task)
        self.open = [task for task in self.decisions if task in self._logs]

    def fit(self, start_s: float, *, begun: bool) -> None:
        """Fit a start to these seconds: without borrowed calls, by fewer samples, by fewer keys.

        Args:
            start_s: Seconds of a start.
            begun: Whether a start has timed the calls: borrowed ones stay then.
        """
        if self.seconds_of_start() <= start_s:
            return
        if not begun:
            self.drop_borrowed()
        while self._most_samples > _FEW and self.seconds_of_start() > start_s:
            self._most_samples = max(_FEW, self._most_samples // 4 * 2)
        if 2.0 * self._spending.restart_s >= start_s:
            return
        for task in sorted(self.open, key=self._promise):
            if self.seconds_of_start() <= start_s:
                break
            self.left_out.add(task)
            del self._logs[task]
            self.open = [key for key in self.open if key != task]

    def _promise(self, task: Task) -> float:
        """Gain that the key's own start showed, by its weight, for each second of a start."""
        proved = (self._likely[task].builtin, self._likely[task].schedule)
        gain = max(comparison.ratio for comparison in proved if comparison is not None)
        return self._weights.get(task, 1.0) * math.log(gain) / self._seconds(task)

    def _seconds(self, task: Task) -> float:
        return _seconds_of_key(self._sample_s[task], len(self._logs[task]), self._most_samples)

    def seconds_of_start(self) -> float:
        """Seconds that the next start takes."""
        return 2.0 * self._spending.restart_s + sum(map(self._seconds, self.open))

    def start_profile(self) -> None:
        """Start the workers under the table's profile."""
        with suppress(ConfigurationFailedError):
            self._spending.fresh(self.open[0], self._default, 1)

    def time(self, starts: int) -> None:
        """Time the open keys in start number `starts`.

        The call that comes first runs on colder connections. In the first start, and in every
        second start after it, that is not NCCL's own choice, so that no entry profits by it.
        """
        if starts == 1:
            is_right = self._spending.is_right
            self.drop_borrowed([t for t, call in self._borrowed.items() if not is_right(t, call)])
        for task in self.open:
            logs = self._logs[task]
            # A call that failed in a start is not timed again.
            calls = [config for config, own in logs.items() if len(own) == starts - 1]
            samples_us = in_turn(
                calls[:: -1 if starts % 2 else 1],
                _samples(self._sample_s[task], self._most_samples),
                partial(self._next_us, task),
            )
            for config, own in samples_us.items():
                logs[config].append(math.log(interquartile_mean(own)))

    def _next_us(self, task: Task, config: Config) -> float:
        return self._spending.fresh(task, config, 1)[0]

    def look(self, starts: int, *, last: bool) -> None:
        """Decide the open keys by `starts` starts, and close those that need no more."""
        priors = self.priors()
        closed = sum(
            len(entries_of(self.decisions[task])) for task in self._logs if task not in self.open
        )

        def decided(error: float) -> dict[Task, Decision]:
            of_look = _LOOKS.error_at(starts, error, last=last)
            return {t: self._decide(t, starts, priors[t.shape], of_look) for t in self.open}

        def proved(error: float) -> int:
            return closed + sum(len(entries_of(again)) for again in decided(error).values())

        compared = sum(len(entries_of(self._likely[task])) for task in self._logs)
        changed = decided(false_discovery_level(ERROR, compared, proved)) if self.open else {}
        self.decisions |= changed
        self.open = [task for task in self.open if self._may_gain(task)]

    def _decide(self, task: Task, starts: int, prior: VariancePrior, error: float) -> Decision:
        """Decide a key by several starts.

        Args:
            task: The key.
            starts: Number of starts in which its calls were timed.
            prior: Variance of one start's ratio, from all keys of the shape.
            error: Error probability of a lower bound.
        """
        logs = self._logs[task]
        compare = partial(
            compared_over_starts,
            logs,
            starts,
            _samples(self._sample_s[task], self._most_samples),
            prior,
            error,
        )
        decision = decided_again(self._likely[task], self._default, compare)
        if logs[self._default]:
            default_us = geometric_mean(logs[self._default])
            decision = replace(decision, profile_default_us=default_us)
        return decision

    def _may_gain(self, task: Task) -> bool:
        """Whether a call that is not proved gains on average."""
        dropped = self.decisions[task].rejected[len(self._likely[task].rejected) :]
        return any(c.lower_bound > 0.0 and c.ratio >= MIN_GAIN for c in dropped)

    def priors(self) -> dict[Shape, VariancePrior]:
        """Variance of one start's ratio on each communicator shape, from the calls of all keys."""
        gains: dict[Shape, list[list[float]]] = {}
        for task, logs in self._logs.items():
            reference = logs[self._default]
            gains.setdefault(task.shape, []).extend(
                log_gains(own, reference)
                for config, own in logs.items()
                if config != self._default and len(own) == len(reference)
            )
        return {shape: VariancePrior.of(own) for shape, own in gains.items()}
