"""A job for `mpirun`: rank 0 carries out the plan after what the argument names befell rank 1.

mpirun -np 3 python -m tests.tuccl.measuring.mpi_measuring_job [FATE]
"""

import json
import os
import signal
import sys
import time

import psutil
from mpi4py import MPI

from lookup_tables.table import Operation
from tests.tuccl.measuring.measuring_plan import carry_out
from tuccl.backends.workers_backend import WorkersBackend, WorkersOptions, open_workers_backend
from tuccl.errors import TucclError
from tuccl.measuring import mpi_places
from tuccl.measuring.mpi_places import MpiPlaces, run_measuring_ranks
from tuccl.measuring.seating import whole_shape
from tuccl.search.config import STOCK, Config, Task

FATE = sys.argv[1] if len(sys.argv) > 1 else ""
PIDS = MPI.COMM_WORLD.gather(os.getpid())
mpi_places._REPLY_S = 1.0


def lead(places: MpiPlaces) -> int:
    with open_workers_backend("sockets", places, WorkersOptions(least_deadline_s=2.0)) as backend:
        befall_rank_1(backend, places)
        told = {"outcomes": carry_out(backend, places), "incidents": backend.incidents}
    sys.stdout.write(json.dumps({**told, "ranks": len(places.places)}))
    return 7


def befall_rank_1(backend: WorkersBackend, places: MpiPlaces) -> None:
    if FATE == "its worker is killed":
        psutil.Process(PIDS[1]).children()[0].kill()
    elif FATE == "it is killed":
        os.kill(PIDS[1], signal.SIGKILL)
        time.sleep(20)
    elif FATE == "it hangs":
        os.kill(PIDS[1], signal.SIGSTOP)
        task = Task(Operation.ALL_REDUCE, 4096, whole_shape(places.places))
        backend.measure(task, STOCK, 0, 1)  # The worker runs on,
        backend.measure(task, Config("ring", "LL", 1, nthreads=128), 0, 1)  # another cannot start.


try:
    sys.exit(run_measuring_ranks(MPI.COMM_WORLD.Get_size(), lead, lambda _: 9, 5.0))
except TucclError as error:
    sys.stderr.write(f"tuccl: {error}\n")
    sys.exit(9)
