"""`RecordedRun` as JSON, for the metadata of a record's file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from probes.inputs.messages import first_fault
from tuccl.measuring.records.recorded_run import RecordedRun
from tuccl.search.trials.shapes import ShapeName, numbered_name

_RUN = TypeAdapter(RecordedRun)


def run_to_json(run: RecordedRun) -> dict[str, Any]:
    """Return a JSON object."""
    values: dict[str, Any] = _RUN.dump_python(run, mode="json")
    return values


def run_from_json(values: Mapping[str, Any]) -> RecordedRun:
    """Return the run of a JSON object.

    Raises:
        ValueError, TypeError: The object is none.
    """
    try:
        run = _RUN.validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from error
    search = run.search
    spaces = () if search is None else (*search.builtins, *search.schedules)
    timed = [call.task for job in run.jobs for call, _ in job.times_us]
    tasks = (*run.keys, *timed, *(task for task, _ in (*run.cost_tables, *spaces)))
    for shape in (*(task.shape for task in tasks), *(named.shape for named in run.shapes)):
        if shape.fault:
            raise ValueError(shape.fault)
    if any(named.name not in (*ShapeName, numbered_name(named.shape)) for named in run.shapes):
        raise ValueError("a shape has an unknown name")
    if search is not None and any(not 0 <= n < len(search.spaces) for _, n in spaces):
        raise ValueError("a space is missing")
    for job in run.jobs:
        job.check()
    return run
