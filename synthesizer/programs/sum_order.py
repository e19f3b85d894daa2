"""The order in which a program adds up the ranks' parts of an element, as the executor runs it.

An order is a tree: a rank, or a sum of trees, which are added from left to right in the type of
additions (32 bits for floats of 16) and rounded once to the type of the call. The first two
summands may change places, since one addition of IEEE numbers does not depend on that; nothing else
may. Sums of floats are bitwise equal for equal parts of the ranks exactly if their trees are.

An order is told only where it is known for every element, whatever the size and the place of the
call's buffers:

- Kernels of a pattern (`tuccl/runtime/executor/patterns.cuh`) add all ranks' parts in the order of
  ranks, at the end of a buffer and at unaligned addresses, too.
- Kernels of sums (`sums.cu`) add chunks in the order of nodes.
- NCCL's calls along a rail add two parts in one addition. Of more parts it chooses an order that
  differs from chunk to chunk, so none is told of a plan that leaves such sums to it. That includes
  the elements of an all_reduce that do not divide into the plan's chunks, which are reduced by a
  call of their own along the rail.
- Steps are interpreted after they were joined to moves, in which sums may change their order
  (`program_moves.cc`), and statements round every sum: of both no order is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from lookup_tables.program_header import MOST_KERNEL_RANKS
from lookup_tables.table import Shape
from synthesizer.ir.algorithm import Buffer
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phases import CallPhase, PhasedSchedule, groups, received
from synthesizer.programs.proof import is_within_reach

Tree = int | tuple["Tree", ...]
"""A rank, or a sum of two trees or more."""

_Held = tuple[int, Tree]
"""Input chunk and order of what a chunk holds."""


def sum_of(parts: Sequence[Tree]) -> Tree:
    """Return the sum of trees from left to right, the smaller one of the first two first."""
    if len(parts) == 1:
        return parts[0]
    first, second, *others = parts
    if ranks_of(second) < ranks_of(first):
        first, second = second, first
    return (first, second, *others)


def ranks_of(tree: Tree) -> tuple[int, ...]:
    """Return the ranks of a tree from left to right."""
    if isinstance(tree, int):
        return (tree,)
    return tuple(rank for part in tree for rank in ranks_of(part))


def order_text(tree: Tree) -> str:
    """Return a tree as text: `((0+1)+(2+3))`."""
    if isinstance(tree, int):
        return str(tree)
    return f"({'+'.join(map(order_text, tree))})"


def order_of_nodes(shape: Shape) -> Tree | None:
    """Return the order of ranks in each node, then of nodes; None if nodes differ in size.

    It is the one order that kernels and plans have, and so that of tables whose sums do not move.
    """
    if shape.nodes == 1:
        return sum_of(range(shape.ranks))
    if not shape.ranks_per_node:
        return None
    local = shape.ranks_per_node
    return sum_of([sum_of(range(at, at + local)) for at in range(0, shape.ranks, local)])


def order_of_kernels(ranks: int) -> Tree | None:
    """Return the order of a pattern's kernels; None if they do not serve so many ranks."""
    return sum_of(range(ranks)) if 2 <= ranks <= MOST_KERNEL_RANKS else None


@lru_cache(maxsize=256)
def order_of_phases(phased: PhasedSchedule) -> Tree | None:
    """Return the order of a schedule across hosts; None if it has no single one.

    Args:
        phased: A proved schedule.
    """
    if not (phased.is_uniform and phased.collective.reduces and is_within_reach(phased)):
        return None
    divides = bool(phased.collective.divides)
    if not divides and phased.chunks > 1 and phased.nodes > 2:  # Elements that are left over.
        return None
    if any(_is_left_to_nccl(phase, phased.nodes) for phase in phased.calls):
        return None
    found = set(_results(phased))
    return found.pop() if len(found) == 1 else None


def _is_left_to_nccl(phase: CallPhase, nodes: int) -> bool:
    return phase.kind is PhaseKind.RAIL and phase.collective.reduces and nodes > 2


def _results(phased: PhasedSchedule) -> Iterator[Tree]:
    """Yield the order of every chunk of every rank's output."""
    bases = [phased.addresses(rank, in_place=False) for rank in range(phased.ranks)]
    memory: list[dict[int, _Held]] = []
    for rank, base in enumerate(bases):
        first = base[Buffer.INPUT]
        count = phased.chunks_of(Buffer.INPUT, rank)
        memory.append({first + chunk: (chunk, rank) for chunk in range(count)})
    for phase in phased.calls:
        for members in groups(phased, phase):
            for call in range(phase.calls):
                _run(phase, members, call, bases, memory)
    for rank, base in enumerate(bases):
        first = base[Buffer.OUTPUT]
        for chunk in range(phased.chunks_of(Buffer.OUTPUT, rank)):
            yield memory[rank][first + chunk][1]


def _run(
    phase: CallPhase,
    members: Sequence[int],
    call: int,
    bases: Sequence[dict[Buffer, int]],
    memory: Sequence[dict[int, _Held]],
) -> None:
    source = phase.source.chunk + call * phase.source_stride
    target = phase.target.chunk + call * phase.target_stride
    length = phase.source_chunks(len(members))
    sources = []
    for rank in members:
        at = bases[rank][phase.source.buffer] + source
        sources.append([memory[rank][at + i] for i in range(length)])
    for rank, held in zip(members, received(phase, sources, _added), strict=True):
        at = bases[rank][phase.target.buffer] + target
        memory[rank].update((at + i, value) for i, value in enumerate(held))


def _added(parts: Sequence[_Held]) -> _Held:
    return parts[0][0], sum_of([tree for _, tree in parts])
