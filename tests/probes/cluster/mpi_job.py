"""A job for `mpirun`: ranks 2i and 2i+1 are host i; the arguments name faults of ranks.

    mpirun -np 6 python mpi_job.py RANK:hang ...

The leader asks all hosts twice and prints the answers as JSON. Ranks report that they finalize MPI.
"""

import atexit
import json
import os
import signal
import sys
from dataclasses import asdict
from unittest import mock

from mpi4py import MPI

from probes.cluster import messages, mpi
from probes.cluster.crew import HostFailure
from probes.cluster.messages import Reply, Request, Stop
from probes.cluster.mpi_post import Post
from probes.cluster.station import Station
from probes.host.report import HostIdentity

REPORT_S, ANSWER_S = 5.0, 2.0
"""Timeouts; with seven ranks on two busy cores, a rank may need more than a second."""
rank = MPI.COMM_WORLD.Get_rank()
take = Post.take
pids = MPI.COMM_WORLD.allgather(os.getpid())
fates = dict(argument.split(":") for argument in sys.argv[1:])


def take_or_be_interrupted(post: Post, tag: int) -> tuple[int, bytes] | None:
    if tag == mpi._GONE:
        raise KeyboardInterrupt
    return take(post, tag)


def identity() -> HostIdentity:
    if fates.get(str(rank)) == "hang before it reports":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fates.get(str(rank)) == "interrupted":
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
    return HostIdentity(f"host{rank // 2}")


def perform(station: Station, request: Request) -> Reply:
    if fates.get(str(rank)) == "hang at work":
        os.kill(os.getpid(), signal.SIGSTOP)
    return station.do(request)


atexit.register(lambda: os.write(2, f"rank {rank} finalizes\n".encode()))
if fates.get(str(rank)) == "another release":
    mock.patch.object(messages, "version", return_value="TuCCL 9.9, messages 8").start()
mock.patch.object(mpi, "own_identity", identity).start()
mpi._GOODBYE_S = 1.0
mock.patch.object(Station, "perform", perform).start()


def lead(crew: mpi.MpiCrew) -> int:
    everybody = dict.fromkeys(range(len(crew.names)), Stop())
    answers = [crew.ask(everybody, ANSWER_S) for _ in range(2)]
    answers_of = [
        {
            host: asdict(answer) if isinstance(answer, HostFailure) else answer.reply
            for host, answer in each.items()
        }
        for each in answers
    ]
    sys.stdout.write(json.dumps({"names": crew.names, "answers": answers_of}))
    if fates.get("0") == "interrupted while ranks leave":
        os.kill(pids[1], signal.SIGSTOP)
        mock.patch.object(Post, "take", take_or_be_interrupted).start()
    return 7


sys.exit(mpi.run_with_mpi(MPI.COMM_WORLD.Get_size(), lead, lambda _: 9, REPORT_S))
