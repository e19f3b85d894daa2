"""The NCCL that a run measures, found on every host before anything is probed.

Each rank of an MPI job searches its own host, because installations may differ; rank 0 reports on
all of them. TUCCL_NCCL_LIBRARY then names the NCCL to the workers that a rank starts, so that none
of them searches again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from socket import gethostname

from tuccl.api.hosts.rank_answers import RankAnswers, answer_on_ranks
from tuccl.errors import ExitCode, MeasurementError, NcclLibraryError, SeveralNcclsError
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl

_TAGS = 23, 24
"""MPI tags; 21 and 22 are those of `tuccl.measuring.workers.mpi_places` and
`tuccl.api.default_backend`."""
_REPORT_S = 60.0
"""Time limit for the search of all ranks, on slow file systems."""


@dataclass(frozen=True, slots=True)
class HostNccl:
    """The NCCL of a host."""

    host: str
    version: str = ""
    """Version as `2.28.9`; empty: no NCCL was found, or several."""
    note: str = ""
    """Reason for this NCCL, where the host has several."""
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
    """Note which NCCL is used where there was a choice, in one line for equal hosts.

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


def look_on_all_ranks(
    tasks: int,
    first: Callable[[], None],
    code_of_error: Callable[[BaseException], int],
    note: Callable[[Iterable[str]], None],
    *,
    measures_nccl: bool,
    required: bool,
    environment: Mapping[str, str] = os.environ,
) -> tuple[int, HostNccl]:
    """Run the first checks, and find the NCCL of every rank of an MPI job.

    Args:
        tasks: Number of tasks that the launcher started.
        first: Further checks on rank 0.
        code_of_error: Returns the exit code of an error.
        note: Called with the notes of `tell_nccl`.
        measures_nccl: Whether the ranks need to find an NCCL.
        required: As for `tell_nccl`.
        environment: Environment of the future workers.

    Returns:
        The exit code, 0 to go on, and this rank's NCCL.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
        MeasurementError: On rank 0: the run cannot go on.
    """
    own = nccl_of_host(environment) if measures_nccl else HostNccl(gethostname())

    def lead(ranks: RankAnswers[HostNccl]) -> int:
        first()
        if measures_nccl:
            tell_nccl([own, *ranks.answers], required=required, note=note)
        return ExitCode.OK

    data = json.dumps(asdict(own)).encode()
    return answer_on_ranks(tasks, _TAGS, data, _answer, lead, code_of_error, _REPORT_S), own


def _answer(rank: int, data: bytes) -> HostNccl:
    try:
        return HostNccl(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise MeasurementError(
            f"MPI rank {rank} runs another release: install the same on all hosts"
        ) from error
