"""Checks that demand one order of additions, on real workers over the stand-in of NCCL.

Its tree adds in the order of ranks, rounded once; its ring begins each chunk at another rank, as
NCCL's does, and rounds at each.
"""

from __future__ import annotations

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.measuring.workers.worker_fixtures import OpenBackend
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.measuring.workers.engine import Call, order_calls
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.config import Config, Task

pytestmark = pytest.mark.long

ALL_REDUCE, REDUCE_SCATTER = Collective.ALL_REDUCE, Collective.REDUCE_SCATTER
RING, TREE = Config("ring", "LL", 4), Config("tree", "LL", 4)


@pytest.fixture
def variables(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.syspath_prepend(str(stand_ins.libraries))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    monkeypatch.setenv("STAND_IN_GPUS", "4")
    return {LIBRARY_VARIABLE: str(stand_ins.nccl)}


def test_calls_of_a_check_are_of_three_types_and_two_sizes() -> None:
    checked = order_calls(Call(ALL_REDUCE, 4096, calls=7, computation_us=3.0), 4)
    assert [(own.call.data_type, own.call.size_bytes, own.shift) for own in checked] == [
        ("bfloat16", 4096, 0),
        ("float16", 2730, 1),  # 1365 elements, two thirds of 2048 and odd.
        ("bfloat16", 2730, 1),
        ("float32", 2732, 1),
    ]
    assert all(own.call.computation_us == 0.0 for own in checked)
    # Of a part for each of four ranks: 341 elements of 2 bytes, and 171 of 4.
    scattered = order_calls(Call(REDUCE_SCATTER, 4096), 4)
    assert [own.call.size_bytes for own in scattered] == [4096, 2728, 2728, 2736]
    assert order_calls(Call(ALL_REDUCE, 2), 4)[-1].call.size_bytes == 4
    # What is larger than 4 MiB is checked in parts of that beside the call itself.
    large = order_calls(Call(ALL_REDUCE, 1 << 30), 4)
    assert [own.call.size_bytes >> 20 for own in large] == [1024, 2, 2, 2]


@pytest.mark.parametrize("size_bytes", [64, 1 << 17])
def test_a_ring_is_caught_and_a_tree_in_the_order_of_ranks_is_not(
    open_backend: OpenBackend, variables: dict[str, str], size_bytes: int
) -> None:
    backend, _ = open_backend(4, "nccl", variables=variables, invariant=True)
    task = Task(ALL_REDUCE, size_bytes, Shape(4, 1, 4))
    backend.check(task, TREE)
    with pytest.raises(ConfigurationFailedError, match="are not added in the order of ranks: rank"):
        backend.check(task, RING)
    backend.check(Task(Collective.ALL_GATHER, size_bytes, Shape(4, 1, 4)), RING)
    # Of two ranks there is one order alone.
    pair = Shape(2, 1, 2)
    for operation in (ALL_REDUCE, REDUCE_SCATTER):
        backend.check(Task(operation, size_bytes, pair), RING)


def test_without_the_demand_any_order_will_do(
    open_backend: OpenBackend, variables: dict[str, str]
) -> None:
    backend, _ = open_backend(4, "nccl", variables=variables)
    backend.check(Task(ALL_REDUCE, 4096, Shape(4, 1, 4)), RING)


def test_ranks_of_nodes_are_added_first(
    open_backend: OpenBackend, variables: dict[str, str]
) -> None:
    """The tree adds all ranks in one sum, which is the order of four nodes of one rank alone."""
    backend, _ = open_backend(
        4, "nccl", variables=variables, invariant=True, laboratory=Laboratory(2)
    )
    with pytest.raises(ConfigurationFailedError, match="not added in the order of ranks"):
        backend.check(Task(ALL_REDUCE, 4096, Shape(4, 2, 2)), TREE)


@pytest.mark.parametrize("config", [RING, TREE])
def test_the_stand_in_over_sockets_is_checked_too(
    open_backend: OpenBackend, config: Config
) -> None:
    backend, _ = open_backend(3, "sockets", invariant=True)
    with pytest.raises(ConfigurationFailedError, match="not added in the order of ranks"):
        backend.check(Task(ALL_REDUCE, 4096, Shape(3, 1, 3)), config)
    backend.check(Task(ALL_REDUCE, 4096, Shape(2, 1, 2)), config)
