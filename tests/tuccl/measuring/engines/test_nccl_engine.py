"""`NcclEngine` over stand-ins of CUDA and NCCL, with the real plugin and the real library."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.provenance import NcclVersion
from lookup_tables.table import Shape
from tests.tuccl.measuring.engines.nccl_stand_ins import (
    ROOT,
    JobError,
    JobResult,
    StandIns,
    run_job,
)
from tests.tuccl.measuring.workers.worker_fixtures import OpenBackend
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.timing import Timing

pytestmark = pytest.mark.long

Run = Callable[..., JobResult]
OPERATIONS = [operation.value for operation in COLLECTIVES]
FORCED = {"algorithm": "ring", "protocol": "LL128", "nchannels": 4}


@pytest.fixture
def run(stand_ins: StandIns, tmp_path: Path) -> Run:
    jobs = itertools.count()

    def run_steps(
        steps: list[dict[str, Any]], ranks: int = 2, *, controlled: bool = True, **variables: str
    ) -> JobResult:
        quick = {"calls": 2, "launches": 1}
        return run_job(
            tmp_path / f"job{next(jobs)}",
            ranks,
            [quick | step for step in steps],
            stand_ins.variables | variables,
            libraries=stand_ins.libraries,
            controlled=controlled,
            limit_s=200,
        )

    return run_steps


def step(operation: str, size_bytes: int = 12288, /, **members: Any) -> dict[str, Any]:
    return {"operation": operation, "size_bytes": size_bytes, "check": True} | members


def test_buffers_are_there_before_the_communicator_as_in_a_job_with_a_model(
    run: Run, tmp_path: Path
) -> None:
    """Otherwise allocations of NCCL or the executor at its start would move them."""
    order = tmp_path / "order"
    run([step("all_reduce")], STAND_IN_ORDER=str(order))
    by_process: dict[str, list[str]] = {}
    for line in order.read_text().splitlines():
        process, what, size_bytes = line.split()
        by_process.setdefault(process, []).append("large" if int(size_bytes) > 1 << 20 else what)
    assert len(by_process) == 2
    for events in by_process.values():
        assert events.count("large") == 2
        assert events[:3] == ["large", "large", "join"]


def test_a_plugin_that_a_jobs_environment_names_has_to_be_loaded(run: Run, tmp_path: Path) -> None:
    """NCCL continues without the plugin, and its times would pass for a table's."""
    missing = tmp_path / "libnccl-tuner-tuccl.so"
    with pytest.raises(JobError, match=f"did not load the tuner plugin {missing}"):
        run([step("all_reduce")], controlled=False, NCCL_TUNER_PLUGIN=str(missing))
    (result,) = run([step("all_reduce")], controlled=False, NCCL_TUNER_PLUGIN="none").steps
    assert result["finding"] == ""


def test_what_a_killed_job_left_is_not_where_a_new_one_meets(stand_ins: StandIns) -> None:
    """Process ids recur, and ranks that wait at another place would wait for ever."""
    program = """
import ctypes, os, pathlib, sys
left = pathlib.Path(f"/dev/shm/tuccl-stand-in-{os.getpid()}-0")
left.write_bytes(b"\\1" * 8)
name = ctypes.create_string_buffer(128)
ctypes.CDLL(sys.argv[1]).ncclGetUniqueId(name)
found = left.exists()
left.unlink(missing_ok=True)
sys.exit(name.value.decode() != f"/{left.name}" or found)
"""
    subprocess.run([sys.executable, "-c", program, str(stand_ins.nccl)], check=True)


def test_right_data_passes_in_every_operation_type_place_and_mode(run: Run) -> None:
    steps = [
        step(operation, data_type=data_type, in_place=in_place, use_graph=use_graph)
        for operation in OPERATIONS
        for data_type, use_graph in (
            ("int8", True),
            ("int32", False),
            ("int64", True),
            ("float16", True),
            ("bfloat16", False),
            ("float32", True),
            ("float64", False),
        )
        for in_place in (False, True)
        if not (in_place and operation == "alltoall")
    ]
    result = run(steps)
    # More elements than a period of the pattern has, in parts that are no whole period.
    large = [step(operation, 786_432, data_type="uint8", calls=1) for operation in OPERATIONS]
    of_three = run(large, ranks=3).steps
    assert len(result.steps) + len(of_three) == len(steps) + len(large)
    for found in (*result.steps, *of_three):
        assert found.get("findings") == [], found
        assert all(time_us > 0 for time_us in found["times_us"])
    assert result.versions.startswith("NCCL 2.28.9, ")
    assert result.versions.endswith("CUDA 12.8, stand-in GPU 0")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_wrong_byte_is_found_where_it_is(run: Run, operation: str) -> None:
    forced = {"algorithm": "tree", "protocol": "LL"} if operation == "all_reduce" else {}
    # The stand-in corrupts no call that is forced to LL128.
    steps = [step(operation, **forced), *([step(operation, **FORCED)] if forced else [])]
    found, *others = run(steps, STAND_IN_CORRUPTS=operation).steps
    assert all(other["findings"] == [] for other in others)
    parts = operation in {"all_gather", "reduce_scatter", "alltoall"}
    last = 12288 // 2 // (2 if parts else 1) - 1
    assert found["findings"]
    first = found["findings"][0]
    assert first.startswith("rank 0: ")
    assert f"{operation} of 12288 bytes: " in first
    assert f"element {last} is 0x" in first
    assert "and 1 of" in first


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "reduce"])
def test_sums_where_averages_are_asked_for_are_found(run: Run, operation: str) -> None:
    """As in NCCL 2.32.3, whose reduce_scatter by PAT averages nothing."""
    forced = {"algorithm": "tree", "protocol": "LL"} if operation == "all_reduce" else {}
    types = ("int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    steps = [
        step(operation, data_type=data_type, in_place=n % 2 == 0, use_graph=n % 3 == 0, **forced)
        for n, data_type in enumerate(types)
    ]
    # More than a period of the pattern, and an odd number of ranks.
    steps.append(step(operation, 786_432, data_type="uint8", **forced))
    for ranks in (2, 3):
        for found in run(steps, ranks=ranks, STAND_IN_SUMS_FOR_AVERAGES=operation).steps:
            (first, *_) = found["findings"]
            assert f"{operation} of " in first
            assert "the average at element " in first
        assert all(found["findings"] == [] for found in run(steps, ranks=ranks).steps)


def test_what_nccl_rules_out_is_refused_every_time_and_the_group_goes_on(run: Run) -> None:
    nvls = {"algorithm": "nvls", "protocol": "Simple", "nchannels": 8}
    first, again, forced, default = run(
        [
            step("all_reduce", **nvls),
            step("all_reduce", **nvls),
            step("all_reduce", **FORCED),
            step("all_reduce"),
        ]
    ).steps
    assert first["error"] == again["error"]
    assert "NCCL refused nvls Simple ch8 for all_reduce of 12288 bytes" in first["error"]
    assert first["ranks_that_failed"] == 2
    assert forced["findings"] == default["findings"] == []
    assert default["nccl_prefers"] == "tree LL"


def test_chunks_reach_nccl_and_are_refused_where_they_change_nothing(run: Run) -> None:
    """Parts of a megabyte, as the stand-in has two channels, and a ring half of that at once."""
    size, ring = 2 << 20, {"algorithm": "ring", "protocol": "Simple", "check": True}
    steps = [step("all_reduce", size, **ring, chunk_bytes=1 << n) for n in (17, 18, 19, 20, 21)]
    wanted = {"STAND_IN_COUNTS_TIME": "1", "STAND_IN_WANTS_CHUNK": str(1 << 17)}
    for version in ("23007", "23206"):
        *done, own, larger, _ = run(steps, STAND_IN_NCCL_VERSION=version, **wanted).steps
        assert [each["findings"] for each in done] == [[], []]
        assert [min(each["times_us"]) < 1000.0 for each in done] == [True, False]
        assert (
            "ring Simple chunk512K for all_reduce of 2097152 bytes has NCCL's own" in own["error"]
        )
        assert "has NCCL's own chunks" in larger["error"]
    refused = run(steps[:1], STAND_IN_NCCL_VERSION="22809").steps[0]
    assert "has NCCL's own chunks" in refused["error"]


def test_what_nccl_has_no_estimate_for_is_refused_without_being_run(run: Run) -> None:
    small, large = 12288, 24576
    steps = [
        step("all_reduce", small, check=False),
        step("all_reduce", large, check=False),
        step("all_reduce", small, algorithm="nvls", protocol="Simple", nchannels=8, check=False),
        step("all_reduce", large, check=False),
        step("all_reduce", small, **FORCED),
    ]
    first, second, refused, cached, forced = run(steps).steps
    assert first["asked_about_bytes"] == small
    assert second["asked_about_bytes"] == large
    assert "NCCL refused nvls Simple ch8 for all_reduce of 12288 bytes" in refused["error"]
    assert cached["asked_about_bytes"] == large, "a refused call that runs asks about its size"
    assert forced["findings"] == []


def test_calls_that_cannot_be_are_told_and_the_group_goes_on(run: Run) -> None:
    errors = {
        "no whole number": step("all_gather", 1003),
        "no data type int4": step("all_reduce", data_type="int4"),
        "NCCL has no alltoall in place": step("alltoall", in_place=True),
        "no tuner plugin can choose ring": step("alltoall", **FORCED),
        "'LL256' is not a valid": step("all_reduce", algorithm="ring", protocol="LL256"),
    }
    *failed, fine = run([*errors.values(), step("all_reduce")]).steps
    for text, found in zip(errors, failed, strict=True):
        assert text in found["error"]
    assert fine["findings"] == []


def test_more_calls_than_graphs_are_kept_and_buffers_that_grow(run: Run) -> None:
    few = {"calls": 1, "check": False}
    steps = [step("all_gather", 512 * i, **few, **FORCED) for i in range(1, 60)]
    # The stand-in's devices have 64 MiB, of which the buffers take an eighth at first.
    steps += [step("all_gather", 9 << 20, calls=1), *steps[:2], step("all_gather", **FORCED)]
    result = run(steps)
    assert all("times_us" in found for found in result.steps)
    assert all(not found["findings"] for found in result.steps)


def test_calls_one_by_one_are_timed_and_checked_without_capturing_anything(run: Run) -> None:
    nothing = {"STAND_IN_CAPTURES_NOTHING": "1"}
    plain = run(
        [step("all_reduce", use_graph=False), step("all_gather", use_graph=False)], **nothing
    )
    assert [step["findings"] for step in plain.steps] == [[], []]
    with pytest.raises(JobError, match="begin_capture failed"):
        run([step("all_reduce")], **nothing)


def test_a_workers_first_call_may_be_one_that_its_meetings_cannot_run(run: Run) -> None:
    """Ranks synchronize by all_reduce, which has no PAT; that must not refuse the call."""
    (found,) = run([step("all_gather", algorithm="pat", protocol="Simple")]).steps
    assert found.get("findings") == [], found


def test_a_launch_ends_when_its_calls_and_the_computation_have_ended(run: Run) -> None:
    computing = {"computation_us": 200_000.0}
    beside = [step("all_reduce", **computing, use_graph=graph) for graph in (True, False)]
    alone = step("all_reduce", 16384)
    forced = step("all_gather", **computing, **FORCED)
    found = run([*beside, alone, forced]).steps
    assert [each["findings"] for each in found] == [[]] * 4
    # The stand-in computes on the host's cores, which ranks share, at the speed that it measured.
    assert all(min(each["times_us"]) > 30_000 for each in (*found[:2], found[3]))
    assert min(found[2]["times_us"]) < 30_000


def test_the_check_of_computation_tells_how_long_it_took(stand_ins: StandIns) -> None:
    """The stand-in computes on a core of a busy host: how long it takes is not looked at here."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check" / "check_computation.py"],
        env={**os.environ, **stand_ins.variables, "PYTHONPATH": str(stand_ins.libraries)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    name, heading, *rows = done.stdout.splitlines()
    assert (name, heading.split()[0]) == ("stand-in GPU 0", "asked,")
    assert [float(row.split()[0]) for row in rows] == [0, 10, 30, 100, 300, 1000, 5000]


def test_gpus_that_cannot_compute_beside_calls_say_so_and_time_calls_alone(run: Run) -> None:
    beside = step("all_reduce", computation_us=100.0)
    found = run([beside, step("all_reduce")], STAND_IN_CAPABILITY="6").steps
    assert "GPUs of compute capability 6 cannot compute beside calls" in found[0]["error"]
    assert found[1]["findings"] == []


def test_one_forced_channel_reaches_the_collective(run: Run) -> None:
    one_channel, four_channels = run(
        [step("all_gather", **FORCED | {"nchannels": channels}, launches=3) for channels in (1, 4)],
        # The stand-in pauses so long with one channel; a busy host takes some ms for any call.
        STAND_IN_SLOW_MS="100",
    ).steps
    assert min(one_channel["times_us"]) > 100_000 > min(four_channels["times_us"])


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"NCCL_ALGO": "Ring"}, "NCCL_ALGO=Ring is set in the environment"),
        ({"NCCL_TUNER_PLUGIN": "none"}, "NCCL_TUNER_PLUGIN=none is set in the environment"),
        ({"STAND_IN_GPUS": "0"}, "no CUDA-capable device is detected"),
        ({"STAND_IN_GPUS": "1"}, "there is no GPU 1 here, only 1 in all"),
        ({"TUCCL_NCCL_LIBRARY": "/nonexistent"}, "/nonexistent is not an NCCL that can be loaded"),
    ],
)
def test_what_keeps_a_group_from_starting_is_told(
    run: Run, variables: dict[str, str], text: str
) -> None:
    with pytest.raises(JobError) as error:
        run([step("all_reduce")], **variables)
    assert text in str(error.value)


def test_a_plugin_that_cannot_be_loaded_is_noticed(stand_ins: StandIns, tmp_path: Path) -> None:
    built = stand_ins.plugin.parent
    broken = tmp_path / "broken" / "tuccl" / "runtime"
    broken.mkdir(parents=True)
    (broken / "libtuccl-measure.so").symlink_to(built / "libtuccl-measure.so")
    (broken / "libnccl-tuner-tuccl.so").write_text("no library\n")
    with pytest.raises(JobError, match=r"NCCL 2\.28\.9 did not load the tuner plugin"):
        run_job(
            tmp_path / "job",
            1,
            [step("all_reduce")],
            stand_ins.variables,
            libraries=tmp_path / "broken",
            controlled=True,
            limit_s=200,
        )


def test_without_control_the_environment_decides_and_nothing_can_be_forced(run: Run) -> None:
    default, forced = run(
        [step("all_reduce"), step("all_reduce", **FORCED)], controlled=False
    ).steps
    assert default["findings"] == []
    assert "nccl_prefers" not in default
    assert "no tuner plugin can choose ring LL128 ch4" in forced["error"]


def test_a_leader_looks_before_it_starts_workers(stand_ins: StandIns) -> None:
    program = (
        "from tuccl.errors import TucclError\n"
        "from tuccl.measuring.engines.nccl_workers import nccl_worker_variables\n"
        "try: print(nccl_worker_variables(2))\n"
        "except TucclError as error: print(error)\n"
    )

    path = {"PYTHONPATH": f"{ROOT}:{stand_ins.libraries}"}

    def look(**variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=stand_ins.variables | path | variables,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    found = str(stand_ins.nccl)
    assert look(STAND_IN_NCCL_VERSION="22809") == str({"TUCCL_NCCL_LIBRARY": found})
    assert "is NCCL 2.19.3, whose tuner ABI" in look(STAND_IN_NCCL_VERSION="21903")
    assert look(STAND_IN_GPUS="1").startswith("GPUs needed: 2, visible here: 1 ")
    assert look(NCCL_ALGO="Ring").startswith("NCCL_ALGO=Ring is set in the environment")


@pytest.fixture
def on_stand_ins(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    for name, value in stand_ins.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(stand_ins.libraries))
    return stand_ins


@pytest.mark.usefixtures("on_stand_ins")
@pytest.mark.parametrize("graph", [True, False])
def test_communicators_of_a_job_are_split_and_steered_each_by_itself(
    open_backend: OpenBackend, monkeypatch: pytest.MonkeyPatch, graph: bool
) -> None:
    monkeypatch.setenv("STAND_IN_GPUS", "4")
    monkeypatch.setenv("STAND_IN_SLOW_MS", "50")
    monkeypatch.setenv("STAND_IN_COUNTS_TIME", "1")
    whole, node, rail = Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1)
    timing = Timing(calls_up_to=((1 << 20, 2),), graph=graph)
    backend, places = open_backend(
        4, "nccl", laboratory=Laboratory(2), shapes=(node, rail), timing=timing
    )
    pids = places.pids
    for shape in (whole, node, rail):
        for operation in COLLECTIVES:
            task = Task(operation, 12288, shape)
            backend.measure(task, STOCK, 0, 1)
            backend.check(task, STOCK)
        task = Task(Collective.ALL_GATHER, 12288, shape)
        slow, fast = Config("ring", "LL128", 1), Config("ring", "LL128", 4)
        assert min(backend.measure(task, slow, 0, 3).samples_us) == 50_000
        assert min(backend.measure(task, fast, 0, 3).samples_us) < 50_000
        backend.check(task, fast)
        # The stand-in's estimate, before overrides: a rank lies between those of a rail.
        table = backend.cost_table(task)
        assert table is not None
        assert table.ring_us == (26.0 if shape == rail else 13.0)
    with pytest.raises(ConfigurationFailedError, match="NCCL refused pat Simple for all_reduce"):
        backend.measure(Task(Collective.ALL_REDUCE, 4096, rail), Config("pat", "Simple"), 0, 1)
    assert places.pids == pids
    assert backend.incidents == []
    assert backend.provenance.nccl_version == NcclVersion(2, 28, 9)
    assert backend.provenance.details.startswith("NCCL 2.28.9, ")


@pytest.mark.usefixtures("on_stand_ins")
def test_wrong_data_of_one_sibling_is_found(
    open_backend: OpenBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_GPUS", "4")
    monkeypatch.setenv("STAND_IN_CORRUPTS", "reduce_scatter")
    monkeypatch.setenv("STAND_IN_CORRUPTS_HOST", "tuccl-node1")
    backend, _ = open_backend(4, "nccl", laboratory=Laboratory(2))
    task = Task(Collective.REDUCE_SCATTER, 4096, Shape(2, 1, 2))
    assert len(backend.measure(task, STOCK, 0, 2).samples_us) == 2
    with pytest.raises(ConfigurationFailedError, match=r"wrong data: rank 2: .* 1 of"):
        backend.check(task, STOCK)


@pytest.mark.usefixtures("on_stand_ins")
def test_three_ranks_are_measured_at_sizes_that_they_cannot_divide(
    open_backend: OpenBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_GPUS", "3")
    backend, _ = open_backend(3, "nccl")
    for operation in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        task = Task(operation, 1024, Shape(3, 1, 3))
        assert len(backend.measure(task, STOCK, 0, 2).samples_us) == 2
        backend.check(task, STOCK)
