"""Candidates for the executor on nodes of different sizes: schedules in stages and rounds.

Plans of phases need nodes of equal size. Here the expert algorithms of the whole machine are cut
(`tuccl.programs.staged`): those that the model of interpreted schedules takes to be near the
fastest at some size, and the one with the fewest rounds at every size, since the model knows
nothing of what a round costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from tuccl.lookup_tables.table import Operation
from tuccl.programs.errors import NoProgramError
from tuccl.programs.staged.cutting import cut
from tuccl.schedules.candidates import Candidate, promises_of, promising
from tuccl.sketches.sketch import Sketch
from tuccl.synthesizer.bounds.time_bounds import time_bound
from tuccl.synthesizer.experts import expert_algorithms
from tuccl.synthesizer.ir.collectives import Collective

OPERATIONS = frozenset({Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER})
"""Operations that have such candidates."""
MOST_STEPS = 20_000
"""Most steps of an algorithm that is cut and proved: seconds of work."""


def node_sizes_of(machine: Sketch) -> tuple[int, ...]:
    """Return the ranks of each node; nothing where a node's ranks do not follow one another."""
    runs = [(node, len(list(ranks))) for node, ranks in groupby(machine.node_of_rank)]
    if len({node for node, _ in runs}) < len(runs):
        return ()
    return tuple(size for _, size in runs)


def staged_candidates(
    operation: Operation, machine: Sketch, sizes_bytes: Sequence[int]
) -> tuple[Candidate, ...]:
    """Return the candidates of an operation, each with the sizes that it is for.

    Args:
        operation: The operation; some have none.
        machine: The whole machine, unpruned, of several nodes.
        sizes_bytes: Sizes that are tuned.
    """
    sizes = node_sizes_of(machine)
    if operation not in OPERATIONS or not sizes:
        return ()
    collective = Collective(operation.value)
    rounds: dict[str, int] = {}
    found: dict[str, Candidate] = {}
    for algorithm in expert_algorithms(collective, machine):
        if algorithm.step_count > MOST_STEPS:
            continue
        candidate = Candidate(algorithm, machine, "expert in rounds", node_sizes=sizes)
        try:
            content_hash = candidate.content_hash
        except NoProgramError:
            continue
        rounds[content_hash] = len(cut(algorithm, sizes).rounds)
        found.setdefault(content_hash, candidate)
    if not found:
        return ()
    fewest = min(found, key=lambda each: rounds[each])
    bound = time_bound(collective, machine)
    everywhere = promises_of(found[fewest], bound, sizes_bytes)
    kept = promising(collective, machine, list(found.values()), sizes_bytes)
    others = tuple(candidate for candidate in kept if candidate.content_hash != fewest)
    return (replace(found[fewest], promises=everywhere), *others)
