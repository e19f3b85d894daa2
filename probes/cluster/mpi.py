"""A crew of MPI ranks: rank 0 leads, the first rank of every host works, the others wait.

No collective operation is used, because one rank that hangs would hang all: messages go to and from
rank 0, and waiting ranks poll with pauses, which leaves the cores to the measurement. mpi4py is
imported on first use.
"""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from probes.cluster.crew import Answers, HostFailure, answer_of
from probes.cluster.messages import (
    Bye,
    Failed,
    Reply,
    Request,
    reply_from_line,
    reply_to_line,
    request_from_line,
    request_to_line,
)
from probes.cluster.mpi_post import RANK_PAUSE_S, Post
from probes.cluster.mpi_start import join_mpi, own_identity, run_ranks
from probes.cluster.station import Station
from probes.host.report import HostIdentity
from tuccl.errors import MessageError

_REQUEST, _REPLY, _ROLL_CALL, _GONE = 1, 2, 3, 4
_LEADER_PAUSE_S = 0.001
_GOODBYE_S = 5.0
"""Time limit for a rank to acknowledge its dismissal."""


def mpi_tasks(environment: Mapping[str, str]) -> int:
    """Number of tasks that an MPI launcher started with this one; 0 without a launcher.

    Open MPI's mpirun sets OMPI_COMM_WORLD_SIZE, MPICH's and Intel's set PMI_SIZE, srun describes
    its step; a batch script without srun is not a step.
    """
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if (tasks := _number(environment.get(name, ""))) > 0:
            return tasks
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        count = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", "")
        return tasks if (tasks := _number(count)) > 1 else 0
    return 1 if "PMIX_RANK" in environment else 0


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0


def run_with_mpi(
    tasks: int,
    lead: Callable[[MpiCrew], int],
    code_of_error: Callable[[BaseException], int],
    timeout_s: float,
) -> int:
    """Lead on rank 0, work on the other ranks; every rank returns the exit code of rank 0.

    Args:
        tasks: number of tasks that the launcher started.
        lead: runs on rank 0 with the crew and returns the exit code.
        code_of_error: returns the exit code when `lead` raises.
        timeout_s: time limit for ranks to report.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
    """
    comm = join_mpi(tasks, timeout_s)
    return run_ranks(comm, MpiCrew, lead, _follow, code_of_error, timeout_s)


class MpiCrew:
    """The leader's side of a job: a crew with a working rank per host."""

    names_are_given = False

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._post = Post(comm)
        self._asked = 0
        self._lost: dict[int, str] = {}
        """Reasons of the lost ranks, by rank."""
        self._station = Station()
        self._ranks: list[int] = []
        """The working rank of each host."""
        self.names: tuple[str, ...] = ()

    def call_roll(self, timeout_s: float) -> None:
        """Wait for the ranks to report; a rank that does not report counts as a separate host."""
        found = {0: own_identity()}
        deadline = time.monotonic() + timeout_s
        size = self._comm.Get_size()
        while len(found) < size and time.monotonic() < deadline:
            if (message := self._post.take(_ROLL_CALL)) is None:
                time.sleep(_LEADER_PAUSE_S)
                continue
            try:
                found[message[0]] = HostIdentity(**json.loads(message[1]))
            except (ValueError, TypeError):
                found[message[0]] = HostIdentity(f"rank {message[0]}")
                self._lost[message[0]] = "it runs another release: install the same on all hosts"
        ranks_of: dict[HostIdentity, list[int]] = {}
        for rank in range(size):
            if rank not in found:
                self._lost[rank] = f"it did not report within {timeout_s:g} s"
            ranks_of.setdefault(found.get(rank, HostIdentity(f"rank {rank}")), []).append(rank)
        self._ranks = [ranks[0] for ranks in ranks_of.values()]
        self.names = tuple(identity.hostname for identity in ranks_of)

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> Answers:
        """See `Crew`."""
        self._asked += 1
        own: list[Reply] = []
        thread = None
        for host, request in requests.items():
            rank = self._ranks[host]
            if rank == 0:
                thread = threading.Thread(
                    target=lambda job: own.append(self._station.perform(job)),
                    args=(request,),
                    daemon=True,
                )
                thread.start()
            elif rank not in self._lost:
                self._post.send(rank, _REQUEST, request_to_line(self._asked, request))
        arrived = self._collect(requests, own, time.monotonic() + timeout_s, timeout_s)
        return {
            host: HostFailure(self._label(host), self._lost[self._ranks[host]])
            if self._ranks[host] in self._lost
            else answer_of(self._label(host), arrived[self._ranks[host]])
            for host in requests
        }

    def _collect(
        self, requests: Mapping[int, Request], own: list[Reply], deadline: float, timeout_s: float
    ) -> dict[int, Reply]:
        """Return replies by rank; ranks that are late are lost."""
        arrived: dict[int, Reply] = {}
        waiting = {self._ranks[host] for host in requests} - self._lost.keys()
        while waiting:
            if own and 0 in waiting:
                arrived[0] = own[0]
            message = self._post.take(_REPLY)
            if message is not None:
                try:
                    number, reply = reply_from_line(message[1], f"rank {message[0]}")
                    if number == self._asked:
                        arrived[message[0]] = reply
                except MessageError as error:
                    self._lost[message[0]] = str(error)
            waiting -= arrived.keys() | self._lost.keys()
            if waiting and time.monotonic() > deadline:
                self._lost.update(dict.fromkeys(waiting, f"no answer within {timeout_s:g} s"))
            elif message is None:
                time.sleep(_LEADER_PAUSE_S)
        return arrived

    def _label(self, host: int) -> str:
        rank, name = self._ranks[host], self.names[host]
        return name if name == f"rank {rank}" else f"{name} (rank {rank})"

    def dismiss(self, exit_code: int) -> Collection[int]:
        """Tell every rank its exit code; return the lost ranks, silent ranks included."""
        self._station.close()
        waiting = set(range(1, self._comm.Get_size()))
        for rank in waiting:
            self._post.send(rank, _REQUEST, request_to_line(0, Bye(exit_code=exit_code)))
        waiting -= self._lost.keys()
        deadline = time.monotonic() + _GOODBYE_S
        while waiting and time.monotonic() < deadline:
            if (message := self._post.take(_GONE)) is not None:
                waiting.discard(message[0])
            else:
                time.sleep(_LEADER_PAUSE_S)
        return waiting | self._lost.keys()


def _follow(comm: Any) -> int:
    """Run a rank other than 0: report, then answer requests until dismissed."""
    post, station = Post(comm), Station()
    post.send(0, _ROLL_CALL, json.dumps(dataclasses.asdict(own_identity())).encode())
    while True:
        message = post.take(_REQUEST)
        if message is None:
            time.sleep(RANK_PAUSE_S)
            continue
        try:
            number, request = request_from_line(message[1])
        except MessageError as error:
            # No later message of this leader would be understood, its dismissal included.
            post.send(0, _REPLY, reply_to_line(0, Failed(reason=str(error))))
            request = Bye()
        if isinstance(request, Bye):
            station.close()
            post.send(0, _GONE, b"gone")
            post.wait_until_sent()
            return request.exit_code
        post.send(0, _REPLY, reply_to_line(number, station.perform(request)))
