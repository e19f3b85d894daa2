"""This process among those that a launcher started, as the environment says.

torchrun, a PyTorchJob, Lightning and accelerate tell each process its rank and the number of
processes (RANK, WORLD_SIZE), and so do srun (SLURM_PROCID, SLURM_NTASKS), Flux and launchers of
MPI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tuccl.errors import UsageError

TORCHRUN_ID = "TORCHELASTIC_RUN_ID"
"""Only torchrun itself sets it."""


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of a launcher."""

    name: str
    rank: str
    sizes: tuple[str, ...] = ()
    """Variables with the number of ranks; the first that is set counts. Some launchers set none."""
    on_host: str = ""
    """The variable with the rank on its host."""
    job: tuple[str, ...] = ()
    """Those that differ from job to job."""
    within: str = ""
    """The variable that only ranks have; a batch script of Slurm has the others, too."""


_SLURM_JOB = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_MPI_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", *_SLURM_JOB)
_TORCHRUN = _Launcher(
    "torchrun", "RANK", ("WORLD_SIZE",), "LOCAL_RANK",
    (TORCHRUN_ID, "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
)  # fmt: skip
_OF_MPI = (
    _Launcher(
        "MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_RANK"
    ),
    _Launcher("MPI", "PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID"),
    _Launcher("MPI", "MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",), "MV2_COMM_WORLD_LOCAL_RANK"),
    _Launcher("MPI", "PMIX_RANK", (), "PMIX_LOCAL_RANK"),
    _Launcher("MPI", "PALS_RANKID", (), "PALS_LOCAL_RANKID"),
)  # fmt: skip
_WITHOUT_MPI = (
    _Launcher(
        "flux", "FLUX_TASK_RANK", ("FLUX_JOB_SIZE",), "FLUX_TASK_LOCAL_ID", ("FLUX_JOB_ID",)
    ),
    _Launcher(
        "srun", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_LOCALID",
        _SLURM_JOB, within="SLURM_STEP_ID",
    ),
    _Launcher("a Job of Kubernetes", "JOB_COMPLETION_INDEX"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StartedRank:
    """This process among those that a launcher started."""

    launcher: str
    """Its name, for people."""
    rank: int
    size: int
    job: str
    """The launcher's name for the job, which tells it from others."""
    has_mpi: bool = False
    """Whether the launcher is MPI's, so that its ranks can meet by MPI."""


def started_rank(environment: Mapping[str, str]) -> StartedRank | None:
    """Return this process's rank; None for a process alone.

    The innermost launcher counts: srun may have started torchrun, with one task on each host.

    Raises:
        UsageError: Variables say that this is a rank, but not which one of how many.
    """
    has_mpi = any(environment.get(name) for each in _OF_MPI for name in (each.rank, *each.sizes))
    ordered = [*_OF_MPI, *_WITHOUT_MPI]
    torchrun_is_inside = not has_mpi or TORCHRUN_ID in environment
    ordered.insert(0 if torchrun_is_inside else len(ordered), _TORCHRUN)
    halves: dict[str, str] = {}
    is_alone = False
    for each in ordered:
        if each.within and each.within not in environment:
            continue
        size_name = next((name for name in each.sizes if environment.get(name)), "")
        given = {name: text for name in (each.rank, size_name) if (text := environment.get(name))}
        rank, size = given.get(each.rank, ""), whole_number(given.get(size_name, ""))
        if rank.isdigit() and int(rank) < size and size > 1:
            by_mpi = has_mpi and each is not _TORCHRUN
            name, variables = ("MPI", _MPI_JOB) if by_mpi else (each.name, each.job)
            job = " ".join(environment.get(variable, "") for variable in variables)
            return StartedRank(name, int(rank), size, f"{name} {size} {job}", by_mpi)
        is_alone |= size == 1 and rank in {"", "0"}
        halves |= given
    if halves and not is_alone:
        said = ", ".join(f"{name}={text:.40}" for name, text in halves.items())
        raise UsageError(
            f"which rank of how many this process is does not follow from {said}: set RANK and "
            "WORLD_SIZE for each, to 0 and 1 for this host alone"
        )
    return None


def is_rank_0(environment: Mapping[str, str]) -> bool:
    """Return whether a launcher made this process rank 0, or none made it a rank."""
    with suppress(UsageError):
        started = started_rank(environment)
        return started is None or started.rank == 0
    return True


def is_first_on_host(environment: Mapping[str, str]) -> bool:
    """Return whether this is the first rank of its host, as far as its launcher says."""
    names = (each.on_host for each in (_TORCHRUN, *_OF_MPI, *_WITHOUT_MPI))
    return next((environment[name] for name in names if name in environment), "0") == "0"


def ranks_of_launcher(environment: Mapping[str, str]) -> int:
    """Return the number of ranks that a launcher started with this one; 0 without a launcher."""
    started = started_rank(environment)
    return 0 if started is None else started.size


def nodes_left_out(environment: Mapping[str, str]) -> int:
    """Return how many nodes of its Slurm job a process outside of srun leaves idle."""
    if "SLURM_STEP_ID" in environment:
        return 0
    return max(whole_number(environment.get("SLURM_JOB_NUM_NODES", "")) - 1, 0)


def ray_job(environment: Mapping[str, str]) -> str:
    """Return the address of the cluster in whose job this process is; empty outside of one.

    `ray job submit` sets the first variable for its command, and no other start does.
    """
    inside = "RAY_JOB_CONFIG_JSON_ENV_VAR" in environment
    return environment.get("RAY_ADDRESS", "") if inside else ""


def whole_number(text: str) -> int:
    """Return the number of a variable; 0 if it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
