"""Keys of communicators by where their ranks sit, and entries that lose on some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lookup_tables.table import Entry, Shape
from tuccl.models.placements import PlacementClass
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.placement import Placement
from tuccl.tuning.decision import Decision
from tuccl.tuning.placing.safety import SlowerAt, slower_at, worst
from tuccl.tuning.placing.seen import SeenClass, placed_tasks, seen_classes
from tuccl.tuning.results import KeyResult, PlacedResult, SearchSpaces
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.spending import Fresh


class PlacedKeys:
    """The classes of communicators that a run tunes apart, and what it finds of the others."""

    def __init__(
        self,
        tasks: Sequence[Task],
        settings: RunSettings,
        spaces: SearchSpaces,
        kept: Mapping[tuple[Shape, Placement], tuple[Entry, ...]],
        fresh: Fresh,
    ) -> None:
        """Find the classes that have keys of their own.

        Args:
            tasks: Keys of all siblings of a shape.
            settings: Settings of the run.
            spaces: Its spaces, with the placements of each shape.
            kept: Entries of classes that were tuned before, which have no keys.
            fresh: Takes new samples of a call.
        """
        self._seen = {
            shape: seen_classes(
                shape, spaces.placements(shape), settings.operations_of(shape), spaces.estimate
            )
            for shape in dict.fromkeys(task.shape for task in tasks)
        }
        self._spaces = spaces
        self._kept = kept
        self._fresh = fresh
        self._slower: dict[tuple[Task, Config], tuple[SlowerAt, ...]] = {}
        """Calls that were timed where ranks sit elsewhere, and the classes where they lose."""
        searched = {
            shape: [own for own in of_shape if self._kept_entries(shape, own) is None]
            for shape, of_shape in self._seen.items()
        }
        self.tasks = placed_tasks(tasks, searched)
        """Keys of the classes that are tuned now."""

    def left_out_where_slower(
        self, decisions: Mapping[Task, Decision], profile: ProcessProfile
    ) -> dict[Task, Decision]:
        """Leave out the calls that are slower on communicators whose ranks sit elsewhere."""
        held = {}
        for task, decision in decisions.items():
            calls = [won.config for won in (decision.builtin, decision.schedule) if won]
            classes = self._classes_of(task)
            if new := [config for config in calls if (task, config) not in self._slower]:
                slower = slower_at(task, new, profile.default, classes, self._fresh)
                self._slower |= {(task, config): found for config, found in slower.items()}
            held[task] = self._without_slower(task, decision, classes)
        return held

    def results(self, keys: Iterable[KeyResult]) -> tuple[PlacedResult, ...]:
        """Return what was decided for each class, or kept."""
        decided = tuple(keys)
        return tuple(
            PlacedResult(
                shape,
                own,
                tuple(_of_class(decided, shape, own)),
                self._kept_entries(shape, own) or (),
            )
            for shape, of_shape in self._seen.items()
            for own in of_shape
        )

    def _kept_entries(self, shape: Shape, own: SeenClass) -> tuple[Entry, ...] | None:
        """Return the entries of a class that was tuned before; None: it is tuned now."""
        return self._kept.get((shape, own.placement)) if len(own.classes) == 1 else None

    def _classes_of(self, task: Task) -> Sequence[PlacementClass]:
        """Return the classes that an entry of a key serves."""
        for own in self._seen[task.shape]:
            if own.placement == task.placement:
                return own.classes
        return self._spaces.placements(task.shape)

    def _without_slower(
        self, task: Task, decision: Decision, classes: Sequence[PlacementClass]
    ) -> Decision:
        """Return a decision without the calls that are slower on some of these classes."""
        found = {
            won.config: at
            for won in (decision.builtin, decision.schedule)
            if won is not None
            and (at := worst(at for at in self._slower[task, won.config] if at.own in classes))
        }
        return decision.without(found) if found else decision


def _of_class(keys: Iterable[KeyResult], shape: Shape, seen: SeenClass) -> Iterator[KeyResult]:
    """Yield the keys of a class that have an entry."""
    for key in keys:
        task, builtin = key.task, key.decision.builtin
        if (task.shape, task.placement) == (shape, seen.placement) and builtin is not None:
            yield key
