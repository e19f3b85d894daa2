"""`tuccl tune --dry-run`: the size of the search and an estimate of its cost, before it runs.

The estimate uses the times of stock NCCL, from the record that will be replayed or from the model,
so the seconds are an order of magnitude: a configuration may be four times slower, or a little
faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.measuring.backends.backend_choice import BackendRequest, builtins_of, open_backend
from tuccl.options.run_options import REPLAY, SIMULATED
from tuccl.quantities import format_seconds
from tuccl.search.strategies.hyperband import Bracket, hyperband_plan
from tuccl.search.strategies.mraco import ETA
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.profile_axes import profile_axes
from tuccl.search.trials.shapes import shape_text
from tuccl.search.trials.timing import timing_of
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import MAX_REPEATS, RunSettings, describe_sizes
from tuccl.tuning.switches import most_keys_added


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The size of a search and an estimate of its cost."""

    keys: int
    most_added: int
    """Most keys that are added where NCCL's own choice changes, which only its cost table tells."""
    operations: tuple[Collective, ...]
    sizes_bytes: tuple[int, ...]
    shapes: tuple[Shape, ...]
    """Communicator shapes."""
    strategy: str
    configurations: Mapping[str, int]
    """Configurations in the joint space by operation, at the size that has most."""
    configurations_in_all: int
    """Configurations of all keys together."""
    process_profiles: int
    brackets: tuple[Bracket, ...]
    """Brackets of a pass over one key; empty where the strategy has none."""
    samples_per_pass: int
    """Samples of a pass over one key."""
    pass_s: float
    """Seconds of a pass over the brackets of all keys."""
    whole_space_s: float
    """Seconds of every configuration at full budget."""
    restart_s: float
    """Seconds of a restart of the workers, for another process profile."""
    budget_s: float | None


def make_plan(settings: RunSettings, request: BackendRequest) -> SearchPlan:
    """Plan a search.

    Raises:
        MeasurementError: the record has no time of stock NCCL for a key.
    """
    tasks = keys_of(settings, request.shape)
    may_add = settings.near_switches and request.record is None
    spaces = {task: builtins_of(request, task) for task in tasks}
    launch_s, restart_s = _launches(request, tasks)
    brackets = _brackets(settings.options.strategy)
    samples = sum(samples_of(bracket) for bracket in brackets)
    return SearchPlan(
        keys=len(tasks),
        most_added=most_keys_added(tasks, settings.budget_s) if may_add else 0,
        operations=settings.operations,
        sizes_bytes=settings.sizes_bytes,
        shapes=settings.shapes_of(request.shape),
        strategy=settings.options.strategy,
        configurations={
            operation.value: max(
                space.size for task, space in spaces.items() if task.operation is operation
            )
            for operation in settings.operations
        },
        configurations_in_all=sum(space.size for space in spaces.values()),
        process_profiles=profile_axes(spaces.values()).size,
        brackets=brackets,
        samples_per_pass=samples,
        pass_s=sum(samples * launch_s[task] for task in tasks),
        whole_space_s=sum(
            MAX_REPEATS * space.size * launch_s[task] for task, space in spaces.items()
        ),
        restart_s=restart_s,
        budget_s=settings.budget_s,
    )


def samples_of(bracket: Bracket) -> int:
    """Samples that a bracket takes if no configuration is dropped early."""
    total = reached = 0
    for rung in bracket.rungs:
        total += rung.configs * (rung.repeats - reached)
        reached = rung.repeats
    return total


def plan_lines(plan: SearchPlan) -> list[str]:
    """Describe a plan for people, in lines."""
    tuned = [", ".join(plan.operations), describe_sizes(plan.sizes_bytes)]
    tuned += [shape_text(shape) for shape in plan.shapes] if len(plan.shapes) > 1 else []
    spaces = ", ".join(f"{count} for {name}" for name, count in plan.configurations.items())
    in_all = f"{plan.configurations_in_all} in all"
    added = f"; where NCCL's own choice changes up to {plan.most_added} more"
    lines = [
        f"keys: {plan.keys} ({'; '.join(tuned)}{added if plan.most_added else ''})",
        f"space: up to {spaces} a key, {in_all}; {plan.process_profiles} process profiles",
    ]
    if plan.brackets:
        lines.append(f"brackets of a key ({plan.strategy}, configurations x samples):")
        lines += [f"  {describe_bracket(bracket)}" for bracket in plan.brackets]
        lines.append(
            f"estimate: {plan.samples_per_pass} samples a key and pass, "
            f"{format_seconds(plan.pass_s)} for all keys at the speed of NCCL's own choice"
        )
    else:
        lines.append(f"strategy: {plan.strategy}, without brackets")
    lines.append(
        f"estimate: {format_seconds(plan.whole_space_s)} for the whole space at {MAX_REPEATS} "
        f"samples, and {format_seconds(plan.restart_s)} for each process profile"
    )
    if plan.budget_s is not None:
        lines.append(f"budget: {format_seconds(plan.budget_s)}, then it stops and decides")
    return lines


def describe_bracket(bracket: Bracket) -> str:
    """Describe a bracket for people: `27 x 1, 9 x 3, 3 x 9, 1 x 27`."""
    return ", ".join(f"{rung.configs} x {rung.repeats}" for rung in bracket.rungs)


def _launches(request: BackendRequest, tasks: list[Task]) -> tuple[dict[Task, float], float]:
    """Seconds of a launch of stock NCCL by key, and seconds of a restart."""
    name = SIMULATED if request.record is None else REPLAY
    with open_backend(name, replace(request, spread=0.0)) as backend:
        timing = timing_of(backend)
        launch_s = {
            task: backend.measure(task, STOCK, 0, 1).samples_us[0]
            * 1e-6
            * timing.calls(task.size_bytes)
            for task in tasks
        }
        return launch_s, backend.restart_s


def _brackets(strategy: str) -> tuple[Bracket, ...]:
    if strategy not in {"mraco", "optuna-hyperband"}:
        return ()
    return hyperband_plan(MAX_REPEATS, ETA)
