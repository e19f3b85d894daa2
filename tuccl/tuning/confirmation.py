"""Confirmation over restarts: what stays faster when the workers are started anew.

A decision is taken within one start of the workers, and from start to start the same call differs:
by some tenths of a per cent on NVLink, by up to 20 % over TCP. Stock NCCL's times of the first
start and the last say how much that is here. An entry whose lower bound allows for it needs no more
(`held_against_starts`); others are timed again, together with NCCL's own choice under the profile,
in several starts. Where the median key differs much, all keys are, whether one start proved a gain
or only showed it. For a key of which nothing was proved that may instead be what was proved for the
size above or below, since the start that searched may have been unlucky. A start gives one ratio
per key, of samples taken in turn, since the machine changes within a tenth of a second; a call
becomes an entry if the lower bound of the mean logarithm says that it gains, at a false discovery
rate of 1 % over the keys. Keys that are proved, or that gain nothing on average, are timed no more,
so that later starts are for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tuccl.errors import ConfigurationFailedError
from tuccl.statistics.estimators import geometric_mean, interquartile_mean, log_gains
from tuccl.statistics.looks import Looks, false_discovery_level
from tuccl.statistics.pooling import PooledVariance
from tuccl.trials.config import Config, Task
from tuccl.tuning.decision import ERROR, MIN_GAIN, Decision, in_turn
from tuccl.tuning.restart_decision import (
    Logs,
    allowing_for_starts,
    compared_over_starts,
    decided_again,
    entries_of,
    proved_beside,
    with_likely,
)
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import StockTimes

_LOOKS = Looks((3, 5, 8, 12, 16), power=3.0)
"""After so many starts each open key is decided, if they suffice for it. Some key mostly takes all
of them, so that little is saved by deciding others early."""
_FEWEST_STARTS, MOST_STARTS = _LOOKS.planned[0], _LOOKS.planned[-1]
_FEW, _MANY = 6, 24
"""Fewest and most samples of a call in a start. An even number: over TCP on four H200 every second
launch of small messages took twice as long as the one before."""
_CALL_S = 0.05
"""What a call's samples in a start may take together, as long as that is not too few."""
_WARM_UP = 2
"""What a call's first use in a start costs, in samples: connections, a graph, a launch."""
_TURN_S = 0.0006
"""What a sample costs more than in a row, on H200: the leader asks for each."""


def seconds(restart_s: float, sample_s: Mapping[Task, float]) -> float:
    """What the fewest starts that tell anything take; another profile is up between two of them.

    Args:
        restart_s: For another process profile.
        sample_s: What one sample of each key takes, with two calls each: NCCL's own and another.
    """
    return _FEWEST_STARTS * _seconds_of_start(restart_s, sample_s, dict.fromkeys(sample_s, 2))


def _seconds_of_start(
    restart_s: float, sample_s: Mapping[Task, float], calls: Mapping[Task, int]
) -> float:
    """So many calls of each key."""
    return 2.0 * restart_s + sum(
        count * (_WARM_UP + _samples(sample_s[task])) * (sample_s[task] + _TURN_S)
        for task, count in calls.items()
    )


def _samples(sample_s: float) -> int:
    if sample_s <= 0.0:
        return _MANY
    return max(_FEW, min(_MANY, int(_CALL_S / sample_s) // 2 * 2))


def held_against_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    others: Sequence[Config],
    spending: Spending,
    stock: StockTimes,
    progress: Callable[[int], None],
    keep_s: float = 0.0,
) -> tuple[dict[Task, Decision], int | None]:
    """The decisions, confirmed over several starts only where one is not enough.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        others: See `confirmed_over_starts`.
        spending: Measures.
        stock: Stock NCCL's times of two starts: how far apart they are.
        progress: Told how many starts there were.
        keep_s: What of the budget is not for this.

    Returns:
        The decisions, and the starts that made some of them; 0: none could be had, so that only
        gains beyond what starts differ by are entries; None: none were needed.
    """
    allowed = allowing_for_starts(decisions, default, stock.between_starts())
    if stock.has_moved():
        doubtful = dict(decisions)
    else:
        doubtful = {
            task: one
            for task, one in decisions.items()
            if entries_of(one) != entries_of(allowed[task])
        }
    if not doubtful:
        return allowed, None
    confirmed, starts = confirmed_over_starts(
        doubtful, default, others, spending, stock.sample_s, progress, keep_s
    )
    return (allowed | confirmed if starts else allowed), starts


def confirmed_over_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    others: Sequence[Config],
    spending: Spending,
    sample_s: Mapping[Task, float],
    progress: Callable[[int], None],
    keep_s: float = 0.0,
) -> tuple[dict[Task, Decision], int]:
    """The decisions by several starts: what these do not confirm is out, others may come in.

    Args:
        decisions: By key, each from one start.
        default: NCCL's own choice under the table's profile.
        others: The same under further profiles; the first that is another and runs serves to have
            the workers started anew. Where there is none, decisions stay.
        spending: Measures. Where its budget pays for fewer than three starts, decisions stay.
        sample_s: What one sample of each key takes.
        progress: Told how many starts there were.
        keep_s: What of the budget is not for this.

    Returns:
        The decisions, and the starts that made them; 0: they stayed as they were.
    """
    check = _Check(decisions, default, spending, sample_s)
    if spending.left_s - keep_s < _FEWEST_STARTS * check.seconds_of_start():
        check.forget_suggested()
    between = [other for other in others if other.profile != default.profile]
    starts = 0
    dearer = 1.0  # Than planned, the start before.
    while check.open and starts < MOST_STARTS:
        planned_s = check.seconds_of_start()
        needed_s = dearer * planned_s * (1 if starts else _FEWEST_STARTS)
        if spending.left_s - keep_s < needed_s:
            break
        progress(starts)
        before_s = spending.spent_s
        if not _runs_another(between, list(decisions), spending):
            break
        starts += 1
        check.time(starts)
        dearer = max(1.0, (spending.spent_s - before_s) / planned_s)
        if starts in _LOOKS.planned:
            check.look(starts, last=starts == MOST_STARTS)
    if starts < _FEWEST_STARTS:
        return dict(decisions), 0
    check.look(starts, last=True)
    return check.decisions, starts


def _runs_another(between: list[Config], tasks: Sequence[Task], spending: Spending) -> bool:
    """Whether workers of another profile are up now; what runs for no key is struck off."""
    while between:
        for task in tasks:
            with suppress(ConfigurationFailedError):
                spending.fresh(task, between[0], 1)
                return True
        del between[0]
    return False


class _Check:
    """What starts have shown so far."""

    def __init__(
        self,
        decisions: Mapping[Task, Decision],
        default: Config,
        spending: Spending,
        sample_s: Mapping[Task, float],
    ) -> None:
        self.decisions = dict(decisions)
        self._default = default
        self._spending = spending
        self._sample_s = sample_s
        self._suggested = {
            task: config
            for task in decisions
            if (config := proved_beside(task, decisions)) is not None
        }
        """Calls that were proved beside a key; nobody has looked at their data for it."""
        self._likely: dict[Task, Decision] = {}
        self._logs: dict[Task, Logs] = {}
        for task in decisions:
            self._expect(task)
        self.open: Sequence[Task] = list(self._logs)
        """Keys of which further starts may tell more."""

    def _expect(self, task: Task) -> None:
        """What of a key is to be timed, if anything is."""
        likely = with_likely(self.decisions[task], self._suggested.get(task), self._default)
        self._likely[task] = likely
        self._logs.pop(task, None)
        if entries_of(likely):
            self._logs[task] = {config: [] for config in (self._default, *entries_of(likely))}

    def forget_suggested(self, tasks: Sequence[Task] | None = None) -> None:
        """Before the first start is timed: leave these keys, or all, to what they showed."""
        for task in list(self._suggested) if tasks is None else tasks:
            del self._suggested[task]
            self._expect(task)
        self.open = [task for task in self.decisions if task in self._logs]

    def seconds_of_start(self) -> float:
        """What the next start takes."""
        calls = {task: len(self._logs[task]) for task in self.open}
        return _seconds_of_start(self._spending.restart_s, self._sample_s, calls)

    def time(self, starts: int) -> None:
        """Time the open keys in the latest of so many starts.

        What comes first finds colder connections: in the first start and every other that is not
        NCCL's own choice, so that nothing becomes an entry by it.
        """
        with suppress(ConfigurationFailedError):
            self._spending.fresh(self.open[0], self._default, 1)  # The table's profile comes up.
        if starts == 1:
            is_right = self._spending.is_right
            self.forget_suggested([t for t, one in self._suggested.items() if not is_right(t, one)])
        for task in self.open:
            logs = self._logs[task]
            # What failed in a start has too few for good.
            calls = [config for config, own in logs.items() if len(own) == starts - 1]
            samples_us = in_turn(
                calls[:: -1 if starts % 2 else 1],
                _samples(self._sample_s[task]),
                partial(self._next_us, task),
            )
            for config, own in samples_us.items():
                logs[config].append(math.log(interquartile_mean(own)))

    def _next_us(self, task: Task, config: Config) -> float:
        return self._spending.fresh(task, config, 1)[0]

    def look(self, starts: int, *, last: bool) -> None:
        """Decide the open keys by so many starts, and close those that need no more."""
        gains = {task: self._counted(task) for task in self._logs}
        others = {
            task: PooledVariance.of(
                one for other, own in gains.items() if other != task for one in own
            )
            for task in self.open
        }
        closed = sum(
            len(entries_of(self.decisions[task])) for task in self._logs if task not in self.open
        )

        def decided(error: float) -> dict[Task, Decision]:
            of_look = _LOOKS.error_at(starts, error, last=last)
            return {task: self._again(task, starts, others[task], of_look) for task in self.open}

        def proved(error: float) -> int:
            return closed + sum(len(entries_of(one)) for one in decided(error).values())

        compared = sum(len(entries_of(self._likely[task])) for task in self._logs)
        now = decided(false_discovery_level(ERROR, compared, proved)) if self.open else {}
        self.decisions |= now
        self.open = [task for task in self.open if self._may_gain(task)]

    def _again(self, task: Task, starts: int, others: PooledVariance, error: float) -> Decision:
        """A key by so many starts.

        Args:
            task: The key.
            starts: That its calls were timed in.
            others: How far a ratio of one start is off, by other keys.
            error: Of a lower bound.
        """
        logs = self._logs[task]
        compare = partial(
            compared_over_starts, logs, starts, _samples(self._sample_s[task]), others, error
        )
        now = decided_again(self._likely[task], self._default, compare)
        if logs[self._default]:
            now = replace(now, profile_default_us=geometric_mean(logs[self._default]))
        return now

    def _may_gain(self, task: Task) -> bool:
        """Whether something that is not proved gains on average."""
        dropped = self.decisions[task].rejected[len(self._likely[task].rejected) :]
        return any(one.lower_bound > 0.0 and one.ratio >= MIN_GAIN for one in dropped)

    def _counted(self, task: Task) -> list[list[float]]:
        """A key's gains by call, which say how far a start's ratios may be off for other keys.

        Without what was suggested, so that one odd call does not stand in the way of other keys.
        """
        logs = self._logs[task]
        reference = logs[self._default]
        left_out = (self._default, self._suggested.get(task))
        return [
            log_gains(own, reference)
            for config, own in logs.items()
            if config not in left_out and len(own) == len(reference)
        ]
