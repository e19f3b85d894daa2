"""A rough estimate of a whole run, said before it starts.

Making schedules and searching in the model keep a core busy, for a time that grows with the edges
of the sketches. The constants were fitted to five runs, for 4 to 32 GPUs on one to four nodes,
three operations and eleven sizes: four are met within 20 %, the one of 24 GPUs took two thirds of
what is said. On another core all of them shift together. Measuring takes what stock NCCL's launches
take in the model, as `tune --dry-run` has them, times the launches that runs ask for, and the
starts of the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lookup_tables.table import Operation
from sketches.sketch import Sketch
from synthesizer.ir.collectives import Collective
from tuccl.pipeline.dry_run import SearchPlan
from tuccl.schedules.guidance import worth_trying
from tuccl.words.durations import format_about

_WORTH_SAYING_S = 60.0
_SCHEDULES_S = 0.0035
"""On one core, for an operation on a sketch with one edge and all sizes."""
_ALL_REDUCE = 2.0
"""It has two phases."""
_SCHEDULES_POWER = 1.6
"""Power of the number of edges."""
_LOOKED_AT, _PER_SIZE, _WEIGHED = 0.1, 0.7, 0.2
"""Shares of that time: expert algorithms; syntheses, up to three; the choice for each size, which
no other core takes part in."""
_MOST_SYNTHESES = 3
_SIZES = 11
"""That the constants were fitted to."""
_SEARCH_S = 0.5
"""Seconds of a key in the model, NCCL's own settings."""
_SEARCH_SCHEDULES_S = 6e-5
"""Seconds of a key in the model, for schedules on a sketch with one edge; by the edges squared."""
_PROFILES = 15
"""Starts of the workers: visits of process profiles, and profiles in turn with stock NCCL."""
_LAUNCHES = 200
"""Launches of a key beside its search: in the race of process profiles, and to confirm."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that a run will roughly take, by what it does."""

    schedules_s: float
    """Making those that are missing."""
    measuring_s: float
    """Measuring on the machine, or searching in the model."""
    measures: bool
    """Whether the machine is measured."""
    begun: bool = False
    """Whether there are measurements already, which take no time again."""

    def line(self) -> str | None:
        """For people; None where it takes no minute."""
        total_s = self.schedules_s + self.measuring_s
        if total_s < _WORTH_SAYING_S:
            return None
        searching = "measuring" if self.measures else "search in the model"
        parts = [
            f"{name} {_rough(seconds)}"
            for name, seconds in (("schedules", self.schedules_s), (searching, self.measuring_s))
            if seconds >= 1.0
        ]
        most = "at most " if self.begun else ""
        return (
            f"this will take {most}roughly {_rough(total_s)} ({', '.join(parts)}); "
            "interrupted, the same command continues"
        )


def schedules_seconds(
    operations: Sequence[Operation],
    sketches: Sequence[Sketch],
    sizes_bytes: Sequence[int],
    workers: int,
) -> float:
    """Making the schedules of these operations on these sketches.

    Args:
        operations: Whose schedules are missing.
        sketches: Of the machine.
        sizes_bytes: That are tuned.
        workers: Processes that work side by side.
    """
    whole_s: float = sum(
        _SCHEDULES_S * len(sketch.edges) ** _SCHEDULES_POWER * _phases(operation)
        for operation in operations
        for sketch in worth_trying(Collective(operation.value), sketches, sizes_bytes)[0]
    )
    sizes = len(sizes_bytes)
    synthesized = _PER_SIZE * min(sizes, _MOST_SYNTHESES) / _MOST_SYNTHESES
    return whole_s * ((_LOOKED_AT + synthesized) / workers + _WEIGHED * sizes / _SIZES)


def search_seconds(keys: int, sketches: Sequence[Sketch]) -> float:
    """Searching so many keys in the model, with schedules on these sketches."""
    edges = max((len(sketch.edges) for sketch in sketches), default=0)
    return keys * (_SEARCH_S + _SEARCH_SCHEDULES_S * edges**2)


def measuring_seconds(plan: SearchPlan) -> float:
    """Measuring on the machine, within the budget if there is one."""
    once_s = plan.pass_s / plan.samples_per_pass if plan.samples_per_pass else 0.0
    searches_s = plan.pass_s if plan.samples_per_pass else plan.whole_space_s
    whole_s = searches_s + _LAUNCHES * once_s + _PROFILES * plan.restart_s
    return whole_s if plan.budget_s is None else min(whole_s, plan.budget_s)


def _rough(seconds: float) -> str:
    return format_about(10.0 * max(1, round(seconds / 10.0)))


def _phases(operation: Operation) -> float:
    return _ALL_REDUCE if operation is Operation.ALL_REDUCE else 1.0
