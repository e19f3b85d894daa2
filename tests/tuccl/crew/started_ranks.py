"""Commands as a launcher starts them: one process imports everything, and forks every rank.

    python -m tests.tuccl.crew.started_ranks < JOBS

JOBS is JSON: for each job a list of ranks, each with its variables, its words after `tuccl`, its
time for others to report, and what befalls it (`FATES`). All jobs run at once. The output is
JSON: for each job the exit code, standard output and standard error of each rank.
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

from tests.tuccl.ready_command import load_all
from tuccl.api.hosts.probing import with_hosts
from tuccl.api.hosts.settled_nccl import HostNccl, NcclSearch
from tuccl.cli.app import main
from tuccl.crew import connection
from tuccl.crew.hosting import Hosting
from tuccl.crew.ranks import RankPlaces

_LATE_S = 60.0


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


def dies_when_it_is_to_start_a_worker() -> None:
    Hosting.perform = _die  # type: ignore[method-assign,assignment]


def dies_when_all_have_reported() -> None:
    call_roll = RankPlaces.call_roll

    def call_and_die(own: RankPlaces, timeout_s: float, *, all_report: bool) -> None:
        call_roll(own, timeout_s, all_report=all_report)
        _die()

    RankPlaces.call_roll = call_and_die  # type: ignore[assignment]


def _die(*_: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


FATES: dict[str, Callable[[], None]] = {
    fate.__name__: fate
    for fate in (
        no_mpi4py,
        is_late,
        has_another_release,
        has_another_nccl,
        dies_when_it_is_to_start_a_worker,
        dies_when_all_have_reported,
    )
}


def _run(rank: dict[str, Any], streams: tuple[IO[bytes], ...]) -> NoReturn:
    for wanted, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), wanted)
    os.environ.update(rank["environment"])
    sys.argv = ["tuccl", *rank["words"]]
    with_hosts.__defaults__ = (rank["limit_s"], None)
    for fate in rank["fates"]:
        FATES[fate]()
    main()
    raise AssertionError


def _started(rank: dict[str, Any]) -> tuple[int, tuple[IO[bytes], ...]]:
    streams = tuple(os.fdopen(os.memfd_create(name), "w+b") for name in ("output", "errors"))
    if (pid := os.fork()) == 0:
        _run(rank, streams)
    return pid, streams


def _outcome(pid: int, streams: tuple[IO[bytes], ...]) -> tuple[int, str, str]:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for stream in streams:
        stream.seek(0)
    output, errors = (stream.read().decode() for stream in streams)
    return code, output, errors


if __name__ == "__main__":
    load_all()
    gc.collect()
    gc.freeze()  # Ranks that collect garbage copy no pages of modules.
    jobs = {name: list(map(_started, ranks)) for name, ranks in json.load(sys.stdin).items()}
    said = {name: [_outcome(*rank) for rank in ranks] for name, ranks in jobs.items()}
    sys.stdout.write(json.dumps(said))
