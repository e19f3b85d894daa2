"""What launchers say in the environment: the rank, the number of ranks, and the job."""

from collections.abc import Mapping

import pytest

from tuccl.crew.started_rank import is_rank_0, started_rank
from tuccl.errors import UsageError


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, ("torchrun", 1, 4)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8"}, ("srun", 2, 8)),
        # A batch script that has not called srun yet.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        # srun started torchrun, which started this process.
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_STEP_ID": "0",
                "SLURM_NTASKS": "2",
                "PMIX_RANK": "1",
                "TORCHELASTIC_RUN_ID": "none",
                "RANK": "9",
                "WORLD_SIZE": "16",
            },
            ("torchrun", 9, 16),
        ),
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_STEP_ID": "0",
                "SLURM_NTASKS": "2",
                "RANK": "9",
                "WORLD_SIZE": "16",
            },
            ("torchrun", 9, 16),
        ),
        # A launcher of MPI brings ranks together itself, if it can.
        (
            {"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8", "PMIX_RANK": "2"},
            ("MPI", 2, 8),
        ),
        (
            {
                "RANK": "1",
                "WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_RANK": "3",
            },
            ("MPI", 3, 4),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "5"}, ("MPI", 1, 2)),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, ("MPI", 1, 2)),
        ({"PALS_RANKID": "1", "PMI_RANK": "1", "PMI_SIZE": "2"}, ("MPI", 1, 2)),
        ({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4"}, ("flux", 3, 4)),
        (
            {"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "PMI_RANK": "3", "PMI_SIZE": "4"},
            ("MPI", 3, 4),
        ),
        # A pod whose user named its rank, and one of which there is one.
        ({"JOB_COMPLETION_INDEX": "1", "RANK": "1", "WORLD_SIZE": "2"}, ("torchrun", 1, 2)),
        ({"JOB_COMPLETION_INDEX": "0", "RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"WORLD_SIZE": "1"}, None),
        ({"PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, None),
        # The batch script said how many srun would start.
        (
            {"WORLD_SIZE": "8", "SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8"},
            ("srun", 2, 8),
        ),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
    ],
)
def test_a_rank_is_seen_in_the_environment(
    environment: Mapping[str, str], found: tuple[str, int, int] | None
) -> None:
    started = started_rank(environment)
    assert (started and (started.launcher, started.rank, started.size)) == found
    assert started is None or started.has_mpi == (started.launcher == "MPI")


def test_jobs_of_one_launcher_are_told_apart() -> None:
    jobs = [
        started_rank({"RANK": "0", "WORLD_SIZE": size, "MASTER_PORT": port, "SLURM_JOB_ID": "7"})
        for size, port in (("2", "1"), ("2", "2"), ("4", "1"))
    ]
    assert len({started.job for started in jobs if started is not None}) == 3


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "1", "WORLD_SIZE": "1"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "1"},
        {"WORLD_SIZE": "4"},
        {"OMPI_COMM_WORLD_SIZE": "many"},
        {"PMI_SIZE": "4"},
        {"PMIX_RANK": "0"},
        {"PALS_RANKID": "1"},
        {"JOB_COMPLETION_INDEX": "0"},
    ],
)
def test_half_a_rank_is_refused(environment: Mapping[str, str]) -> None:
    said = ", ".join(f"{name}={value}" for name, value in environment.items())
    why = f"does not follow from {said}: set RANK and WORLD_SIZE for each"
    with pytest.raises(UsageError, match=why):
        started_rank(environment)
    assert is_rank_0(environment), "each says so"
