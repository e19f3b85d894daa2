"""What a process profile does on communicators that a run does not tune.

What NCCL reads once per process reaches every communicator of a job, and no entry gives back what
it costs where nothing was tuned. So before a profile may win, NCCL's own choice is timed on all
shapes that jobs may have on the machine, at a few sizes of each operation, in starts of stock NCCL
and of the profile in turn, against the floor of the tuned keys. What the executor sets on
communicators of the tuned shapes (`lookup_tables.table.COMMUNICATOR_VARIABLES`) is not among it
where jobs have the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from lookup_tables.table import COMMUNICATOR_VARIABLES, Shape
from tuccl.search.trials.config import STOCK, ProcessProfile, Task
from tuccl.search.trials.shapes import shapes_beside
from tuccl.tuning.guaranteed_minimum import Finalist, Floor, Rounds, Verdict, compare_in_turn

_OF_COMMUNICATORS = frozenset(
    name for name, since in COMMUNICATOR_VARIABLES.items() if since == (2, 17)
)
"""Those that every NCCL with a tuner can set on a communicator; others are timed in any case."""
_LARGEST_BYTES = 64 << 20
"""Largest size, beyond which a slow network takes the budget."""


def tasks_beside(tuned: Sequence[Task], whole: Shape) -> tuple[Task, ...]:
    """Return calls on communicators that are not tuned: the least, middle and largest size.

    Args:
        tuned: The keys of the run, of any placement.
        whole: Shape of the communicator of all GPUs.
    """
    sizes: dict[str, list[int]] = {}
    first = {task.operation: task for task in reversed(tuned)}
    for task in tuned:
        sizes.setdefault(task.operation, []).append(task.size_bytes)
    found = []
    for shape in shapes_beside({task.shape for task in tuned}, whole):
        for operation, example in sorted(first.items()):
            own = sorted(set(sizes[operation]))
            own = [size for size in own if size <= _LARGEST_BYTES] or own[:1]
            few = dict.fromkeys((own[0], own[len(own) // 2], own[-1]))
            found += [replace(example, size_bytes=size, shape=shape) for size in few]
    return tuple(found)


def part_of_process(profile: ProcessProfile, *, executor: bool) -> ProcessProfile:
    """Return what communicators that were not tuned have of a profile.

    Args:
        profile: The profile.
        executor: Whether jobs have the executor.
    """
    kept = [
        (name, value)
        for name, value in profile.variables
        if not (executor and name in _OF_COMMUNICATORS)
    ]
    return ProcessProfile.of(tuple(kept))


@dataclass
class UntunedShapes:
    """Times profiles on communicators that a run does not tune."""

    tasks: Collection[Task]
    """Calls on them; none where the run tunes all shapes, or runs no NCCL."""
    floor: Floor | None
    executor: bool
    """Whether jobs have the executor."""
    affords: Callable[[int], bool]
    """Whether the budget pays for a number of further starts."""
    _seen: dict[ProcessProfile, Verdict | None] = field(default_factory=dict)

    def needs_starts(self, profile: ProcessProfile) -> bool:
        """Whether anything of a profile reaches such communicators."""
        part = part_of_process(profile, executor=self.executor)
        return self.floor is not None and bool(self.tasks) and part != STOCK.profile

    def verdict(self, profile: ProcessProfile) -> Verdict | None:
        """Return whether they keep the floor under a profile; None: the budget paid for no answer.

        Only of a profile that needs starts.
        """
        part = part_of_process(profile, executor=self.executor)
        if part not in self._seen and self.floor is not None:
            finalist = Finalist(part, {task: [part.default] for task in self.tasks})
            least, fresh = self.floor.least, self.floor.fresh
            judged = compare_in_turn(Rounds([finalist], fresh), least, self.affords)
            self._seen[part] = judged.get(part)
        return self._seen.get(part)
