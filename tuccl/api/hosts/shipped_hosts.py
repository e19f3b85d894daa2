"""Whether jobs of several hosts would load the same shipped table: `tuccl doctor` on each host.

A host that lacks the table runs stock NCCL beside others that follow it, which can hang a job. The
hosts are those of an MPI job, or are reached by a launcher such as ssh.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname
from typing import IO

from probes.cluster.launched import DEFAULT_LAUNCHER, launch_command
from probes.inputs.printable import printable
from tuccl.api.hosts.rank_answers import RankAnswers, answer_on_ranks
from tuccl.errors import MeasurementError, UsageError
from tuccl.reports.json_form import json_of, result_from
from tuccl.shipping.doctor.diagnosis import Diagnosis, diagnose
from tuccl.shipping.doctor.ship_check import CheckedHost

_TAGS = 25, 26
"""MPI tags; 23 and 24 are those of `tuccl.api.hosts.settled_nccl`."""
_REPORT_S = 60.0
_MOST_AT_ONCE = 100
_START = b'{\n "schema_version"'
"""Beginning of a document, which a login shell's greeting may precede."""
_MOST_BYTES = 1 << 20
_CLOCKS_APART_S = 5.0
"""Least difference of two clocks that is told; ranks of an MPI job start some seconds apart."""
_PLAIN = re.compile(r"[\w./+,@%=-]+", re.ASCII)
"""Paths that a remote shell leaves as they are."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How hosts are reached without MPI; see `tuccl probe`."""

    hosts: tuple[str, ...]
    launcher: str = ""
    python: str = ""
    limit_s: float = _REPORT_S


def verdict_here(directory: Path, environment: Mapping[str, str] = os.environ) -> CheckedHost:
    """Return the verdict of this host."""
    try:
        return CheckedHost(host=gethostname(), diagnosis=diagnose(directory, environment))
    except UsageError as error:
        return CheckedHost(host=gethostname(), failure=str(error))


def verdicts_of_ranks(
    directory: Path,
    tasks: int,
    judge: Callable[[Sequence[CheckedHost]], int],
    code_of_error: Callable[[BaseException], int],
) -> int:
    """Have rank 0 judge the verdicts of all hosts of an MPI job; return its exit code.

    Args:
        directory: The shipped directory.
        tasks: Number of tasks that the launcher started.
        judge: Runs on rank 0 with one verdict of each host; returns the exit code.
        code_of_error: Returns the exit code of an error.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
        MeasurementError: On rank 0: a rank did not answer.
    """
    began_s = time.time()
    own = verdict_here(directory)

    def lead(ranks: RankAnswers[CheckedHost]) -> int:
        by_host: dict[str, CheckedHost] = {}
        for verdict in (own, *ranks.answers):
            by_host.setdefault(verdict.host, with_clock(verdict, began_s, time.time()))
        return judge(list(by_host.values()))

    data = json.dumps(json_of(own)).encode()
    return answer_on_ranks(tasks, _TAGS, data, _of_rank, lead, code_of_error, _REPORT_S)


def _of_rank(rank: int, data: bytes) -> CheckedHost:
    try:
        return result_from(CheckedHost, data)
    except ValueError as error:
        raise MeasurementError(
            f"MPI rank {rank} runs another release: install the same on all hosts"
        ) from error


def with_clock(answer: CheckedHost, began_s: float, ended_s: float) -> CheckedHost:
    """Return an answer with what its host's clock is ahead of this one's, at least.

    Args:
        answer: The host's answer, made between both times.
        began_s: Time by this host's clock, in seconds since 1970.
        ended_s: Likewise.
    """
    if answer.diagnosis is None:
        return answer
    told_s = answer.diagnosis.time_s
    ahead_s = max(told_s - ended_s, 0.0) + min(told_s - began_s, 0.0)
    apart = abs(ahead_s) >= _CLOCKS_APART_S
    return replace(answer, clock_ahead_s=ahead_s if apart else 0.0)


def verdicts_of_hosts(directory: Path, reach: Reach) -> list[CheckedHost]:
    """Return the verdicts of hosts that a launcher reaches, in their order.

    Raises:
        UsageError: The directory has characters that a remote shell would take for its own.
        MachineError: The launcher or a host's name cannot be used.
    """
    if not _PLAIN.fullmatch(str(directory)):
        raise UsageError(
            f"{str(directory)!a} cannot be given to a shell on other hosts: use a path of letters, "
            "digits and _./+,@%=-, or start this by mpirun or srun"
        )
    arguments = ("-P", "-m", "tuccl", "doctor", str(directory), "--json")
    launcher = reach.launcher or DEFAULT_LAUNCHER
    commands = [
        (host, launch_command(launcher, host, reach.python, arguments)) for host in reach.hosts
    ]
    found: list[CheckedHost] = []
    for first in range(0, len(commands), _MOST_AT_ONCE):
        found += _asked(commands[first : first + _MOST_AT_ONCE], reach.limit_s)
    return found


def _asked(commands: Sequence[tuple[str, Sequence[str]]], limit_s: float) -> Iterator[CheckedHost]:
    """Yield the verdicts of hosts that are asked at once; what still runs in the end is killed."""
    started: list[_Asked] = []
    deadline = time.monotonic() + limit_s
    try:
        started += [_Asked(host, command) for host, command in commands]
        for asked in started:
            yield asked.verdict(max(0.0, deadline - time.monotonic()), limit_s)
    finally:
        for asked in started:
            asked.end()


class _Asked:
    """A host that was asked."""

    def __init__(self, host: str, command: Sequence[str]) -> None:
        self._host = host
        self._failure = ""
        self._began_s = time.time()
        # Files, as a host that nobody reads from yet would fill a pipe. `end` closes them.
        self._said: tuple[IO[bytes], ...] = tuple(
            tempfile.TemporaryFile()  # noqa: SIM115
            for _ in range(2)
        )
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own launcher
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._said[0],
                stderr=self._said[1],
            )
        except OSError as error:
            self._failure = f"the launcher cannot be started: {command[0]}: {error.strerror}"

    def verdict(self, remaining_s: float, limit_s: float) -> CheckedHost:
        if self._process is None:
            return self._none(self._failure)
        try:
            code = self._process.wait(remaining_s)
        except subprocess.TimeoutExpired:
            return self._none(f"no answer within {limit_s:g} s")
        text, complaints = (self._read(stream) for stream in self._said)
        try:
            found = result_from(Diagnosis, text[text.find(_START) :])
        except ValueError:
            lines = complaints.decode(errors="replace").splitlines()
            last = next((line for line in reversed(lines) if line.strip()), "no reason was given")
            return self._none(f"exit code {code}: {printable(last.strip())}")
        answer = CheckedHost(host=self._host, diagnosis=found)
        return with_clock(answer, self._began_s, time.time())

    def _none(self, failure: str) -> CheckedHost:
        return CheckedHost(host=self._host, failure=failure)

    @staticmethod
    def _read(stream: IO[bytes]) -> bytes:
        stream.seek(0)
        return stream.read(_MOST_BYTES)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for stream in self._said:
            stream.close()
