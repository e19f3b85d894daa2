import os
import re

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.measuring.workers.worker_fixtures import ROOT, OpenBackend
from tuccl.crew.cores import (
    bind_to_named_share,
    cores_for,
    lanes_on,
    share_variable,
)
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.config import STOCK, Task


def test_shares_are_all_cores_and_none_twice(cores: set[int]) -> None:
    shares = min(len(cores), 3)
    found: list[int] = []
    for number in range(shares):
        os.sched_setaffinity(0, cores)
        bind_to_named_share(share_variable(number, shares))
        found += os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
    assert sorted(found) == sorted(cores)


def test_with_more_shares_than_cores_or_none_told_a_process_stays_where_it_is(
    cores: set[int],
) -> None:
    bind_to_named_share(share_variable(0, len(cores) + 1))
    for told in ({}, {"TUCCL_WORKER_SHARE": "x"}, {"TUCCL_WORKER_SHARE": "3/2"}):
        bind_to_named_share(told)
    assert os.sched_getaffinity(0) == cores


def test_ranks_with_the_same_cores_of_a_host_share_them() -> None:
    sixteen, eight, others = (frozenset(range(*ends)) for ends in ((16,), (8,), (8, 16)))
    assert lanes_on([("a", sixteen)] * 4) == 2  # Four cores each, two of them for the rest.
    assert lanes_on([("a", sixteen)] * 2 + [("b", sixteen)] * 2) == 6
    assert lanes_on([("a", eight), ("a", others)]) == 6
    assert lanes_on([("a", eight)] * 2 + [("b", sixteen)]) == 2
    assert lanes_on([("a", sixteen)] * 8) == lanes_on([("a", eight)] * 100) == lanes_on([]) == 1


def test_the_executor_leaves_as_many_cores_to_the_job() -> None:
    header = (ROOT / "tuccl" / "runtime" / "executor" / "host_identity.h").read_text(
        encoding="utf-8"
    )
    (beside,) = re.findall(r"kCoresBesideLanes = (\d+);", header)
    assert cores_for(1) == 1 + int(beside)


@pytest.mark.long
@pytest.mark.parametrize("fake_nodes", [1, 2])
def test_workers_of_faked_nodes_share_no_core(
    open_backend: OpenBackend, cores: set[int], fake_nodes: int
) -> None:
    if len(cores) < 2:
        pytest.skip("one core cannot be shared out")
    shape = Shape(2, fake_nodes, 2 // fake_nodes)
    backend, places = open_backend(2, shape=shape, laboratory=Laboratory(fake_nodes))
    backend.measure(Task(Collective.ALL_REDUCE, 4096, shape), STOCK, 0, 1)
    first, second = (os.sched_getaffinity(pid) for pid in places.pids)
    if fake_nodes == 1:
        assert first == second == cores
    else:
        assert first | second == cores
        assert first & second == set()
