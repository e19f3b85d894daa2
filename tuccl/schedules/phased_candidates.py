"""Candidates for the executor on several nodes: the plans of phases (`programs.phase_plans`).

They depend on the number of nodes and of GPUs on each alone, and cost no synthesis. All of them are
tried at every size, since no model knows the times of NCCL's calls between their kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lookup_tables.table import Operation, Shape
from programs.phase_plans import phased_plans
from programs.phase_schedule import as_algorithm
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.ir.collectives import Collective
from tuccl.schedules.candidates import Candidate, promises_of


def phased_candidates(
    operation: Operation, shape: Shape, machine: Sketch, sizes_bytes: Sequence[int]
) -> tuple[Candidate, ...]:
    """Return a candidate for each plan of an operation, for all sizes.

    Args:
        operation: The operation; some have no plan.
        shape: Shape of the communicator: several nodes of equal size.
        machine: The whole machine, unpruned.
        sizes_bytes: Sizes that are tuned.
    """
    collective = Collective(operation.value)
    plans = phased_plans(collective, shape.nodes, shape.ranks_per_node)
    if not plans:
        return ()
    bound = time_bound(collective, machine)
    made = (
        Candidate(as_algorithm(plan), machine, f"plan {plan.name}", phases=plan) for plan in plans
    )
    return tuple(
        replace(candidate, promises=promises_of(candidate, bound, sizes_bytes))
        for candidate in made
    )
