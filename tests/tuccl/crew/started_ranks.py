"""Commands as a launcher starts them: one process imports everything, and forks every rank.

    python -m tests.tuccl.crew.started_ranks < JOBS

JOBS is JSON: for each job whether the launcher ends all ranks once one has failed, and a list of
ranks, each with its variables, its words after `tuccl`, its time for others to report, and what
befalls it (`FATES`). All jobs run at once. The output is JSON: for each job the exit code, standard
output and standard error of each rank.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

from probes.host.report import HostIdentity
from tests.tuccl.ready_command import load_all
from tuccl.api.hosts.probing import with_hosts
from tuccl.api.hosts.settled_nccl import HostNccl, NcclSearch
from tuccl.cli import app
from tuccl.cli.app import main
from tuccl.crew import connection, interrupts, ranks
from tuccl.crew.hosting import Hosting
from tuccl.crew.ranks import RankPlaces
from tuccl.measuring.engines import nccl_environment

_LATE_S = 60.0
_SPEAKS_AFTER_S = 2.0
_WORD_S = interrupts._WORD_S


def speaks_late() -> None:
    complain = app._complain

    def complain_late(text: str) -> None:
        time.sleep(_SPEAKS_AFTER_S)
        complain(text)

    app._complain = complain_late


def no_mpi4py() -> None:
    sys.modules["mpi4py"] = None  # type: ignore[assignment]


def is_late() -> None:
    folder = Path(sys.argv[sys.argv.index("--workspace") + 1])
    deadline = time.monotonic() + _LATE_S
    while not any(folder.glob(".job-*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)


def has_another_release() -> None:
    connection.VERSION = "TuCCL 9.9, crew 8"


def has_another_nccl() -> None:
    version = f"2.2{os.environ['RANK']}.3"
    NcclSearch.perform = lambda *_: HostNccl(f"node{os.environ['RANK']}", version)  # type: ignore[method-assign]


def is_alone_on_a_host_of_2_gpus() -> None:
    nccl_environment.count_gpus = lambda *_: 2
    identity = HostIdentity(f"node{os.environ['RANK']}")
    ranks.own_identity = lambda: identity


def dies_when_it_is_to_start_a_worker() -> None:
    Hosting.perform = _die  # type: ignore[method-assign,assignment]


def dies_when_all_have_reported() -> None:
    call_roll = RankPlaces.call_roll

    def call_and_die(own: RankPlaces, *how: Any, all_report: bool) -> None:
        call_roll(own, *how, all_report=all_report)
        _die()

    RankPlaces.call_roll = call_and_die  # type: ignore[assignment]


def _die(*_: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


FATES: dict[str, Callable[[], None]] = {
    fate.__name__: fate
    for fate in (
        speaks_late,
        no_mpi4py,
        is_late,
        has_another_release,
        has_another_nccl,
        is_alone_on_a_host_of_2_gpus,
        dies_when_it_is_to_start_a_worker,
        dies_when_all_have_reported,
    )
}


def _run(rank: dict[str, Any], streams: tuple[IO[bytes], IO[bytes]]) -> NoReturn:
    for wanted, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), wanted)
    os.environ.update(rank["environment"])
    sys.argv = ["tuccl", *rank["words"]]
    with_hosts.__defaults__ = (rank["limit_s"], None)
    for fate in rank["fates"]:
        FATES[fate]()
    main()
    raise AssertionError


def _started(rank: dict[str, Any]) -> tuple[int, tuple[IO[bytes], IO[bytes]]]:
    output, errors = (os.fdopen(os.memfd_create(name), "w+b") for name in ("output", "errors"))
    streams = (output, errors)
    if (pid := os.fork()) == 0:
        _run(rank, streams)
    return pid, streams


class _Job:
    """Its ranks run from the start."""

    def __init__(self, ranks: list[dict[str, Any]], *, ends_together: bool) -> None:
        self._ends_together = ends_together
        interrupts._WORD_S = _WORD_S if ends_together else 0.0  # Nobody would end that wait.
        started = [_started(rank) for rank in ranks]
        self.codes = dict.fromkeys((pid for pid, _ in started), -1)
        self._streams = [streams for _, streams in started]
        self.running = set(self.codes)

    def end(self, pid: int, code: int) -> None:
        """A rank has ended."""
        self.codes[pid] = code
        self.running.remove(pid)
        if code and self._ends_together:
            for other in self.running:
                os.kill(other, signal.SIGTERM)

    def said(self) -> list[tuple[int, str, str]]:
        """What became of each rank."""
        return [
            (code, _text(output), _text(errors))
            for code, (output, errors) in zip(self.codes.values(), self._streams, strict=True)
        ]


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


def _run_all(jobs: dict[str, _Job]) -> None:
    while any(job.running for job in jobs.values()):
        pid, status = os.wait()
        (job,) = (each for each in jobs.values() if pid in each.running)
        job.end(pid, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    load_all()
    gc.collect()
    gc.freeze()  # Ranks that collect garbage copy no pages of modules.
    jobs = {name: _Job(**job) for name, job in json.load(sys.stdin).items()}
    _run_all(jobs)
    sys.stdout.write(json.dumps({name: job.said() for name, job in jobs.items()}))
