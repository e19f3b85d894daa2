"""Groups of real worker processes, and stand-ins for CUDA and NCCL."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lookup_tables.table import Shape
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns, build_stand_ins
from tuccl.crew.places import LocalPlaces
from tuccl.measuring.backends.workers_backend import (
    WorkersBackend,
    WorkersOptions,
    open_workers_backend,
)

ROOT = Path(__file__).resolve().parents[4]
FAULTY = "tests.tuccl.measuring.workers.faulty_engine:FaultyEngine"
OpenBackend = Callable[..., tuple[WorkersBackend, LocalPlaces]]


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return build_stand_ins(tmp_path_factory.getbasetemp())


@pytest.fixture
def cores() -> Iterator[set[int]]:
    """Cores of this process, restored for all of its threads afterwards."""
    own = os.sched_getaffinity(0)
    yield set(own)
    for task in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), own)


@pytest.fixture
def open_backend() -> Iterator[OpenBackend]:
    """Open a backend on ranks of this host; return it with its places."""
    with ExitStack() as stack:

        def begin(
            ranks: int, engine: str = "sockets", shape: Shape | None = None, **options: object
        ) -> tuple[WorkersBackend, LocalPlaces]:
            places = LocalPlaces(ranks)
            chosen = WorkersOptions(**options)  # type: ignore[arg-type]
            opened = open_workers_backend(engine, places, chosen, shape)
            return stack.enter_context(opened), places

        yield begin
