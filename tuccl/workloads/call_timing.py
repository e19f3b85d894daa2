"""How most calls of a workload are made: in CUDA graphs or not, in place or not."""

from __future__ import annotations

from collections.abc import Callable

from tuccl.workloads.step_calls import StepCalls
from tuccl.workloads.workload import Workload, WorkloadCall


def mostly_outside_graphs(workload: Workload) -> bool:
    """Whether more calls are known to be made outside of CUDA graphs than inside."""
    return _surplus(workload, lambda call: call.graph) < 0.0


def mostly_in_place(workload: Workload) -> bool:
    """Whether more calls are known to be made in place than out of place."""
    return _surplus(workload, lambda call: call.in_place) > 0.0


def has_place(calls: StepCalls) -> bool:
    """Whether all operations of these calls can be made in place."""
    return all(key.task.operation.has_place for key in calls.keys)


def _surplus(workload: Workload, answer: Callable[[WorkloadCall], bool | None]) -> float:
    """Calls of a step for which the answer is yes, less those for which it is no."""
    answers = [(answer(call), call.calls_per_step) for call in workload.calls]
    yes = sum(calls for said, calls in answers if said)
    return yes - sum(calls for said, calls in answers if said is False)
