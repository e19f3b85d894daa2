"""Safety of a shape's entry on communicators whose ranks sit elsewhere than those it won on.

An entry serves all communicators of its shape, which a job may place as it likes. So its calls are
timed in turn with NCCL's own choice on a communicator of each class, with the siblings in use. A
call that is slower in some class, or cannot be timed there, is no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from lookup_tables.table import Shape
from tuccl.models.placements import PlacementClass
from tuccl.search.statistics.estimators import ratios_of_turns
from tuccl.search.statistics.intervals import pairs_interval
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.in_turn import Samples, in_turn
from tuccl.tuning.spending import Fresh

PAIRS = 15
"""Samples of each call and of NCCL's own choice in each class, at most: a call that was as fast in
more than half of them is safe, whatever the others are, and takes no more."""
_ERROR = 0.01
"""Probability that a call which is as fast as NCCL's own choice in a class is called slower."""
_MOST_LOSS = 0.99
"""Least median ratio, whatever its bounds: noise may not hide a larger loss."""


@dataclass(frozen=True, slots=True)
class SlowerAt:
    """A call that is left out, and where."""

    config: Config
    own: PlacementClass
    """The class of communicators on which it is slower."""
    ratio: float | None
    """Time of NCCL's own choice over that of the call; None if it cannot be timed."""

    @property
    def sentence(self) -> str:
        """For people: `left out: slower on communicators such as that of a and b (0.870x)`."""
        what = self.config.describe()
        if self.ratio is None:
            return f"{what} is left out: it cannot be timed on {self.own.text}"
        return f"{what} is left out: slower on {self.own.text} ({self.ratio:.3f}x)"


def seconds(
    sample_s: Mapping[Task, float], classes: Callable[[Shape], Sequence[PlacementClass]]
) -> float:
    """Upper limit of the machine time of one call of each key in all of its classes.

    Args:
        sample_s: Seconds of a sample of each key.
        classes: Classes of each shape.
    """
    counts = {task.shape: len(classes(task.shape)) for task in sample_s}
    return sum(
        PAIRS * counts[task.shape] * each_s
        for task, each_s in sample_s.items()
        if counts[task.shape] > 1
    )


def slower_at(
    task: Task,
    calls: Sequence[Config],
    default: Config,
    classes: Sequence[PlacementClass],
    fresh: Fresh,
) -> dict[Config, tuple[SlowerAt, ...]]:
    """Return where each call is slower than NCCL's own choice, class by class.

    Args:
        task: Operation, size and shape.
        calls: Calls that may be entries.
        default: NCCL's own choice under the table's profile.
        classes: Classes of the shape; fewer than two cannot be told apart.
        fresh: Takes samples.
    """
    found: dict[Config, list[SlowerAt]] = {config: [] for config in calls}
    for own in classes if len(classes) > 1 else ():
        sample = partial(_sample, fresh, replace(task, placement=own.placement))
        samples = in_turn((default, *calls), PAIRS, sample, partial(_settled, default))
        for config in calls:
            slower = _slower(config, own, samples, default)
            if slower is not None:
                found[config].append(slower)
    return {config: tuple(slower) for config, slower in found.items()}


def worst(slower: Iterable[SlowerAt]) -> SlowerAt | None:
    """Return where a call loses most, or cannot be timed; None if it is slower nowhere."""
    return min(slower, key=lambda at: at.ratio or 0.0, default=None)


def _sample(fresh: Fresh, task: Task, config: Config) -> float:
    return fresh(task, config, 1)[0]


def _settled(default: Config, samples: Samples) -> list[Config]:
    """Return calls whose median ratio is at least 1 whatever the samples to come; all: NCCL too."""
    if default not in samples:
        return []
    calls = [config for config in samples if config != default]
    done = [
        config
        for config in calls
        if sum(ratio >= 1.0 for ratio in ratios_of_turns(samples[config], samples[default]))
        > PAIRS // 2
    ]
    return [default, *done] if len(done) == len(calls) else done


def _slower(
    config: Config,
    own: PlacementClass,
    samples: Mapping[Config, Sequence[float]],
    default: Config,
) -> SlowerAt | None:
    if config not in samples or default not in samples:
        return SlowerAt(config, own, None)
    ratios = ratios_of_turns(samples[config], samples[default])
    # The plain median, so that more than half of the turns settle it. The bound is the decision's.
    ratio = median(ratios)
    if ratio >= 1.0 or (ratio >= _MOST_LOSS and pairs_interval(ratios, _ERROR)[1].high >= 1.0):
        return None
    return SlowerAt(config, own, ratio)
