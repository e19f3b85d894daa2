"""A rough estimate of the time of a whole run, printed before it starts.

Generating schedules and searching in the model are bound by one core, and grow with the edges of
the sketches. The constants were fitted to five runs, for 4 to 32 GPUs on one to four nodes, three
operations and eleven sizes: four took within 20 % of the estimate, the run of 24 GPUs two thirds of
it. Another core scales all of them alike.

Where schedules across hosts are made of plans, the work grows with the pairs of GPUs along the
rails; its constants were fitted to runs of 50, 100 and 200 nodes of eight GPUs with four sizes of
one operation, and of 200 nodes with three.

Measuring takes the launches of a typical run at stock NCCL's time in the model, as for
`tune --dry-run`, and the starts of the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from sketches.sketch import Sketch
from tuccl.quantities import format_about
from tuccl.schedules.guidance import worth_trying
from tuccl.tuning.pipeline.dry_run import SearchPlan

_LEAST_SHOWN_S = 60.0
_SCHEDULES_S = 0.0035
"""Seconds of one core for an operation on a sketch with one edge, for all sizes."""
"""Factor of all_reduce, which has two phases."""
_SCHEDULES_POWER = 1.6
"""Power of the number of edges with which that time grows."""
_EXPERT_SHARE, _SYNTHESIS_SHARE, _CHOICE_SHARE = 0.1, 0.7, 0.2
"""Shares of that time: expert algorithms; up to three syntheses; the choice for each size, which
runs on one core only."""
_MOST_SYNTHESES = 3
_SIZES = 11
"""Number of sizes in the runs that the constants were fitted to."""
_SEARCH_S = 0.5
"""Seconds of a key's search in the model, among NCCL's own settings."""
_SEARCH_SCHEDULES_S = 6e-5
"""Seconds of a key's search in the model, among schedules, per edge of a sketch squared."""
_RANK_S = 5e-4
"""Seconds for a rank of a machine of several nodes: figures and placements."""
_RANK_OPERATION_S = 4e-3
"""Seconds for such a rank and an operation: plans across hosts, their proofs and times."""
_PROFILES = 15
"""Starts of the workers: visits of process profiles, and profiles in turn with stock NCCL."""
_LAUNCHES = 200
"""Launches of a key outside its search: in the race of process profiles, and to confirm."""


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """Seconds that a run will roughly take, by stage."""

    schedules_s: float
    """Seconds to generate the missing schedules."""
    measuring_s: float
    """Seconds to measure on the machine, or to search in the model."""
    measures: bool
    """Whether the machine is measured."""
    begun: bool = False
    """Whether the run has measurements already, which take no time again."""

    def line(self) -> str | None:
        """The estimate for people; None where it is less than a minute."""
        total_s = self.schedules_s + self.measuring_s
        if total_s < _LEAST_SHOWN_S:
            return None
        searching = "measuring" if self.measures else "search in the model"
        stages = [
            f"{name} {_rough(seconds)}"
            for name, seconds in (("schedules", self.schedules_s), (searching, self.measuring_s))
            if seconds >= 1.0
        ]
        most = "at most " if self.begun else ""
        return (
            f"this will take {most}roughly {_rough(total_s)} ({', '.join(stages)}); "
            "interrupted, the same command continues"
        )


def schedules_seconds(
    operations: Sequence[Collective],
    sketches: Sequence[Sketch],
    sizes_bytes: Sequence[int],
    workers: int,
) -> float:
    """Seconds to generate the schedules of some operations.

    Args:
        operations: Operations without saved schedules.
        sketches: Sketches of the machine.
        sizes_bytes: Sizes that are tuned.
        workers: Number of processes that work side by side.
    """
    whole_s: float = sum(
        _SCHEDULES_S * len(sketch.edges) ** _SCHEDULES_POWER * operation.passes
        for operation in operations
        for sketch in worth_trying(operation, sketches, sizes_bytes)[0]
    )
    sizes = len(sizes_bytes)
    synthesized = _SYNTHESIS_SHARE * min(sizes, _MOST_SYNTHESES) / _MOST_SYNTHESES
    return whole_s * ((_EXPERT_SHARE + synthesized) / workers + _CHOICE_SHARE * sizes / _SIZES)


def across_hosts_seconds(shape: Shape, operations: int) -> float:
    """Seconds to make the plans across hosts of so many operations, and to search among them."""
    if shape.nodes < 2:
        return 0.0
    return shape.ranks * (_RANK_S + _RANK_OPERATION_S * operations)


def search_seconds(keys: int, sketches: Sequence[Sketch]) -> float:
    """Seconds to search `keys` keys in the model, with schedules on these sketches."""
    edges = max((len(sketch.edges) for sketch in sketches), default=0)
    return keys * (_SEARCH_S + _SEARCH_SCHEDULES_S * edges**2)


def measuring_seconds(plan: SearchPlan) -> float:
    """Seconds to measure on the machine, within the budget if there is one."""
    once_s = plan.pass_s / plan.samples_per_pass if plan.samples_per_pass else 0.0
    searches_s = plan.pass_s if plan.samples_per_pass else plan.whole_space_s
    whole_s = searches_s + _LAUNCHES * once_s + _PROFILES * plan.restart_s
    return whole_s if plan.budget_s is None else min(whole_s, plan.budget_s)


def _rough(seconds: float) -> str:
    return format_about(10.0 * max(1, round(seconds / 10.0)))
