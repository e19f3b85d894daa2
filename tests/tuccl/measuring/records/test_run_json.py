"""The recorded run in a record's metadata: what is written is read again, and damage is found."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.measuring.records.recorded_run import RecordedRun, RecordedSchedule, RecordedSearch
from tuccl.measuring.records.run_json import run_from_json, run_to_json
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.config import Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.presets import executor_families, nccl_space
from tuccl.search.trials.shapes import NamedShape, ShapeName
from tuccl.search.trials.space import Knob, Space

WHOLE, RAIL = Shape(4, 2, 2), Shape(2, 2, 1)
TASKS = tuple(
    Task(Collective.ALL_REDUCE, size, shape) for shape in (WHOLE, RAIL) for size in (8, 16)
)
XML = "<algo/>" * 100
SOCKET_THREADS = (Knob(((), (("NCCL_SOCKET_NTHREADS", "1"),))),)
BUILTINS = nccl_space(Collective.ALL_REDUCE, WHOLE, knobs=SOCKET_THREADS)
RUN = RecordedRun(
    begun_at="2026-01-02T03:04:05Z",
    keys=TASKS,
    shapes=(NamedShape(ShapeName.WHOLE, WHOLE), NamedShape(ShapeName.RAIL, RAIL, 2.0)),
    laboratory=Laboratory(2, True, "cubic", (2, 2)),
    schedules=(
        RecordedSchedule(
            "0123456789abcdef", "all_reduce_ring", Collective.ALL_REDUCE, XML, bytes(range(256)),
            "whole", "all links", "expert", True, ((8, 0.5), (16, 0.75)),
        ),
        RecordedSchedule(
            "fedcba9876543210", "tried nowhere", Collective.ALL_REDUCE, "", b"", "whole", "", "",
            False, (),
        ),
    ),
    cost_tables=((TASKS[0], CostTable.parse("ring/LL=12.5 nvls/Simple=?")), (TASKS[1], None)),
    search=RecordedSearch.of(
        {"seed": 3, "budget_s": 20.0, "floor": None},
        dict.fromkeys(TASKS, BUILTINS),
        {TASKS[0]: Space("executor", executor_families(["0123456789abcdef"]))},
    ),
)  # fmt: skip


def written() -> dict[str, Any]:
    return json.loads(json.dumps(run_to_json(RUN)))  # type: ignore[no-any-return]


def test_what_is_written_is_read_again() -> None:
    assert run_from_json(written()) == RUN
    assert run_from_json(json.loads(json.dumps(run_to_json(RecordedRun())))) == RecordedRun()


def test_equal_spaces_stand_there_once_and_schedules_are_compressed() -> None:
    values = written()
    assert len(values["search"]["spaces"]) == 2
    assert len(values["schedules"][0]["msccl_xml"]) < len(XML) / 4


def put(values: dict[str, Any], *path: Any) -> None:
    *into, last, value = path
    for name in into:
        values = values[name]
    values[last] = value


@pytest.mark.parametrize(
    "change",
    [
        lambda values: put(values, "keys", 0, "operation", "all_shuffle"),
        lambda values: put(values, "keys", 0, "shape", "nodes", 5),
        lambda values: put(values, "shapes", 0, "name", "rack"),
        lambda values: put(values, "laboratory", "share_gpus", 1),
        lambda values: put(values, "laboratory", "nodes", "two"),
        lambda values: put(values, "schedules", 0, "program", "no base64"),
        lambda values: put(values, "schedules", 0, "program", "AAAA"),
        lambda values: put(
            values, "schedules", 0, "program", values["schedules"][0]["program"][:-8]
        ),
        lambda values: put(values, "search", "builtins", 0, 1, 7),
        lambda values: put(values, "search", "spaces", 0, "families", [["ring"]]),
    ],
)
def test_damage_is_an_error_that_the_reader_of_a_record_expects(
    change: Callable[[dict[str, Any]], object],
) -> None:
    values = copy.deepcopy(written())
    change(values)
    with pytest.raises((ValueError, TypeError, LookupError)):
        run_from_json(values)


def test_a_search_knows_the_spaces_of_its_keys() -> None:
    assert RUN.search is not None
    assert RUN.search.builtins_of(TASKS[0]) == BUILTINS
    assert RUN.search.schedules_of(TASKS[0]).size > 0
    assert RUN.search.schedules_of(TASKS[1]).size == 0
