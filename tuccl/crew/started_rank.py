"""This process among those that a launcher started, as the environment says.

torchrun, a PyTorchJob, Lightning and accelerate tell each process its rank and the number of
processes (RANK, WORLD_SIZE), and so do srun (SLURM_PROCID, SLURM_NTASKS) and launchers of MPI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

TORCHRUN_ID = "TORCHELASTIC_RUN_ID"
"""Only torchrun itself sets it."""
_OF_TORCHRUN = (TORCHRUN_ID, "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
_OF_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_OF_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")
_MPI_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", *_OF_SLURM)
_ON_HOST = (
    "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"
)  # fmt: skip
"""Variables with the rank on its host, of the innermost launcher first."""


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
    """
    slurm = environment.get("SLURM_PROCID", ""), str(_slurm_tasks(environment))
    torchrun, open_mpi, pmi = (
        (environment.get(rank, ""), environment.get(size, ""))
        for rank, size in (
            ("RANK", "WORLD_SIZE"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
        )
    )
    has_mpi = any(name in environment for name in _OF_MPI)
    if not has_mpi or TORCHRUN_ID in environment:
        if found := _rank("torchrun", torchrun, environment, _OF_TORCHRUN):
            return found
        if not has_mpi:
            return _rank("srun", slurm, environment, _OF_SLURM)
    ranks = (_rank("MPI", each, environment, _MPI_JOB) for each in (open_mpi, pmi, slurm))
    return next((replace(rank, has_mpi=True) for rank in ranks if rank is not None), None)


def is_rank_0(environment: Mapping[str, str]) -> bool:
    """Return whether a launcher made this process rank 0, or none made it a rank."""
    started = started_rank(environment)
    return started is None or started.rank == 0


def is_first_on_host(environment: Mapping[str, str]) -> bool:
    """Return whether this is the first rank of its host, as far as its launcher says."""
    return next((environment[name] for name in _ON_HOST if name in environment), "0") == "0"


def mpi_tasks(environment: Mapping[str, str]) -> int:
    """Return the number of tasks that an MPI launcher started with this one; 0 without a launcher.

    Open MPI's mpirun sets OMPI_COMM_WORLD_SIZE, MPICH's and Intel's set PMI_SIZE, srun describes
    its step; a batch script without srun is not a step.
    """
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if (tasks := whole_number(environment.get(name, ""))) > 0:
            return tasks
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        return tasks if (tasks := _slurm_tasks(environment)) > 1 else 0
    return 1 if "PMIX_RANK" in environment else 0


def ranks_of_launcher(environment: Mapping[str, str]) -> int:
    """Return the number of ranks that any launcher started with this one; 0 without a launcher."""
    started = started_rank(environment)
    return mpi_tasks(environment) if started is None else started.size


def ray_job(environment: Mapping[str, str]) -> str:
    """Return the address of the cluster in whose job this process is; empty outside of one.

    `ray job submit` sets the first variable for its command, and no other start does.
    """
    inside = "RAY_JOB_CONFIG_JSON_ENV_VAR" in environment
    return environment.get("RAY_ADDRESS", "") if inside else ""


def _slurm_tasks(environment: Mapping[str, str]) -> int:
    """Return the number of tasks of a step of srun; 0 outside of one, as in a batch script."""
    if "SLURM_PROCID" not in environment or "SLURM_STEP_ID" not in environment:
        return 0
    count = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", "")
    return whole_number(count)


def whole_number(text: str) -> int:
    """Return the number of a variable; 0 if it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0


def _rank(
    launcher: str, of: tuple[str, str], environment: Mapping[str, str], names: tuple[str, ...]
) -> StartedRank | None:
    """Return a rank, by the texts of its number and of the number of ranks."""
    number, ranks = map(whole_number, of)
    if not of[0].isdigit() or number >= ranks or ranks < 2:
        return None
    job = " ".join(environment.get(name, "") for name in names)
    return StartedRank(launcher, number, ranks, f"{launcher} {ranks} {job}")
