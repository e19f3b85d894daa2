"""The stand-in's collectives: every byte right, and parameters that do what they say."""

from __future__ import annotations

import itertools

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.measuring.workers.worker_fixtures import OpenBackend
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.workers.seating import whole_shape
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.timing import Timing

pytestmark = pytest.mark.long

OPERATIONS = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
ALGORITHMS = ("ring", "tree")
PROTOCOLS = ("LL", "LL128", "Simple")


@pytest.mark.parametrize(("ranks", "in_place"), [(2, False), (3, True), (4, False)])
def test_every_byte_is_right(open_backend: OpenBackend, ranks: int, in_place: bool) -> None:
    backend, places = open_backend(ranks, timing=Timing(in_place=in_place))
    shape = whole_shape(places.places)
    checked = 0
    # 1,002 bytes divide by no number of ranks here but 3, and fill no line of a protocol.
    for operation, size, algorithm, protocol, nchannels in itertools.product(
        OPERATIONS, (2 * ranks, 1002, 150_000), ALGORITHMS, PROTOCOLS, (1, 3)
    ):
        if algorithm == "tree" and operation is not Collective.ALL_REDUCE:
            continue
        config = Config(algorithm, protocol, nchannels, buffer_bytes=64 << 10)
        backend.check(Task(operation, size, shape), config)
        checked += 1
    assert checked == 3 * 3 * 2 * (2 + 1 + 1)


def test_what_it_has_not_is_refused_and_the_group_goes_on(open_backend: OpenBackend) -> None:
    backend, places = open_backend(2)
    shape = whole_shape(places.places)
    pids = places.pids
    refused = {
        Task(Collective.ALL_GATHER, 4096, shape): Config("tree", "LL", 1),
        Task(Collective.BROADCAST, 4096, shape): Config("ring", "LL", 1),
        Task(Collective.ALL_REDUCE, 4096, shape): Config("nvls", "Simple", 1),
        Task(Collective.ALL_REDUCE, 8192, shape): Config("ring", "LL", 65),
    }
    for task, config in refused.items():
        with pytest.raises(ConfigurationFailedError, match="the stand-in has"):
            backend.check(task, config)
    backend.measure(Task(Collective.ALL_REDUCE, 4096, shape), Config("ring", "LL", 1), 0, 1)
    assert places.pids == pids


def test_parameters_change_what_is_done(open_backend: OpenBackend) -> None:
    backend, places = open_backend(2)
    task = Task(Collective.ALL_REDUCE, 256 << 10, whole_shape(places.places))
    # Simple asks for each piece of an eighth: 2 KiB ones 64 times as often as 128 KiB ones.
    small, large = (
        min(backend.measure(task, Config("ring", "Simple", 1, buffer_bytes=size), 0, 3).samples_us)
        for size in (16 << 10, 1 << 20)
    )
    assert small > 1.2 * large
