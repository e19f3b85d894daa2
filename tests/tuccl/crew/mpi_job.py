"""A job for `mpirun`: rank 0 does what the first argument names, and ranks meet their fates.

    mpirun -np 3 python -m tests.tuccl.crew.mpi_job conform
    mpirun -np 7 python -m tests.tuccl.crew.mpi_job ask RANK:FATE ...
    mpirun -np 3 python -m tests.tuccl.crew.mpi_job measure LOG [FATE OF RANK 1]

`conform` runs all checks of `Places`. `ask` asks all hosts twice; ranks 2i and 2i+1 are host i.
`measure` carries out the plan, and something befalls rank 1 halfway. The outcome is JSON.
"""

import atexit
import json
import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import psutil
from mpi4py import MPI

from probes.host.report import HostIdentity
from tests.tuccl.crew.measuring_plan import carry_out
from tests.tuccl.crew.places_conformance import CHECKS
from tuccl.crew import connection, places, ranks
from tuccl.crew.asking import Lost
from tuccl.crew.connection import Connection
from tuccl.crew.places import first_places
from tuccl.crew.probe_station import Station, Stop
from tuccl.crew.ranks import RankPlaces, run_ranks
from tuccl.errors import TucclError, exit_code_of
from tuccl.measuring.backends.workers_backend import WorkersOptions, open_workers_backend

REPORT_S, ANSWER_S = 5.0, 2.0
"""Timeouts; with seven ranks on two busy cores, a rank may need more than a second."""
RANK = MPI.COMM_WORLD.Get_rank()
PIDS: list[int] = MPI.COMM_WORLD.allgather(os.getpid())
WORK = sys.argv[1]
FATES = dict(argument.split(":") for argument in sys.argv[2:]) if WORK == "ask" else {}
LOG = Path(sys.argv[2]) if WORK == "measure" else Path()
FATE_OF_1 = sys.argv[3] if WORK == "measure" and len(sys.argv) > 3 else ""
FATE = FATES.get(str(RANK), "")
SENT: list[bytes] = []
STRANGERS: list[socket.socket] = []

atexit.register(lambda: os.write(2, f"rank {RANK} finalizes\n".encode()))
perform, send, call_roll = Station.perform, Connection.send, RankPlaces.call_roll


def interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def no_listener(*_: object) -> NoReturn:
    raise OSError("no port is free")


def identity() -> HostIdentity:
    if FATE == "hang before it reports":
        os.kill(os.getpid(), signal.SIGSTOP)
    if FATE == "interrupted":
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
    return HostIdentity(f"host{RANK // 2}")


def perform_or_hang(station: Station, request: Any) -> Any:
    if FATE == "hang at work":
        os.kill(os.getpid(), signal.SIGSTOP)
    return perform(station, request)


def sent(end: Connection, content: bytes) -> None:
    if end.is_tcp:  # Strangers hear nothing of what goes to a thread of this process.
        SENT.append(content)
    send(end, content)


def among_strangers(own: RankPlaces, *how: Any, all_report: bool) -> None:
    port = own.listener.addresses[0][1]
    STRANGERS.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(12))
    call_roll(own, *how, all_report=all_report)


def replace(place: Any, name: str, value: object) -> None:
    mock.patch.object(place, name, value).start()


places.REPLY_S = 1.0 if WORK != "conform" else 30.0
if WORK == "ask":
    replace(ranks, "own_identity", identity)
    replace(Station, "perform", perform_or_hang)
if FATE == "another release":
    replace(connection, "VERSION", "TuCCL 9.9, crew 8")
if FATE_OF_1 == "it hangs before it reports" and RANK == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
if FATE_OF_1 == "it hangs before it reports" and RANK == 0:
    replace(ranks, "own_identity", interrupted)  # In the roll call.
if FATE_OF_1 == "the leader cannot listen":
    replace(places, "Listener", no_listener)
if FATE_OF_1 == "strangers come" and RANK == 0:
    replace(Connection, "send", sent)
    replace(RankPlaces, "call_roll", among_strangers)


def conform(own: RankPlaces) -> dict[str, Any]:
    outcomes = {}
    for name, check in CHECKS.items():
        outcomes[name] = ""
        try:
            check(own)
        except Exception:  # noqa: BLE001 - the test shows it
            outcomes[name] = traceback.format_exc()
    return outcomes


def ask_twice(own: RankPlaces) -> dict[str, Any]:
    everybody = dict.fromkeys(first_places(own.places), Stop())
    answers = [own.ask(everybody, ANSWER_S) for _ in range(2)]
    answers_by_place = [
        {
            own.places[place].host: asdict(answer) if isinstance(answer, Lost) else "done"
            for place, answer in each.items()
        }
        for each in answers
    ]
    if FATE == "interrupted while ranks leave":
        os.kill(PIDS[1], signal.SIGSTOP)
        replace(ranks, "dismiss", interrupted)
    return {"answers": answers_by_place}


def measure(own: RankPlaces) -> dict[str, Any]:
    with open_workers_backend("sockets", own, WorkersOptions(least_deadline_s=2.0)) as backend:
        outcomes = carry_out(backend, own, LOG, befall_rank_1)
        found: dict[str, object] = {"outcomes": outcomes, "incidents": backend.incidents}
    key = own.listener.key
    found["key_sent"] = any(key in said or key.hex().encode() in said for said in SENT)
    if FATE_OF_1 == "it hangs at the end":
        os.kill(PIDS[1], signal.SIGSTOP)
    if FATE_OF_1 == "it hangs after its farewell":
        replace(RankPlaces, "say_farewell", lambda _: os.kill(PIDS[1], signal.SIGSTOP))
        replace(ranks, "END_S", 2.0)
    return {**found, "sent": len(SENT), "ranks": len(own.places)}


def befall_rank_1() -> None:
    if FATE_OF_1 == "its workers are killed":
        for worker in psutil.Process(PIDS[1]).children():
            worker.kill()
    elif FATE_OF_1 == "it is killed":
        os.kill(PIDS[1], signal.SIGKILL)
        time.sleep(20)
    elif FATE_OF_1 == "it hangs":
        # Its workers, too, so that it is asked what became of them.
        for process in psutil.Process(PIDS[1]).children():
            process.suspend()
        os.kill(PIDS[1], signal.SIGSTOP)


def lead(own: RankPlaces | None) -> int:
    assert own is not None
    work = {"conform": conform, "ask": ask_twice, "measure": measure}[WORK]
    sys.stdout.write(json.dumps(work(own)))
    return 7


try:
    sys.exit(run_ranks(lead, REPORT_S, all_report=WORK != "ask"))
except TucclError as error:
    sys.stderr.write(f"tuccl: {error}\n")
    sys.exit(exit_code_of(error))
