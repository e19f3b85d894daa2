"""Attack every port of measuring runs with unauthenticated connections.

Connections stay idle, send garbage, trickle bytes, reset, or arrive in crowds. Each run has ranks
of the stand-in engine on loopback, measures some configurations with their data checked, and must
not be disturbed. Everything but the timing follows from a seed.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil
from attack_findings import Findings

from lookup_tables.collective import Collective
from tuccl.crew.places import LocalPlaces
from tuccl.errors import TucclError
from tuccl.measuring.backends.workers_backend import WorkersOptions, open_workers_backend
from tuccl.measuring.workers.seating import whole_shape
from tuccl.search.trials.config import Config, Task
from tuccl.workspace.measurement_log import MeasurementLog

_OPERATIONS = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
_MOST_OPEN = 400
_PAUSE_S = 0.005
_CROWD = 160
"""More connections than may wait for authentication at a time."""


class Strangers:
    """Connects to the ports of this run's processes, and no others, while the block runs."""

    def __init__(self, places: LocalPlaces, rng: random.Random) -> None:
        self.count = 0
        self._places = places
        self._rng = rng
        self._open: list[socket.socket] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._come)

    def __enter__(self) -> Self:
        self._visit_in_a_crowd(self._leaders_port)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for stranger in self._open:
            stranger.close()

    @property
    def _leaders_port(self) -> int:
        return self._places.listener.addresses[0][1]

    def _come(self) -> None:
        while not self._over.wait(_PAUSE_S):
            ports = [self._leaders_port, *_listening(self._places.pids)]
            if self._rng.random() < 0.01:
                self._visit_in_a_crowd(self._rng.choice(ports))
            else:
                self._visit(self._rng.choice(ports))
            self._trickle()
            while len(self._open) > _MOST_OPEN:
                self._open.pop(self._rng.randrange(len(self._open))).close()

    def _visit_in_a_crowd(self, port: int) -> None:
        for _ in range(_CROWD):
            self._connect(port)

    def _visit(self, port: int) -> None:
        stranger = self._connect(port)
        if stranger is None:
            return
        with suppress(OSError):
            match self._rng.randrange(7):
                case 0:
                    pass  # The connection stays silent.
                case 1:
                    stranger.sendall(self._rng.randbytes(self._rng.randrange(1, 200)))
                case 2:
                    stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                case 3:
                    length = self._rng.randrange(0, 5000)
                    stranger.sendall(struct.pack(">I", length) + self._rng.randbytes(length))
                case 4:
                    stranger.sendall(self._rng.randbytes(100_000))
                case 5:
                    stranger.shutdown(socket.SHUT_WR)
                case 6:  # Reset the connection.
                    stranger.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                    self._open.remove(stranger)
                    stranger.close()

    def _connect(self, port: int) -> socket.socket | None:
        try:
            stranger = socket.create_connection(("127.0.0.1", port), timeout=0.2)
        except OSError:  # The queue of the kernel is full, or the process has ended.
            return None
        self.count += 1
        stranger.setblocking(False)
        self._open.append(stranger)
        return stranger

    def _trickle(self) -> None:
        if self._open:
            with suppress(OSError):
                self._rng.choice(self._open).send(b"\0")


def attack(seconds: float, seed: int, folder: Path, first: int = 0) -> dict[str, int]:
    """Attack runs, the last one to its end; outcomes are measurements and connections."""
    findings = Findings("strangers", seed, folder)
    findings.counts.update(measurements=0, strangers=0)
    for number, rng in findings.attempts(seconds, first):
        log = folder / f"strangers-{seed}-{number}.jsonl"
        for failure in _failures(rng, log, findings.counts):
            findings.failed(number, failure, log)
    return dict(findings.counts)


def _failures(rng: random.Random, path: Path, counts: Counter[str]) -> Iterator[str]:
    """Failures of one run."""
    ranks = rng.choice((2, 2, 3))
    configs = [_config(rng) for _ in range(3)]
    try:
        with _run(ranks, path, rng, counts) as (log, places, incidents):
            shape = whole_shape(places.places)
            for config in configs:
                operation = (
                    rng.choice(_OPERATIONS) if config.algorithm == "ring" else _OPERATIONS[0]
                )
                task = Task(operation, 4096 * ranks * rng.randrange(1, 20), shape)
                log.check(task, config)
                log.measure(task, config, 2)
                counts["measurements"] += 1
    except (TucclError, OSError) as error:
        yield f"{type(error).__name__}: {error}"
    else:
        yield from incidents


@contextmanager
def _run(
    ranks: int, path: Path, rng: random.Random, counts: Counter[str]
) -> Iterator[tuple[MeasurementLog, LocalPlaces, Sequence[str]]]:
    places = LocalPlaces(ranks)
    strangers = Strangers(places, random.Random(rng.random()))  # noqa: S311 - as above
    with (
        open_workers_backend("sockets", places, WorkersOptions()) as backend,
        MeasurementLog(path, backend, "strangers") as log,
    ):
        try:
            with strangers:
                yield log, places, backend.incidents
        finally:
            counts["strangers"] += strangers.count


def _config(rng: random.Random) -> Config:
    """A configuration for the stand-in engine; half of them need their own workers."""
    return Config(
        rng.choice(("ring", "tree")),
        rng.choice(("LL", "LL128", "Simple")),
        rng.randrange(1, 9),
        buffer_bytes=rng.choice((0, 0, 64 << 10, 1 << 20)),
    )


def _listening(pids: Sequence[int]) -> list[int]:
    """Ports at which these processes listen."""
    found = []
    for pid in pids:
        with suppress(psutil.Error):
            connections = psutil.Process(pid).net_connections("tcp4")
            found += [at.laddr.port for at in connections if at.status == psutil.CONN_LISTEN]
    return found
