"""Whether jobs of several hosts would load the same shipped table: `tuccl doctor` on each host.

A host that lacks the table runs stock NCCL beside others that follow it, which can hang a job. The
hosts are those of an MPI job, or are reached by a launcher such as ssh.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname
from typing import ClassVar

from tuccl.crew.asking import Lost
from tuccl.crew.messages import Failed, Request
from tuccl.crew.places import Places, first_places
from tuccl.errors import UsageError
from tuccl.shipping.doctor.diagnosis import diagnose
from tuccl.shipping.doctor.ship_check import CheckedHost

_REPORT_S = 60.0
_CLOCKS_APART_S = 5.0
"""Least difference of two clocks that is reported; ranks of an MPI job start some seconds apart."""


@dataclass(frozen=True, slots=True)
class CheckTable(Request):
    """Judge whether a job on the host would load a shipped table."""

    duty: ClassVar[str] = "table"
    answer: ClassVar[type[CheckedHost]] = CheckedHost
    directory: str


class TableCheck:
    """See `Duty`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Begin.

        Args:
            environment: Environment of jobs.
        """
        self._environment = environment

    def perform(self, request: CheckTable) -> CheckedHost:
        """See `Duty`."""
        return verdict_here(Path(request.directory), self._environment)

    def close(self) -> None:
        """See `Duty`."""


def verdict_here(directory: Path, environment: Mapping[str, str] = os.environ) -> CheckedHost:
    """Return the verdict of this host."""
    try:
        return CheckedHost(host=gethostname(), diagnosis=diagnose(directory, environment))
    except UsageError as error:
        return CheckedHost(host=gethostname(), failure=str(error))


def verdicts(
    directory: Path, places: Places | None, limit_s: float = _REPORT_S
) -> list[CheckedHost]:
    """Return a verdict of each host, in their order; without places that of this host.

    Args:
        directory: The shipped directory, at the same path on all hosts.
        places: The hosts' places.
        limit_s: Time for all to answer.
    """
    if places is None:
        return [verdict_here(directory)]
    began_s = time.time()
    request = CheckTable(str(directory))
    answers = places.ask(dict.fromkeys(first_places(places.places), request), limit_s)
    ended_s = time.time()
    found = []
    for place, answer in answers.items():
        host = places.places[place].host
        if isinstance(answer, Lost | Failed):
            found.append(CheckedHost(host=host, failure=answer.reason))
        else:
            found.append(with_clock(replace(answer, host=host), began_s, ended_s))
    return found


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
