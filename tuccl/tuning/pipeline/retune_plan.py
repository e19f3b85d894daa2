"""`RetunePlan`: the keys of a table that keep their worth after a change, and those that do not.

An entry keeps its worth where the communicators of its shape do not touch what changed: those of
one host where a NIC is slower, those of a rail where an NVLink is. All keys of a shape share its
communicators, so they are kept or measured again together. NCCL, and the conditions of faked nodes,
touch all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.topology.graph import Topology
from tuccl.models.communicator_parts import changes_of, has_communicators, is_touched
from tuccl.models.figures import communicator_shape
from tuccl.reports.report import Report
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import ShapeName, shape_text
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import RunSettings

KEPT_WHY = "its communicators do not touch what changed"


class Fate(StrEnum):
    """The keys of a shape after a change."""

    KEPT = "kept"
    """The entries keep their worth."""
    AGAIN = "measured again"
    NEW = "measured for the first time"
    """The old table has no such keys."""


@dataclass(frozen=True, slots=True)
class ShapePlan:
    """The keys of one communicator shape."""

    name: str
    """`whole`, `node`, `rail` or `pairs`."""
    shape: Shape
    fate: Fate
    why: str


@dataclass(frozen=True, slots=True)
class RetunePlan:
    """The keys of all shapes after a change."""

    shapes: tuple[ShapePlan, ...]
    tasks: tuple[Task, ...]
    """All keys, shape by shape."""
    gone: Mapping[str, Shape]
    """Shapes of the old table that the machine has no communicators of, by name."""
    is_partial: bool
    """Whether what is measured starts from the old table, under its process profile; else every
    key is tuned from the beginning."""

    def fate(self, task: Task) -> Fate:
        """Return the fate of a key."""
        return next(each.fate for each in self.shapes if each.shape == task.shape)

    @property
    def kept(self) -> tuple[Task, ...]:
        """Keys whose entries keep their worth."""
        return tuple(task for task in self.tasks if self.fate(task) is Fate.KEPT)

    @property
    def measured(self) -> tuple[Task, ...]:
        """Keys that are measured."""
        return tuple(task for task in self.tasks if self.fate(task) is not Fate.KEPT)

    def keys(self, shape: Shape, operation: Collective) -> int:
        """Return the number of keys of an operation on a shape."""
        return sum((task.shape, task.operation) == (shape, operation) for task in self.tasks)

    @property
    def operations(self) -> tuple[Collective, ...]:
        """Operations, in the order of the keys."""
        return tuple(dict.fromkeys(task.operation for task in self.tasks))


def from_the_beginning(plan: RetunePlan, why: str) -> RetunePlan:
    """Return the plan with every key measured, none of them from the old table."""
    shapes = tuple(replace(each, fate=Fate.AGAIN, why=why) for each in plan.shapes)
    return replace(plan, shapes=shapes, is_partial=False)


def already_tuned(plan: RetunePlan) -> RetunePlan:
    """Return the plan for a machine of which the workspace has a finished run."""
    why = "the workspace has a run of this machine"
    return replace(
        plan, shapes=tuple(replace(each, fate=Fate.KEPT, why=why) for each in plan.shapes), gone={}
    )


def plan_retune(
    before: Topology,
    now: Topology,
    report: Report,
    settings: RunSettings,
    everywhere: Sequence[str] = (),
) -> RetunePlan:
    """Plan what is measured again after a change.

    Args:
        before: Machine of the old table.
        now: The machine now.
        report: Report of the old table's run.
        settings: Settings of the run that follows.
        everywhere: Changes that touch every key, as of NCCL, one sentence each.
    """
    whole, old_whole = communicator_shape(now), communicator_shape(before)
    tasks = tuple(keys_of(settings, whole))
    had = _keys_of_report(report, old_whole)
    names = {named.shape: named.name for named in settings.shapes}
    shapes = []
    for shape in settings.shapes_of(whole):
        wanted = {task for task in tasks if task.shape == shape}
        fate, why = _fate(shape, before, now, everywhere, known=wanted <= had)
        shapes.append(ShapePlan(names.get(shape, ShapeName.WHOLE.value), shape, fate, why))
    old_shapes = report.shapes or {ShapeName.WHOLE.value: old_whole}
    here = {each.shape for each in shapes}
    gone = {name: shape for name, shape in old_shapes.items() if shape not in here}
    return RetunePlan(tuple(shapes), tasks, gone, is_partial=not everywhere)


def _fate(
    shape: Shape, before: Topology, now: Topology, everywhere: Sequence[str], *, known: bool
) -> tuple[Fate, str]:
    if not has_communicators(before, shape):
        return Fate.NEW, f"there were no communicators of {shape_text(shape)}"
    if not known:
        return Fate.NEW, "the old table has not all of these keys"
    if everywhere:
        return Fate.AGAIN, " ".join(everywhere)
    if not is_touched(before, now, shape):
        return Fate.KEPT, KEPT_WHY
    sentences = changes_of(before, now, shape)
    return Fate.AGAIN, " ".join(sentences) or "the hosts of its communicators differ"


def _keys_of_report(report: Report, whole: Shape) -> set[Task]:
    return {
        Task(Collective.named(key.operation), key.size_bytes, key.shape or whole)
        for key in report.keys
    }


def plan_lines(plan: RetunePlan) -> Iterable[str]:
    """Describe a plan for people, a line for each shape and operation."""
    for each in plan.shapes:
        for operation in plan.operations:
            if count := plan.keys(each.shape, operation):
                yield f"{each.name} {operation.value}: {count} keys {each.fate.value}: {each.why}"
    for name, shape in plan.gone.items():
        yield f"{name}: the entries for {shape_text(shape)} go: there are no such communicators now"
    total, kept = len(plan.tasks), len(plan.kept)
    yield f"{total - kept} of {total} keys to measure, {kept} kept"
