"""What stays faster when the workers are started anew, where starts differ much.

A decision is taken within one start of the workers. On NVLink the same call takes the same from
start to start, within a few tenths of a per cent; over TCP it was seen to differ by 20 %, and a
call that won in one start may lose in the next. Where stock NCCL shows such differences, the best
call of each key, whether one start proved its gain or only showed it, and NCCL's own choice under
the profile are timed in several starts. For a key of which nothing was proved that may instead be
what was proved for the size above or below, since the start that searched may have been unlucky. A
start gives one ratio per key, of samples taken in turn, since the machine changes within a tenth of
a second; a call becomes an entry if the lower bound of the mean logarithm says that it gains. Keys
that are proved, or that gain nothing on average, are timed no more, so that later starts are for
the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev, variance

from tuccl.errors import ConfigurationFailedError
from tuccl.trials.config import Config, Task
from tuccl.tuning.decision import MIN_GAIN, Comparison, Decision, in_turn
from tuccl.tuning.sample_statistics import interquartile_mean, student_quantile
from tuccl.tuning.spending import Spending

_CONFIDENCE = 0.95
_LOOKS = (3, 5, 8, 12)
"""After so many starts each open key is decided, if they suffice for it."""
MOST_STARTS = _LOOKS[-1]
_FEW, _MANY = 6, 24
"""Fewest and most samples of a call in a start. An even number: over TCP on four H200 every second
launch of small messages took twice as long as the one before."""
_CALL_S = 0.05
"""What a call's samples in a start may take together, as long as that is not too few."""
_WARM_UP = 2
"""What a call's first use in a start costs, in samples: connections, a graph, a launch."""
_TURN_S = 0.0006
"""What a sample costs more than in a row, on H200: the leader asks for each."""
_UNLIKE = 2.0
"""From this ratio of its variance to that of all keys together on, a key stands for itself."""
_LUCK = 0.85
"""What one start showed to be slower than this is slower. Over TCP a start's ratio was off by 8 %
(the standard deviation), and calls that gain 12 % showed 0.94."""
_Logs = dict[Config, list[float]]
"""Logarithm of each call's time in each start."""


def seconds(restart_s: float, sample_s: Mapping[Task, float]) -> float:
    """What the fewest starts that tell anything take; another profile is up between two of them.

    Args:
        restart_s: For another process profile.
        sample_s: What one sample of each key takes, with two calls each: NCCL's own and another.
    """
    return _LOOKS[0] * _seconds_of_start(restart_s, sample_s, dict.fromkeys(sample_s, 2))


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


def confirmed_over_starts(
    decisions: Mapping[Task, Decision],
    default: Config,
    others: Sequence[Config],
    spending: Spending,
    sample_s: Mapping[Task, float],
    progress: Callable[[int], None],
    keep_s: float = 0.0,
) -> tuple[dict[Task, Decision], int]:
    """The decisions by what outlasts a start: entries that do not are out, others may come in.

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
    if spending.left_s - keep_s < _LOOKS[0] * check.seconds_of_start():
        check.forget_suggested()
    between = [other for other in others if other.profile != default.profile]
    starts = 0
    dearer = 1.0  # Than planned, the start before.
    while check.open and starts < MOST_STARTS:
        planned_s = check.seconds_of_start()
        needed_s = dearer * planned_s * (1 if starts else _LOOKS[0])
        if spending.left_s - keep_s < needed_s:
            break
        progress(starts)
        before_s = spending.spent_s
        if not _runs_another(between, list(decisions), spending):
            break
        starts += 1
        check.time(starts)
        dearer = max(1.0, (spending.spent_s - before_s) / planned_s)
        if starts in _LOOKS:
            check.look(starts)
    if starts < _LOOKS[0]:
        return dict(decisions), 0
    check.look(starts)
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
            task: config for task in decisions if (config := _beside(task, decisions)) is not None
        }
        """Calls that were proved beside a key; nobody has looked at their data for it."""
        self._likely: dict[Task, Decision] = {}
        self._logs: dict[Task, _Logs] = {}
        for task in decisions:
            self._expect(task)
        self.open: Sequence[Task] = list(self._logs)
        """Keys of which further starts may tell more."""

    def _expect(self, task: Task) -> None:
        """What of a key is to be timed, if anything is."""
        likely = _with_likely(self.decisions[task], self._suggested.get(task))
        self._likely[task] = likely
        self._logs.pop(task, None)
        if _entries(likely):
            self._logs[task] = {config: [] for config in (self._default, *_entries(likely))}

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

    def look(self, starts: int) -> None:
        """Decide the open keys by so many starts, and close those that need no more."""
        noise = self._noise()
        still_open = []
        for task in self.open:
            likely = self._likely[task]
            logs = self._logs[task]
            compare = partial(_compared, logs, starts, _samples(self._sample_s[task]), noise)
            now = _again(likely, self._default, compare)
            if logs[self._default]:
                now = replace(now, profile_default_us=math.exp(fmean(logs[self._default])))
            self.decisions[task] = now
            dropped = now.rejected[len(likely.rejected) :]
            if any(one.lower_bound > 0.0 and one.ratio >= MIN_GAIN for one in dropped):
                still_open.append(task)
        self.open = still_open

    def _noise(self) -> _Noise:
        """Of a start's ratios, over all keys together.

        Without what was suggested, so that one odd call does not stand in the way of other keys.
        """
        squares, freedom = 0.0, 0
        for task, logs in self._logs.items():
            reference = logs[self._default]
            left_out = (self._default, self._suggested.get(task))
            for config, own in logs.items():
                if config not in left_out and len(own) == len(reference) > 1:
                    gains = [b - a for a, b in zip(own, reference, strict=True)]
                    squares += (len(gains) - 1) * variance(gains)
                    freedom += len(gains) - 1
        return _Noise(squares / max(1, freedom), max(1, freedom))


@dataclass(frozen=True, slots=True)
class _Noise:
    """How far one start's ratio may be off."""

    variance: float
    """Of a ratio's logarithm."""
    freedom: int

    def width(self, gains: Sequence[float]) -> float:
        """From the mean of a key's logarithms to its lower bound, by Student's distribution.

        A few starts say little about one key's variance, so that of all keys counts; the key's own
        where that is larger, with its own few degrees of freedom where it is larger by far.
        """
        own = variance(gains)
        freedom = len(gains) - 1 if own > _UNLIKE * self.variance else self.freedom
        error = (1.0 - _CONFIDENCE) / len(_LOOKS)
        quantile = student_quantile(1.0 - error, freedom)
        return quantile * math.sqrt(max(own, self.variance) / len(gains))


def _beside(task: Task, decisions: Mapping[Task, Decision]) -> Config | None:
    """What was proved for the size above or below, where that says more than the key's own start.

    A key that something was proved of keeps to that. Otherwise what was held against NCCL's own
    choice there counts for more than a neighbour: by what it gained, or unless it lost by far.
    """
    alike = sorted(
        (one for one in decisions if (one.operation, one.shape) == (task.operation, task.shape)),
        key=lambda one: one.size_bytes,
    )
    at = alike.index(task)
    nearby = (decisions[one].builtin for one in (*alike[max(0, at - 1) : at], *alike[at + 1 :][:1]))
    proved = [one for one in nearby if one is not None]
    decision = decisions[task]
    if decision.builtin is not None or not proved:
        return None
    best = max(proved, key=lambda one: (one.lower_bound, one.config))
    own = {one.config: one.ratio for one in decision.rejected if not one.config.is_schedule}
    shown = max(own.values(), default=0.0)
    if best.config in own:
        says_more = shown < MIN_GAIN and own[best.config] >= _LUCK
    else:
        says_more = shown < best.lower_bound
    return best.config if says_more else None


def _with_likely(decision: Decision, suggested: Config | None) -> Decision:
    """The decision as if what may be faster, but was not proved, were proved.

    Of the built-in calls that is what is suggested, or else what one start showed to be faster.
    """
    likely = sorted(
        (one for one in decision.rejected if one.ratio >= MIN_GAIN),
        key=lambda one: (-one.ratio, one.config),
    )
    builtins = (
        decision.builtin,
        None if suggested is None else _known(decision, suggested),
        *(one for one in likely if not one.config.is_schedule),
    )
    schedules = (decision.schedule, *(one for one in likely if one.config.is_schedule))
    builtin = next((one for one in builtins if one is not None), None)
    schedule = next((one for one in schedules if one is not None), None)
    taken = [one.config for one in (builtin, schedule) if one is not None]
    rejected = tuple(one for one in decision.rejected if one.config not in taken)
    return replace(decision, builtin=builtin, schedule=schedule, rejected=rejected)


def _known(decision: Decision, suggested: Config) -> Comparison:
    """What one start showed of it; no samples where that is nothing."""
    default_us = decision.profile_default_us
    nothing = Comparison(
        config=suggested,
        time_us=default_us,
        reference_us=default_us,
        ratio=1.0,
        lower_bound=0.0,
        samples=0,
        spread=0.0,
    )
    return next((one for one in decision.rejected if one.config == suggested), nothing)


def _entries(decision: Decision) -> tuple[Config, ...]:
    found = (decision.builtin, decision.schedule)
    return tuple(comparison.config for comparison in found if comparison is not None)


def _compared(
    logs: _Logs,
    starts: int,
    samples: int,
    noise: _Noise,
    config: Config,
    reference: Config,
    before: Comparison,
) -> Comparison:
    """A call against a reference by its starts; never proved where one of the two failed."""
    times, others = logs[config], logs[reference]
    if not len(times) == len(others) == starts:
        return replace(before, lower_bound=0.0)
    gains = [b - a for a, b in zip(times, others, strict=True)]
    return Comparison(
        config=config,
        time_us=math.exp(fmean(times)),
        reference_us=math.exp(fmean(others)),
        ratio=math.exp(fmean(gains)),
        lower_bound=math.exp(fmean(gains) - noise.width(gains)),
        samples=starts * samples,
        spread=stdev(times),
    )


def _again(
    decision: Decision,
    default: Config,
    compare: Callable[[Config, Config, Comparison], Comparison],
) -> Decision:
    """The decision by what several starts showed."""
    dropped = []
    builtin, schedule = decision.builtin, decision.schedule
    if builtin is not None:
        builtin = compare(builtin.config, default, builtin)
        if not builtin.proved:
            # Of what was proved beside it and failed here nothing is known.
            dropped += [builtin] if builtin.samples else []
            builtin = None
    if schedule is not None:
        reference = default if builtin is None else builtin.config
        schedule = compare(schedule.config, reference, schedule)
        if not schedule.proved:
            dropped.append(schedule)
            schedule = None
    rejected = (*decision.rejected, *dropped)
    return replace(decision, builtin=builtin, schedule=schedule, rejected=rejected)
