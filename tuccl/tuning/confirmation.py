"""Confirmation over restarts: entries hold if their calls stay faster when the workers restart.

A decision is made within one start of the workers, but the time of a call varies from start to
start: by some tenths of a per cent on NVLink, by up to 20 % over TCP. Stock NCCL's times in the
first and the last start show by how much on each communicator shape. An entry whose lower bound
stays above 1 with that allowance is kept (`held_against_starts`); the others are timed again in
several starts, in turn with NCCL's own choice under the profile. Where the median key of a shape
varies much, all its keys are timed again, whether one start proved a gain or only showed it; a key
without a proved call may then borrow the winner of the size above or below, since its own start may
have been unlucky. So it is with all keys of a machine whose first samples differ much: there one
start takes few samples, and further starts decide. Each start gives one ratio per key, of samples
taken in turn, since the machine changes within a tenth of a second. A call becomes an entry if the
lower bound of the mean logarithm shows a gain, at a false discovery rate of 1 % over the keys. Keys
that are proved, or gain nothing on average, are closed, and later starts time the rest.

Where the budget does not pay for the fewest starts of all keys, each takes fewer samples, and the
keys that promise least for their seconds wait: those that the allowance keeps anyway, then those
that gain least. They have their starts once the others had theirs, if seconds are left. What waits
to the end is decided by its one start, with an allowance for the deviation that the starts of the
other keys of its shape have shown. Where a start took longer than was told, the seconds that were
kept for later stages go to the keys begun first, since what a start has cost would be lost; those
stages then exceed the budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from tuccl.errors import ConfigurationFailedError
from tuccl.search.statistics.estimators import geometric_mean, log_gains, stalls, time_in_a_job
from tuccl.search.statistics.looks import Looks, false_discovery_level
from tuccl.search.statistics.moderation import MeanError, VariancePrior, variance_level
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.in_turn import in_turn
from tuccl.tuning.decision import ERROR, MIN_GAIN, Decision
from tuccl.tuning.neighbours import neighbour_winner
from tuccl.tuning.restart_decision import (
    Kind,
    Logs,
    allowing_for_starts,
    compared_over_starts,
    decided_again,
    entries_of,
    reach_of_one_start,
    stall_costs,
    with_likely,
)
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import StockTimes

_LOOKS = Looks((3, 5, 8, 12, 16), power=3.0)
"""Numbers of starts after which open keys are decided, where they suffice. Some key mostly takes
all of them, so that deciding others earlier saves little."""
FEWEST_STARTS, MOST_STARTS = _LOOKS.planned[0], _LOOKS.planned[-1]
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

    Args:
        restart_s: Seconds of a start of the workers.
        sample_s: Seconds of a sample of each key.
        calls: Calls of each key that are timed, NCCL's own choice included.
        most_s: Most seconds for samples: with less, starts time fewer keys.
    """
    keys_s = (seconds_of_key(key_s, calls, _FEW) for key_s in sample_s.values())
    return FEWEST_STARTS * restart_s + min(most_s, FEWEST_STARTS * sum(keys_s))


def seconds_of_key(sample_s: float, calls: int, most_samples: int = _MANY) -> float:
    """Seconds that the calls of a key take in a start."""
    return calls * (_WARM_UP + _samples(sample_s, most_samples)) * (sample_s + _TURN_S)


def _samples(sample_s: float, most: int = _MANY) -> int:
    if sample_s <= 0.0:
        return most
    return max(_FEW, min(most, int(_CALL_S / sample_s) // 2 * 2))


def held_against_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    spending: Spending,
    stock: StockTimes,
    progress: Callable[[int], None],
    keep_s: float = 0.0,
    weights: Mapping[Task, float] = _ALIKE,
    *,
    in_any_case: bool = False,
) -> tuple[dict[Task, Decision], int | None]:
    """Confirm decisions over several starts where one start does not suffice.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        spending: Measures.
        stock: Stock NCCL's times in two starts, which show how much starts differ.
        progress: Receives the number of starts so far.
        keep_s: Part of the budget that is reserved for later stages.
        weights: See `confirmed_over_starts`.
        in_any_case: Whether the decisions had too few samples to prove a gain.

    Returns:
        The decisions, and the number of starts that confirmed some of them. 0: none were possible,
        so that only gains beyond the deviation of starts are entries; None: none were needed.
    """
    of_stock, moved = stock.between_starts_by_shape(), stock.moved_shapes()
    between = {
        Kind(shape, is_schedule): error
        for shape, error in of_stock.items()
        for is_schedule in (False, True)
    }
    allowed = allowing_for_starts(decisions, default, between)
    doubtful = {
        task: decision
        for task, decision in decisions.items()
        if in_any_case or task.shape in moved or entries_of(decision) != entries_of(allowed[task])
    }
    if not doubtful:
        return allowed, None
    confirmed = confirmed_over_starts(
        doubtful,
        default,
        spending,
        stock.sample_s,
        progress,
        keep_s,
        weights,
        {task for task, own in doubtful.items() if _stays(own, allowed[task])},
    )
    seen = {
        kind: min(error, confirmed.between.get(kind, error), key=reach_of_one_start)
        for kind, error in between.items()
    }
    allowed = allowing_for_starts(decisions, default, seen)
    return {**allowed, **confirmed.decisions}, confirmed.starts


def _stays(decision: Decision, allowed: Decision) -> bool:
    """Whether a key has an entry that the allowance for other starts leaves as it is."""
    return decision.has_entry and entries_of(decision) == entries_of(allowed)


@dataclass(frozen=True)
class Confirmed:
    """What starts have decided."""

    decisions: Mapping[Task, Decision]
    """Decisions on all keys that starts timed or had nothing to time of."""
    starts: int
    """Number of starts behind them; 0: the decisions are unchanged."""
    between: Mapping[Kind, MeanError]
    """Error of one start's ratio, of the kinds of calls whose starts show it."""


def confirmed_over_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    spending: Spending,
    sample_s: Mapping[Task, float],
    progress: Callable[[int], None],
    keep_s: float = 0.0,
    weights: Mapping[Task, float] = _ALIKE,
    kept: Collection[Task] = (),
) -> Confirmed:
    """Decide again by several starts, which may drop entries and add new ones.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        spending: Measures. Where its budget pays for fewer than three starts, decisions stay.
        sample_s: Seconds of a sample of each key.
        progress: Receives the number of starts so far.
        keep_s: Part of the budget that is reserved for later stages.
        weights: What the gain of a key counts; 1 where none is named.
        kept: Keys whose entries stay if no start times them.
    """
    check = _Check(decisions, default, spending, sample_s, weights, kept)
    starts = 0
    while begun := _begin(check, spending, keep_s, progress, starts):
        starts += begun
    while check.open and check.most_starts < MOST_STARTS:
        if check.seconds_of_start() > spending.left_s - keep_s:
            break
        progress(starts)
        check.time_a_start()
        starts += 1
        if check.most_starts in _LOOKS.planned:
            check.look(last=check.most_starts == MOST_STARTS)
    check.look(last=True)
    priors = check.priors(robust=False).items()
    between = {kind: error for kind, prior in priors if (error := prior.of_one_value()).error}
    return Confirmed(
        {t: made for t, made in check.decisions.items() if t not in check.waiting}, starts, between
    )


def _begin(
    check: _Check, spending: Spending, keep_s: float, progress: Callable[[int], None], starts: int
) -> int:
    """Time waiting keys in the fewest starts that decide; return the number of these starts.

    Keys that the budget does not pay for go on waiting.
    """
    check.join()
    over_s = 0.0  # Cost of the previous start beyond its plan.
    for number in range(FEWEST_STARTS):
        kept_s = 0.0 if number else keep_s
        check.fit((spending.left_s - kept_s) / (FEWEST_STARTS - number) - over_s)
        if not check.batch:
            return 0
        progress(starts + number)
        over_s = check.time_a_start()
    check.look(last=False)
    return FEWEST_STARTS


class _Check:
    """The keys, with their times in the starts so far."""

    def __init__(
        self,
        decisions: Mapping[Task, Decision],
        default: Config,
        spending: Spending,
        sample_s: Mapping[Task, float],
        weights: Mapping[Task, float],
        kept: Collection[Task],
    ) -> None:
        self._weights = weights
        self._kept = kept
        self.decisions = dict(decisions)
        self._default = default
        self._spending = spending
        self._sample_s = sample_s
        self._borrowed = {
            task: comparison
            for task in decisions
            if (comparison := neighbour_winner(task, decisions)) is not None
        }
        """Winners of neighbouring sizes, whose data is not checked for the key until its first
        start."""
        self._costs = stall_costs(decisions.values())
        self._most_samples = _MANY
        self._likely: dict[Task, Decision] = {}
        self._times_us: dict[Task, dict[Config, list[Sequence[float]]]] = {}
        """Samples of each call in each start."""
        for task in decisions:
            self._set_calls(task)
        self.waiting: Sequence[Task] = list(self._times_us)
        """Keys whose starts have not begun."""
        self.batch: Sequence[Task] = ()
        """Keys in their first starts."""
        self.open: Sequence[Task] = ()
        """Keys that had the fewest starts, and that further ones may still decide."""
        self._starts: Counter[Task] = Counter()
        self._samples: dict[Task, int] = {}
        """Samples of each call in all starts of a key."""

    @property
    def most_starts(self) -> int:
        """Number of starts of the open keys."""
        return max(self._starts[task] for task in self.open)

    def _set_calls(self, task: Task) -> None:
        """Set the calls of a key that starts time; none where no call is likely to gain."""
        borrowed = self._borrowed.get(task)
        config = None if borrowed is None else borrowed.config
        likely = with_likely(self.decisions[task], config, self._default, self._costs)
        self._likely[task] = likely
        self._times_us.pop(task, None)
        if entries_of(likely):
            self._times_us[task] = {config: [] for config in (self._default, *entries_of(likely))}

    def join(self) -> None:
        """Let the waiting keys have their first starts."""
        self.batch, self.waiting = self.waiting, ()
        self._most_samples = _MANY

    def fit(self, start_s: float) -> None:
        """Fit a start of the batch to these seconds: by fewer samples, then by fewer keys.

        The keys that promise most for their seconds come first. One that is too dear leaves room
        for cheaper ones.
        """
        while self._most_samples > _FEW and self.seconds_of_start() > start_s:
            self._most_samples = max(_FEW, self._most_samples // 4 * 2)
        left_s = start_s - self._spending.restart_s
        fits = set()
        for task in sorted(self.batch, key=self._promise, reverse=True):
            if self._seconds(task) <= left_s:
                left_s -= self._seconds(task)
                fits.add(task)
            else:
                self._wait(task)
        self.batch = [task for task in self.batch if task in fits]

    def _wait(self, task: Task) -> None:
        """Let a key wait for later starts; what it had of these starts is lost."""
        self.waiting = [*self.waiting, task]
        self._times_us[task] = {config: [] for config in self._times_us[task]}
        del self._starts[task]

    def _promise(self, task: Task) -> tuple[bool, float]:
        """Gain that the key's own start or its neighbour's showed, for each second of a start.

        It counts by the key's weight; an entry that stays without starts promises least.
        """
        likely = self._likely[task]
        gain = max(map(likely.gain_of, likely.proved))
        if (borrowed := self._borrowed.get(task)) is not None:
            gain = max(gain, borrowed.lower_bound)
        worth = self._weights.get(task, 1.0) * math.log(gain)
        return task not in self._kept, worth / max(_TURN_S, self._seconds(task))

    def _seconds(self, task: Task) -> float:
        return seconds_of_key(self._sample_s[task], len(self._times_us[task]), self._most_samples)

    def seconds_of_start(self) -> float:
        """Seconds that the next start takes."""
        return self._spending.restart_s + sum(map(self._seconds, self.batch or self.open))

    def time_a_start(self) -> float:
        """Time the batch, or else the open keys, in a new start.

        The call that comes first runs on colder connections. In the first start, and in every
        second start after it, that is not NCCL's own choice, so that no entry profits by it.

        Returns:
            Seconds beyond the plan. Restart and samples count apart: what samples take less than
            planned pays for no restart.
        """
        restart_s, planned_s = self._spending.restart_s, self.seconds_of_start()
        before_s = self._spending.spent_s
        tasks = self.batch or self.open
        self._spending.restart()
        with suppress(ConfigurationFailedError):
            self._spending.fresh(tasks[0], self._default, 1)
        started_s = self._spending.spent_s
        for task in tasks:
            self._time(task)
        # A key whose only call was borrowed and has wrong data has none any more.
        self.batch = [task for task in self.batch if task in self._times_us]
        over_s = max(0.0, started_s - before_s - restart_s)
        return over_s + max(0.0, self._spending.spent_s - started_s - (planned_s - restart_s))

    def _time(self, task: Task) -> None:
        """Time the calls of a key in a start."""
        borrowed = self._borrowed.get(task)
        is_wrong = borrowed is not None and not self._spending.is_right(task, borrowed.config)
        if is_wrong and not self._starts[task]:
            del self._borrowed[task]
            self._set_calls(task)
        times = self._times_us.get(task, {})
        before = self._starts[task]
        self._starts[task] += 1
        # A call that failed in a start is not timed again.
        calls = [config for config, own in times.items() if len(own) == before]
        count = _samples(self._sample_s[task], self._most_samples)
        self._samples[task] = (self._samples.get(task, 0) if before else 0) + count
        samples_us = in_turn(calls[:: 1 if before % 2 else -1], count, partial(self._next_us, task))
        for config, own in samples_us.items():
            times[config].append(own)

    def _next_us(self, task: Task, config: Config) -> float:
        return self._spending.fresh(task, config, 1)[0]

    def _logs(self, task: Task) -> Logs:
        """Logarithm of each call's time in each start, with the stalls of calls that have them."""
        return {
            config: [
                math.log(time_in_a_job(own, recur=self._stalls(task, config) > 0)) for own in starts
            ]
            for config, starts in self._times_us[task].items()
        }

    def _stalls(self, task: Task, config: Config) -> int:
        """Number of stalls of a call in all starts, if they recur."""
        samples_us = [us for own in self._times_us[task][config] for us in own]
        return stalls(samples_us) if samples_us else 0

    def look(self, *, last: bool) -> None:
        """Decide the batch and the open keys, and close those that need no more starts."""
        priors = self.priors()
        due = [task for task in (*self.open, *self.batch) if task in self._times_us]
        begun = [task for task in self._times_us if task not in self.waiting]
        closed = sum(len(entries_of(self.decisions[task])) for task in begun if task not in due)

        def decided(error: float) -> dict[Task, Decision]:
            return {task: self._decide(task, priors, error, last=last) for task in due}

        def proved(error: float) -> int:
            return closed + sum(len(entries_of(again)) for again in decided(error).values())

        compared = sum(len(entries_of(self._likely[task])) for task in begun)
        if due:
            self.decisions |= decided(false_discovery_level(ERROR, compared, proved))
        self.open, self.batch = [task for task in due if self._may_gain(task)], ()

    def _decide(
        self, task: Task, priors: Mapping[Kind, VariancePrior], error: float, *, last: bool
    ) -> Decision:
        """Decide a key by its starts.

        Args:
            task: The key.
            priors: Variance of one start's ratio, from all keys.
            error: Error probability of a lower bound, over all looks.
            last: Whether no look follows.
        """
        logs, starts = self._logs(task), self._starts[task]
        of_look = _LOOKS.error_at(starts, error, last=last or starts == MOST_STARTS)
        compare = partial(
            compared_over_starts,
            logs,
            starts,
            self._samples[task],
            partial(self._stalls, task),
            lambda config: priors[Kind.of(task, config)],
            of_look,
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

    def priors(self, *, robust: bool = True) -> dict[Kind, VariancePrior]:
        """Variance of one start's ratio of each kind of calls, from those of all keys.

        One prior for each communicator shape; schedules vary so many times as much as settings.
        """
        gains: dict[Kind, list[list[float]]] = {}
        for task in self._times_us:
            logs = self._logs(task)
            reference = logs[self._default]
            for config, own in logs.items():
                if config != self._default and len(own) == len(reference):
                    gains.setdefault(Kind.of(task, config), []).append(log_gains(own, reference))
        of_schedules, of_settings = (
            [own for kind, groups in gains.items() if kind.is_schedule is which for own in groups]
            for which in (True, False)
        )
        level = variance_level(of_schedules, of_settings)
        found: dict[Kind, VariancePrior] = {}
        for shape in dict.fromkeys(task.shape for task in self._times_us):
            settings, schedules = (Kind(shape, is_schedule) for is_schedule in (False, True))
            alike = [[gain / math.sqrt(level) for gain in own] for own in gains.get(schedules, ())]
            prior = VariancePrior.of([*gains.get(settings, ()), *alike], robust=robust)
            found |= {settings: prior, schedules: prior.times(level)}
        return found
