"""`RecordedRun` as JSON, for the metadata of a record's file.

Spaces that are equal stand there once, and programs and steps of schedules once and compressed.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lookup_tables.table import Operation, Shape
from tuccl.measuring.records.recorded_run import RecordedRun, RecordedSchedule, RecordedSearch
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.config import Settings, Task
from tuccl.search.trials.shapes import NamedShape, ShapeName
from tuccl.search.trials.space import Family, Knob, Space

_MOST_SCHEDULE_BYTES = 64 << 20
"""Most bytes of a schedule's steps or program that are read."""


def run_to_json(run: RecordedRun) -> dict[str, Any]:
    """Return a JSON object."""
    return {
        "begun_at": run.begun_at,
        "keys": [_task_to_json(task) for task in run.keys],
        "shapes": [
            [each.name.value, _shape_to_json(each.shape), each.weight] for each in run.shapes
        ],
        "laboratory": asdict(run.laboratory),
        "schedules": [_schedule_to_json(schedule) for schedule in run.schedules],
        "estimates_us": dict(run.estimates_us),
        "search": None if run.search is None else _search_to_json(run.search),
    }


def run_from_json(values: Mapping[str, Any]) -> RecordedRun:
    """Return the run of a JSON object.

    Raises:
        ValueError, TypeError, LookupError, AttributeError, ArithmeticError: The object is none.
    """
    search = values["search"]
    return RecordedRun(
        keys=tuple(map(_task, values["keys"])),
        shapes=tuple(
            NamedShape(ShapeName(name), shape_from_json(shape), float(weight))
            for name, shape, weight in values["shapes"]
        ),
        laboratory=_laboratory(values["laboratory"]),
        schedules=tuple(map(_schedule, values["schedules"])),
        estimates_us={
            str(name): None if us is None else float(us)
            for name, us in values["estimates_us"].items()
        },
        search=None if search is None else _search(search),
        begun_at=str(values["begun_at"]),
    )


def shape_from_json(values: Sequence[Any]) -> Shape:
    """Return the shape of `[ranks, nodes, ranks_per_node]`.

    Raises:
        ValueError, TypeError: It is none.
    """
    ranks, nodes, ranks_per_node = values
    shape = Shape(ranks, nodes, ranks_per_node)
    if shape.fault:
        raise ValueError(shape.fault)
    return shape


def _shape_to_json(shape: Shape) -> list[int]:
    return [shape.ranks, shape.nodes, shape.ranks_per_node]


def _task_to_json(task: Task) -> list[Any]:
    return [task.operation.value, task.size_bytes, _shape_to_json(task.shape)]


def _task(values: Sequence[Any]) -> Task:
    operation, size_bytes, shape = values
    return Task(Operation(operation), int(size_bytes), shape_from_json(shape))


def _laboratory(values: Mapping[str, Any]) -> Laboratory:
    sizes = tuple(int(size) for size in values["sizes"])
    found = Laboratory(**{**values, "sizes": sizes})
    if not (
        type(found.nodes) is int
        and type(found.share_gpus) is bool
        and isinstance(found.congestion_control, str)
        and type(found.gpus) is int
    ):
        raise TypeError("a laboratory whose members are of other types")
    return found


def _schedule_to_json(schedule: RecordedSchedule) -> dict[str, Any]:
    return {
        **asdict(schedule),
        "operation": schedule.operation.value,
        "msccl_xml": _packed(schedule.msccl_xml.encode()),
        "program": _packed(schedule.program),
        "of_bound": [list(pair) for pair in schedule.of_bound],
    }


def _schedule(values: Mapping[str, Any]) -> RecordedSchedule:
    return RecordedSchedule(
        content_hash=str(values["content_hash"]),
        name=str(values["name"]),
        operation=Operation(values["operation"]),
        msccl_xml=_unpacked(values["msccl_xml"]).decode(),
        program=_unpacked(values["program"]),
        sketch=str(values["sketch"]),
        sketch_why=str(values["sketch_why"]),
        origin=str(values["origin"]),
        own=bool(values["own"]),
        of_bound=tuple((int(size), float(share)) for size, share in values["of_bound"]),
    )


def _packed(data: bytes) -> str:
    return b64encode(zlib.compress(data)).decode() if data else ""


def _unpacked(text: str) -> bytes:
    if not text:
        return b""
    opened = zlib.decompressobj()
    try:
        data = opened.decompress(b64decode(text, validate=True), _MOST_SCHEDULE_BYTES)
    except zlib.error as error:
        raise ValueError(f"a schedule is damaged: {error}") from error
    if not opened.eof:
        raise ValueError("a schedule is cut, or larger than any")
    return data


def _search_to_json(search: RecordedSearch) -> dict[str, Any]:
    distinct: dict[Space, int] = {}

    def numbered(spaces: Mapping[Task, Space]) -> list[list[Any]]:
        return [
            [_task_to_json(task), distinct.setdefault(space, len(distinct))]
            for task, space in spaces.items()
        ]

    builtins, schedules = numbered(search.builtins), numbered(search.schedules)
    return {
        "settings": dict(search.settings),
        "spaces": [_space_to_json(space) for space in distinct],
        "builtins": builtins,
        "schedules": schedules,
    }


def _search(values: Mapping[str, Any]) -> RecordedSearch:
    spaces = [_space(space) for space in values["spaces"]]

    def numbered(tasks: Sequence[Any]) -> dict[Task, Space]:
        return {_task(task): spaces[number] for task, number in tasks}

    return RecordedSearch(
        dict(values["settings"]), numbered(values["builtins"]), numbered(values["schedules"])
    )


def _space_to_json(space: Space) -> dict[str, Any]:
    return {
        "name": space.name,
        "families": [
            [family.algorithm, family.protocol, *map(list, family.axes), _pairs(family.settings)]
            for family in space.families
        ],
        "between_min_nchannels": list(space.between_min_nchannels),
        "knobs": [[_pairs(value) for value in knob.values] for knob in space.knobs],
    }


def _space(values: Mapping[str, Any]) -> Space:
    return Space(
        str(values["name"]),
        tuple(map(_family, values["families"])),
        between_min_nchannels=_counts(values["between_min_nchannels"]),
        knobs=tuple(Knob(tuple(map(_settings, knob))) for knob in values["knobs"]),
    )


def _family(values: Sequence[Any]) -> Family:
    algorithm, protocol, *axes, settings = values
    nchannels, nthreads, buffer_bytes, min_nchannels = map(_counts, axes)
    return Family(
        str(algorithm),
        str(protocol),
        nchannels,
        nthreads,
        buffer_bytes,
        min_nchannels,
        _settings(settings),
    )


def _counts(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _pairs(settings: Settings) -> list[list[Any]]:
    return [list(pair) for pair in settings]


def _settings(values: Sequence[Any]) -> Settings:
    return tuple((str(name), int(value)) for name, value in values)
