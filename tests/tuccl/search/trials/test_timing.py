"""How calls are timed: the computation beside them, and the form in logs and records."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Computation, Timing, timing_from_json

WHOLE, NODE = Shape(16, 2, 8), Shape(8, 1, 8)
MIB = 1 << 20
BESIDE = Timing(
    computations=(
        Computation(Collective.ALL_REDUCE, WHOLE, 1 * MIB, 100.0),
        Computation(Collective.ALL_REDUCE, WHOLE, 16 * MIB, 800.0),
        Computation(Collective.ALL_GATHER, NODE, 4 * MIB, 50.0),
    )
)


def computation_us(operation: Collective, size_bytes: int, shape: Shape) -> float:
    return BESIDE.computation_us(Task(operation, size_bytes, shape))


def test_a_size_that_is_listed_without_computation_has_none() -> None:
    none = replace(BESIDE.computations[0], size_bytes=2 * MIB, time_us=0.0)
    timing = Timing(computations=(*BESIDE.computations, none))
    assert timing.computation_us(Task(Collective.ALL_REDUCE, 2 * MIB, WHOLE)) == 0.0
    assert timing.computation_us(Task(Collective.ALL_REDUCE, 1 * MIB, WHOLE)) == 100.0
    assert timing_from_json(json.loads(json.dumps(asdict(timing)))) == timing


def test_a_call_of_a_listed_size_has_its_computation_beside_it() -> None:
    assert computation_us(Collective.ALL_REDUCE, 1 * MIB, WHOLE) == 100.0
    assert computation_us(Collective.ALL_REDUCE, 16 * MIB, WHOLE) == 800.0
    assert computation_us(Collective.ALL_GATHER, 4 * MIB, NODE) == 50.0


def test_another_size_has_that_of_the_nearest_one_in_proportion_to_the_bytes() -> None:
    assert computation_us(Collective.ALL_REDUCE, 2 * MIB, WHOLE) == 200.0
    assert computation_us(Collective.ALL_REDUCE, 8 * MIB, WHOLE) == 400.0
    assert computation_us(Collective.ALL_GATHER, 1 * MIB, NODE) == 12.5


def test_other_operations_and_shapes_are_timed_alone() -> None:
    assert computation_us(Collective.ALL_REDUCE, 1 * MIB, NODE) == 0.0
    assert computation_us(Collective.REDUCE_SCATTER, 1 * MIB, WHOLE) == 0.0
    assert Timing().computation_us(Task(Collective.ALL_REDUCE, MIB, WHOLE)) == 0.0


def test_a_timing_comes_back_from_json() -> None:
    assert timing_from_json(json.loads(json.dumps(asdict(BESIDE)))) == BESIDE
    without = asdict(Timing())
    del without["computations"]
    assert timing_from_json(without) == Timing(), "of a release without computations"


@pytest.mark.parametrize(
    "change",
    [
        {"time_us": -1.0},
        {"time_us": float("inf")},
        {"size_bytes": 0},
        {"size_bytes": 1.5},
        {"operation": "all_sing"},
        {"shape": {"ranks": 2, "nodes": 3, "ranks_per_node": 0}},
    ],
)
def test_computations_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    written = json.loads(json.dumps(asdict(BESIDE)))
    written["computations"][0] |= change
    with pytest.raises(ValueError, match=r"computation|all_sing"):
        timing_from_json(written)
