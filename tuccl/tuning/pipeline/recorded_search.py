"""The recorded search of a run: how a record states it, and whether a replay takes its steps.

A replay with the settings of the recorded search, on the same release, searches the same spaces and
is given the same answers, so it ends with the same table. Any other replay chooses among the
recorded configurations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import JsonValue

from tuccl import __version__
from tuccl.measuring.backends.backend_choice import BackendRequest
from tuccl.measuring.records.record import Record
from tuccl.measuring.records.recorded_run import RecordedRun, RecordedSchedule, RecordedSearch
from tuccl.options.option import SEARCH, counted
from tuccl.schedules.candidates import Candidate
from tuccl.search.trials.config import Task
from tuccl.tuning.pipeline.search_spaces import Candidates, search_spaces
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.measurement_lines import Contents

_LABELS = {
    "tuccl": "the release of TuCCL",
    "sizes_bytes": "the sizes",
    "budget_s": "--budget",
    "schedules": "whether schedules are tried",
    "baseline": "the rows of --baseline",
}
"""Names of settings for people; the others are options."""

_ALONE = "alone"


def search_settings(settings: RunSettings) -> dict[str, JsonValue]:
    """Return everything beside the machine that decides the steps of a search."""
    workload, baseline = settings.workload, settings.baseline
    return {
        "tuccl": __version__,
        "operations": [operation.value for operation in settings.operations],
        "sizes_bytes": list(settings.sizes_bytes),
        "shapes": [[each.name, each.weight] for each in settings.shapes],
        "workload": None if workload is None else _digest(repr(workload.keys)),
        **counted(settings.options, SEARCH),
        "budget_s": settings.budget_s,
        "floor": settings.floor,
        "weights": [[operation.value, weight] for operation, weight in settings.weights],
        "schedules": settings.searches_schedules,
        **({_ALONE: True} if settings.options.alone else {}),
        **({} if baseline is None else {"baseline": _digest(repr(baseline.rows))}),
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def was_alone(record: Record) -> bool:
    """Whether the run had `--alone`, so it reserved no seconds for calls beside computation."""
    search = record.of_run.search
    return search is not None and search.settings.get(_ALONE) is True


def takes_recorded_steps(record: Record | None, settings: RunSettings) -> bool:
    """Whether a replay takes the steps of the recorded search."""
    search = None if record is None else record.of_run.search
    return search is not None and search.settings == search_settings(settings)


def replay_note(record: Record, settings: RunSettings) -> str:
    """Return a note on how a record is searched; empty where it has no search of its own."""
    search = record.of_run.search
    if search is None:
        return ""
    now = search_settings(settings)
    changed = [
        _LABELS.get(name, f"--{name.replace('_', '-')}")
        for name in {**now, **search.settings}
        if search.settings.get(name) != now.get(name)
    ]
    if not changed:
        return "the recorded search is repeated step by step"
    return (
        "this search chooses among the recorded configurations alone: it differs from the recorded "
        f"one in {', '.join(changed)}"
    )


def recorded_run(
    settings: RunSettings,
    request: BackendRequest,
    candidates: Candidates,
    keys: Sequence[Task],
    contents: Contents,
    *,
    begun_at: str,
    from_the_beginning: bool,
) -> RecordedRun:
    """Return what a record states about its run.

    Args:
        settings: Settings of the run.
        request: Request of its backend.
        candidates: Schedules that were made, by shape.
        keys: Keys that were measured.
        contents: Contents of its log.
        begun_at: When it began: ISO 8601, UTC.
        from_the_beginning: Whether the search began without an earlier table.
    """
    replayed, measured = request.record, {key.shape for key in keys}
    tried = {recorded.config.schedule for recorded in contents.all}
    made = {c.content_hash: c for of in candidates.values() for each in of.values() for c in each}
    schedules = [_recorded(c, with_steps=name in tried) for name, c in sorted(made.items())]
    search = None
    if replayed is not None:
        schedules = list(replayed.of_run.schedules)
        search = replayed.of_run.search if request.takes_recorded_steps else None
    elif from_the_beginning:
        spaces = search_spaces(settings, candidates, request, contents.cost_tables.get)
        search = RecordedSearch.of(
            search_settings(settings),
            {task: spaces.builtins(task) for task in keys},
            {task: spaces.schedules(task) for task in keys} if settings.schedules else {},
        )
    return RecordedRun(
        keys=tuple(keys),
        added=tuple((task, why) for task, why in settings.added if task in keys),
        shapes=tuple(each for each in settings.shapes if each.shape in measured),
        laboratory=settings.laboratory,
        base=settings.base,
        schedules=tuple(schedules),
        baseline=settings.baseline,
        search=search,
        begun_at=begun_at if replayed is None else replayed.of_run.begun_at,
    )


def _recorded(candidate: Candidate, *, with_steps: bool) -> RecordedSchedule:
    return RecordedSchedule(
        content_hash=candidate.content_hash,
        name=candidate.name,
        operation=candidate.collective,
        msccl_xml=candidate.msccl_xml if with_steps else "",
        program=candidate.program if with_steps else b"",
        sketch=candidate.sketch.name,
        sketch_why=candidate.sketch.why,
        origin=candidate.origin,
        own=candidate.own,
        of_bound=tuple((p.size_bytes, round(p.ratio, 4)) for p in candidate.promises),
    )
