"""The inputs of a run reach its backend."""

import os
import signal

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from tuccl.crew.places import LocalPlaces
from tuccl.measuring.backends.backend_choice import BackendRequest, open_backend
from tuccl.search.trials.config import STOCK, Task

PAIR = Shape(2, 1, 2)


@pytest.mark.long
def test_a_lost_worker_is_told_to_the_caller_of_open_backend() -> None:
    told: list[str] = []
    topology = read_topology(shipped_machines()["h200-4gpu"])
    places = LocalPlaces(2)
    request = BackendRequest(topology, PAIR, places=places, tell=told.append)
    task = Task(Collective.ALL_REDUCE, 4096, PAIR)
    with open_backend("sockets", request) as backend:
        backend.measure(task, STOCK, 0, 1)
        os.kill(places.pids[1], signal.SIGKILL)
        backend.measure(task, STOCK, 1, 1)
    assert len(told) == 1
    assert "rank 1 died: killed by signal 9" in told[0]
