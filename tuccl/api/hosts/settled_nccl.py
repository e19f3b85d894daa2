"""The NCCL that a run measures, found on every host before anything is probed.

Each rank of an MPI job searches its own host, because installations may differ; rank 0 reports on
all of them. TUCCL_NCCL_LIBRARY then names the NCCL to the workers that a rank starts, so that none
of them searches again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from socket import gethostname
from typing import ClassVar

from tuccl.crew.asking import Lost
from tuccl.crew.messages import Failed, Request
from tuccl.crew.places import Places
from tuccl.errors import MeasurementError, NcclLibraryError, SeveralNcclsError
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl

_REPORT_S = 60.0
"""Time limit for the search of all ranks, on slow file systems."""


@dataclass(frozen=True, slots=True)
class HostNccl:
    """The NCCL of a host."""

    host: str
    version: str = ""
    """Version as `2.28.9`; empty: no NCCL was found, or several."""
    note: str = ""
    """Reason for this NCCL, if the host has several."""
    problem: str = ""
    """Reason for having none."""
    unclear: bool = False
    """Whether the host has several, and none is named."""
    library: str = ""
    """Path of the library on that host."""

    @property
    def variables(self) -> dict[str, str]:
        """Variables that name the NCCL to the workers of this host."""
        return {LIBRARY_VARIABLE: self.library} if self.library else {}


@dataclass(frozen=True, slots=True)
class FindNccl(Request):
    """Find the NCCL of the host, and let the workers there use it."""

    duty: ClassVar[str] = "nccl"
    answer: ClassVar[type[HostNccl]] = HostNccl


class NcclSearch:
    """See `Duty`."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Begin.

        Args:
            environment: Environment of the workers of this process.
        """
        self._environment = environment

    def perform(self, request: FindNccl) -> HostNccl:  # noqa: ARG002 - there is one request
        """See `Duty`."""
        found = nccl_of_host(self._environment)
        self._environment.update(found.variables)
        return found

    def close(self) -> None:
        """See `Duty`."""


def nccl_of_host(environment: Mapping[str, str] = os.environ) -> HostNccl:
    """Find the NCCL of this host, for workers with this environment."""
    try:
        library = find_nccl(None, environment)
    except NcclLibraryError as error:
        unclear = isinstance(error, SeveralNcclsError)
        return HostNccl(gethostname(), problem=str(error), unclear=unclear)
    return HostNccl(gethostname(), library.version_text, library.note, library=str(library.path))


def tell_nccl(
    hosts: Sequence[HostNccl],
    *,
    required: bool,
    note: Callable[[Iterable[str]], None],
) -> None:
    """Note which NCCL is used if there was a choice, in one line for equal hosts.

    Args:
        hosts: The NCCLs of the ranks, in their order.
        required: Whether every host needs an NCCL; otherwise the worker that lacks it fails.
            Several NCCLs are an error in any case.
        note: Called with the notes.

    Raises:
        SeveralNcclsError: A host has several, and none is named.
        NcclLibraryError: A host has none, or another one than the first.
    """
    for host in hosts:
        where = f"on {host.host}, " if host.host != hosts[0].host else ""
        if host.unclear:
            raise SeveralNcclsError(f"{where}{host.problem}")
        if host.problem and required:
            raise NcclLibraryError(f"{where}{host.problem}")
    found: dict[str, HostNccl] = {}
    for host in hosts:
        if host.version:
            found.setdefault(host.version, host)
    if len(found) > 1:
        listed = " and ".join(f"{host.version} on {host.host}" for host in found.values())
        raise NcclLibraryError(
            f"ranks of different NCCLs cannot join: {listed}; install one version on all hosts, or "
            f"name it in {LIBRARY_VARIABLE}"
        )
    note(dict.fromkeys(host.note for host in hosts if host.note))


def settle_nccl(
    places: Places | None, note: Callable[[Iterable[str]], None], *, required: bool
) -> None:
    """Find the NCCL of every place, or of this process, and note which is used.

    Raises:
        SeveralNcclsError: A host has several, and none is named.
        NcclLibraryError: A host has none and needs one, or has another one than the first.
        MeasurementError: A place is lost.
    """
    if places is None:
        tell_nccl([nccl_of_host()], required=required, note=note)
        return
    answers = places.ask(dict.fromkeys(range(len(places.places)), FindNccl()), _REPORT_S)
    for place, answer in answers.items():
        if isinstance(answer, Lost | Failed):
            where = places.places[place].host
            raise MeasurementError(f"{where} does not say which NCCL it has: {answer.reason}")
    tell_nccl(list(answers.values()), required=required, note=note)
