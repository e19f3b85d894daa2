"""Expert schedules for GPUs of one node or several, and the executor's kernels that run them.

Scripts that choose schedules call by call write them to a bundle without entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

from staged_schedules import LANES, staged_schedules, stored_phased

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.table import StoredSchedule
from sketches.sketch import Edge, EdgeKind, Port, Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.layout import Pattern, pattern_in, unpacked
from synthesizer.programs.phase_plans import phased_plans

KERNELS = {
    Collective.ALL_REDUCE: (Pattern.ONE_PHASE, Pattern.TWO_PHASE),
    Collective.ALL_GATHER: (Pattern.DIRECT,),
    Collective.REDUCE_SCATTER: (Pattern.DIRECT,),
    Collective.ALLTOALL: (Pattern.DIRECT,),
}
"""Patterns that the executor has a kernel for."""
Hashes = dict[str, dict[str, dict[str, str]]]
"""Content hashes of schedules that kernels run, by ranks, operation and pattern."""
PHASED = "phased "
"""Beginning of the pattern of schedules across nodes; the name of the plan follows."""


def switched(ranks: int) -> Sketch:
    """GPUs behind one NVSwitch."""
    ports = [Port(f"g{rank}/{way}", 400.0) for rank in range(ranks) for way in ("out", "in")]
    edges = [
        Edge(a, b, EdgeKind.NVLINK, 0.7, 400.0, (f"g{a}/out", f"g{b}/in"))
        for a, b in permutations(range(ranks), 2)
    ]
    return Sketch(
        name=f"switched_{ranks}",
        why="every GPU reaches every other",
        node_of_rank=(0,) * ranks,
        edges=tuple(edges),
        ports=tuple(ports),
        symmetries=(tuple((rank + 1) % ranks for rank in range(ranks)),),
    )


def experts(ranks: int) -> Iterator[Algorithm]:
    """All expert schedules for a number of GPUs."""
    for collective in COLLECTIVES:
        yield from expert_algorithms(collective, switched(ranks))


def stored(algorithm: Algorithm) -> StoredSchedule:
    """A schedule in its form for a bundle."""
    return StoredSchedule(algorithm.content_hash(), algorithm.name, "", compile_program(algorithm))


def with_pattern(program: bytes, pattern: Pattern) -> bytes:
    """The program with another pattern; with `Pattern.NONE` it is interpreted."""
    records = unpacked(program)
    return replace(records, phases=(records.phases[0]._replace(pattern=pattern),)).packed()


@cache
def kernel_schedules(ranks: int) -> dict[tuple[str, str], StoredSchedule]:
    """A schedule for each kernel, by operation and pattern."""
    found: dict[tuple[str, str], StoredSchedule] = {}
    for collective, patterns in KERNELS.items():
        for algorithm in expert_algorithms(collective, switched(ranks)):
            schedule = stored(algorithm)
            pattern = pattern_in(schedule.program)
            if pattern in patterns:
                found.setdefault((collective.value, pattern.name.lower()), schedule)
    return found


def phased_schedules(nodes: int, local_ranks: int) -> dict[tuple[str, str], StoredSchedule]:
    """All schedules across nodes, by operation and pattern."""
    found: dict[tuple[str, str], StoredSchedule] = {}
    for collective in KERNELS:
        plans = phased_plans(collective, nodes, local_ranks)
        for plan in (*plans, *(plan.with_lanes(LANES) for plan in plans)):
            found[collective.value, f"{PHASED}{plan.name}"] = stored_phased(plan, plan.name)
    return found


def nodes_of(ranks: int, node_sizes: Sequence[int]) -> list[int]:
    """Ranks of each node of a communicator of the first ranks."""
    found = []
    for size in node_sizes:
        if ranks > 0:
            found.append(min(size, ranks))
        ranks -= size
    return found


def schedules_across(sizes: Sequence[int]) -> dict[tuple[str, str], StoredSchedule]:
    """All schedules across nodes: plans of phases for equal ones, rounds for any."""
    phased = phased_schedules(len(sizes), sizes[0]) if len(set(sizes)) == 1 else {}
    return phased | staged_schedules(sizes)


def kernels_of(
    counts: Iterable[int], node_sizes: Sequence[int] = ()
) -> tuple[Hashes, list[StoredSchedule]]:
    """Schedules for kernels at several numbers of ranks: their names, and the schedules.

    Args:
        counts: Numbers of ranks.
        node_sizes: Ranks of each node; none: one node has them all.
    """
    names: Hashes = {}
    schedules: list[StoredSchedule] = []
    for ranks in counts:
        sizes = nodes_of(ranks, node_sizes)
        found = schedules_across(sizes) if len(sizes) > 1 else kernel_schedules(ranks)
        for (operation, pattern), schedule in found.items():
            of_operation = names.setdefault(str(ranks), {}).setdefault(operation, {})
            of_operation[pattern] = schedule.content_hash
            schedules.append(schedule)
    return names, schedules
