"""Recordings that others have published, if they are beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.tuccl.silent_progress import silent
from tuccl.errors import TucclError
from tuccl.workloads.recordings.importing import import_recordings
from tuccl.workloads.workload import Workload

LOGS = SHARED_DATA / "job_logs"
READ_BELOW = ("torch2024.05", "torch-rocm6.4")
"""Long traces, of which the workload is looked at below."""
FOLDERS = ("nccl_log", "kineto", "inspector", "other")
pytestmark = [
    pytest.mark.long,
    requires_shared_data,
    pytest.mark.skipif(not LOGS.is_dir(), reason=f"recordings not present: {LOGS}"),
]


def read(pattern: str, **options: int) -> Workload:
    (path,) = LOGS.glob(pattern)
    return import_recordings([path], None, None, silent, **options).workload


def calls(found: Workload) -> list[tuple[str, int, int, int | None, float]]:
    return [
        (each.operation.value, each.size_bytes, each.ranks, each.nodes, each.calls_per_step)
        for each in found.calls
    ]


@pytest.mark.parametrize(
    "path",
    [
        path
        for folder in FOLDERS
        for path in sorted((LOGS / folder).glob("*"))
        if not path.name.startswith(READ_BELOW)
    ],
    ids=lambda path: path.name,
)
def test_every_file_is_a_workload_or_refused_in_one_line(path: Path) -> None:
    try:
        found = import_recordings([path], None, None, silent).workload
    except TucclError as error:
        said = str(error)
        assert (path.name in said, "\n" in said) == (True, False)
    else:
        assert found.calls_per_step > 0


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("nccl_log/nccl-2021.07*", [("all_gather", 8192, 16, None, 1)]),
        ("nccl_log/nccl2.21.5*", [("all_reduce", 40, 2, 1, 1)]),
        ("nccl_log/nccl2.27.5*", [("all_reduce", 4, 16, None, 1)]),
        ("nccl_log/nccl2.3.7*", [("broadcast", 424, 8, None, 1),
                                 ("broadcast", 51007824, 8, None, 1)]),
        ("nccl_log/rccl7.2.1*", [("all_reduce", 4, 2, 1, 8)]),
        ("nccl_log/nccl-2024.02*", [("all_reduce", 28266288, 128, None, 1),
                                    ("all_reduce", 29528912, 128, None, 1)]),
        ("inspector/nccl2.28.9*", [("all_reduce", 17179869184, 8, 1, 1)]),
    ],
)  # fmt: skip
def test_calls(pattern: str, expected: list[tuple[str, int, int, int | None, float]]) -> None:
    assert calls(read(pattern)) == expected


def test_every_line_of_a_long_log_is_a_call() -> None:
    found = read("nccl_log/nccl2.27.7*")
    assert sum(each.calls_per_step for each in found.calls) == 990 / 2
    assert {each.size_bytes for each in found.calls} == {8 << (20 + power) for power in range(11)}
    assert (found.ranks, found.nodes, found.source.left_out) == (2, 1, ())


def test_a_trace_of_data_parallel_training() -> None:
    found = read("kineto/torch2024.05*", ranks_per_node=8)
    assert found.steps == 3
    assert {(each.operation, each.calls_per_step) for each in found.calls} == {
        (Collective.ALL_REDUCE, 1.0),
        (Collective.BROADCAST, 1.0),
    }
    assert all(each.us_per_call and each.nodes == 1 for each in found.calls)
    # The GPUs wait for their host between kernels: without collectives they would wait longer.
    assert [each.exposed_us_per_call for each in found.calls] == [0.0] * 7


def test_a_trace_whose_gpu_is_behind_its_host() -> None:
    """Steps of 16.2 ms on the host and 18.8 on the GPU, which without sums waits for the host."""
    times = read("kineto/torch-rocm6.4*", ranks_per_node=8).exposure
    assert times is not None
    assert (times.time_us, times.exposed_us) == pytest.approx((15730.0, 2613.0), rel=0.01)
