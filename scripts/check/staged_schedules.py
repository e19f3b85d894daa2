"""Schedules in stages and rounds for nodes of any sizes: gateways, rings, random trees, search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import content_address
from lookup_tables.table import StoredSchedule
from probes.topology.graph import Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates
from synthesizer.experts.gateways import Gateways, programs_over
from synthesizer.experts.ring import ring_all_reduce
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.program import Program
from synthesizer.lower.lowering import lower
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.cutting import cut
from synthesizer.programs.phases import PhasedSchedule
from tests.sketches.machines import host, slowed

LANES = 2
"""Lanes of schedules across nodes: more need more cores than four ranks have on sixteen (cores.h).
"""
STAGED = "staged "
"""Beginning of the pattern of these schedules; the name of one follows."""
_RANDOM = 2
_TREES = (1, 3)
_SEARCH_S = 0.5


def rows_of(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The ranks of each node."""
    ranks = iter(range(sum(sizes)))
    return tuple(tuple(islice(ranks, size)) for size in sizes)


def programs_of(
    collective: Collective, sizes: Sequence[int], root: int = 0
) -> Iterator[tuple[str, Program]]:
    """Programs of a collective for such nodes, by name."""
    rows = rows_of(sizes)
    routes = dict.fromkeys(
        tuple(row[turn % len(row)] for row in rows) for turn in range(max(sizes))
    )
    yield from programs_over(Gateways(rows, tuple(routes)), collective, root)
    ranks = sum(sizes)
    if collective is Collective.ALLTOALL:
        yield "direct", direct_alltoall(ranks)
    if collective is Collective.ALL_REDUCE:
        yield "ring", ring_all_reduce([tuple(range(ranks))])
        for seed in range(_RANDOM):
            yield f"trees {seed}", random_all_reduce(np.random.default_rng(seed), ranks, 2 + seed)


def direct_alltoall(ranks: int) -> Program:
    """An alltoall in which every rank sends to every rank."""
    program = Program(Collective.ALLTOALL, ranks, 1, in_place=False)
    for src in range(ranks):
        for dst in range(ranks):
            program.copy(program.input(src, dst), program.output(dst, src))
    return program


def random_all_reduce(dice: np.random.Generator, ranks: int, chunks: int) -> Program:
    """An all_reduce over random trees: sums and copies of each chunk."""
    program = Program(Collective.ALL_REDUCE, ranks, chunks)
    for chunk in range(chunks):
        partial = [program.input(rank, chunk) for rank in range(ranks)]
        while len(partial) > 1:
            left, right = (partial.pop(int(dice.integers(len(partial)))) for _ in range(2))
            partial.append(program.reduce(left, program.scratch(right.rank), right))
        (total,) = partial
        held = [program.copy(total, program.output(total.rank, chunk))]
        for rank in dice.permutation(ranks).tolist():
            if rank != total.rank:
                source = held[int(dice.integers(len(held)))]
                held.append(program.copy(source, program.output(rank, chunk)))
    return program


def with_slow_nic(sizes: Sequence[int]) -> Topology:
    """Nodes with a NIC for each GPU, the first of which has half of the others' bandwidth."""
    gpus = max(sizes)
    network = Network(1.7, NetworkLayout.FABRIC, 12.5)
    return slowed(replicate(host(gpus, gpus), len(sizes), network, sizes), "n0/nic0", 0.5)


def searched_of(collective: Collective, sizes: Sequence[int], root: int) -> Iterator[Algorithm]:
    """Schedules that are synthesized on a sketch of such nodes, as `tuccl init` does it."""
    *_, sketch = sketch_candidates(with_slow_nic(sizes))
    for trees in _TREES:
        options = SynthesisOptions(_SEARCH_S, trees_per_rank=trees, pieces_per_tree=1)
        yield synthesize(collective, sketch, 1 << 20, options, root).algorithm


def staged_of(collective: Collective, sizes: Sequence[int], root: int = 0) -> list[PhasedSchedule]:
    """These programs and the searched schedules in stages and rounds."""
    root = root if collective.has_root else 0
    programs = [lower(program, name) for name, program in programs_of(collective, sizes, root)]
    return [cut(each, sizes) for each in (*programs, *searched_of(collective, sizes, root))]


def stored_phased(schedule: PhasedSchedule, name: str) -> StoredSchedule:
    """A schedule in its form for a bundle."""
    program = compile_program(schedule)
    return StoredSchedule(content_address(program).hex(), name, "", program)


def staged_schedules(sizes: Sequence[int]) -> dict[tuple[str, str], StoredSchedule]:
    """All of them, of one lane and of several, by operation and pattern."""
    found: dict[tuple[str, str], StoredSchedule] = {}
    for collective in COLLECTIVES:
        for number, staged in enumerate(staged_of(collective, sizes)):
            for each in (staged, staged.with_lanes(LANES)):
                pattern = f"{STAGED}{number}, lanes: {each.lanes}"
                found[collective.value, pattern] = stored_phased(each, pattern)
    return found
