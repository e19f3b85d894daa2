"""A job for `mpirun`: rank 0 carries out the plan, and halfway something befalls rank 1.

mpirun -np 3 python -m tests.tuccl.measuring.workers.mpi_measuring_job LOG [FATE]
"""

import atexit
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn
from unittest import mock

import psutil
from mpi4py import MPI

from tests.tuccl.measuring.workers.measuring_plan import carry_out
from tuccl.errors import TucclError
from tuccl.measuring.backends.workers_backend import WorkersOptions, open_workers_backend
from tuccl.measuring.workers import mpi_places
from tuccl.measuring.workers.connection import Connection
from tuccl.measuring.workers.mpi_places import MpiPlaces, run_measuring_ranks


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


def no_listener(*_: object) -> NoReturn:
    raise OSError("no port is free")


LOG = Path(sys.argv[1])
FATE = sys.argv[2] if len(sys.argv) > 2 else ""
PIDS: list[int] = MPI.COMM_WORLD.gather(os.getpid()) or []  # Only rank 0 gets them.
mpi_places._REPLY_S = 1.0
RANK = MPI.COMM_WORLD.Get_rank()
atexit.register(lambda: os.write(2, f"rank {RANK} finalizes\n".encode()))
if FATE == "it hangs before it reports":
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if RANK == 0:
        mock.patch.object(mpi_places, "own_identity", interrupted).start()  # In the roll call.
if FATE == "the leader cannot listen":
    mock.patch.object(mpi_places, "Listener", no_listener).start()
SENT: list[bytes] = []
STRANGERS: list[socket.socket] = []
if FATE == "strangers come" and RANK == 0:
    send, call_roll = Connection.send, MpiPlaces.call_roll

    def sent(connection: Connection, content: bytes) -> None:
        SENT.append(content)
        send(connection, content)

    def among_strangers(places: MpiPlaces, timeout_s: float) -> None:
        port = places.listener.addresses[0][1]
        STRANGERS.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(12))
        call_roll(places, timeout_s)

    mock.patch.object(Connection, "send", sent).start()
    mock.patch.object(MpiPlaces, "call_roll", among_strangers).start()


def lead(places: MpiPlaces) -> int:
    with open_workers_backend("sockets", places, WorkersOptions(least_deadline_s=2.0)) as backend:
        outcomes = carry_out(backend, places, LOG, befall_rank_1)
        told: dict[str, object] = {"outcomes": outcomes, "incidents": backend.incidents}
    key = places.listener.key
    told["key_sent"] = any(key in said or key.hex().encode() in said for said in SENT)
    told["sent"] = len(SENT)
    sys.stdout.write(json.dumps({**told, "ranks": len(places.places)}))
    if FATE == "it hangs at the end":
        os.kill(PIDS[1], signal.SIGSTOP)
    return 7


def befall_rank_1() -> None:
    if FATE == "its workers are killed":
        for worker in psutil.Process(PIDS[1]).children():
            worker.kill()
    elif FATE == "it is killed":
        os.kill(PIDS[1], signal.SIGKILL)
        time.sleep(20)
    elif FATE == "it hangs":
        # Its workers, too, so that it is asked what became of them.
        for process in psutil.Process(PIDS[1]).children():
            process.suspend()
        os.kill(PIDS[1], signal.SIGSTOP)


try:
    sys.exit(run_measuring_ranks(MPI.COMM_WORLD.Get_size(), lead, lambda _: 9, 5.0))
except TucclError as error:
    sys.stderr.write(f"tuccl: {error}\n")
    sys.exit(9)
