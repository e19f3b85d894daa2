"""Without --backend: real NCCL where it can be had, else the model; said in a line."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from probes.topology.graph import Topology
from tests.sketches.machines import cluster, virtual_machine
from tests.tuccl.measuring.engines.nccl_stand_ins import ROOT, StandIns, build_stand_ins
from tuccl.api.default_backend import with_backend, with_served_backend
from tuccl.options.run_options import RunOptions

pytestmark = pytest.mark.long

TELL = """
import json, sys
from tuccl.api.default_backend import with_backend
from tuccl.options.run_options import RunOptions
found = with_backend(RunOptions(), lambda line: print(line, file=sys.stderr))
print(json.dumps({"backend": found.backend}))
"""


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return build_stand_ins(tmp_path_factory.getbasetemp())


def told(*launcher: str, script: str = TELL, **variables: str) -> tuple[list[str | None], str]:
    """The backend that each process takes, and what is said."""
    done = subprocess.run(
        [*launcher, sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # mpirun may put what two ranks print on one line.
    documents = done.stdout.replace("}{", "}\n{").split("\n")
    return [json.loads(text)["backend"] for text in documents if text], done.stderr


def in_reach(stand_ins: StandIns) -> dict[str, str]:
    return {
        **stand_ins.variables,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{stand_ins.libraries}",
        "XDG_CACHE_HOME": str(stand_ins.libraries / "no-builds"),
    }


def without_executor(stand_ins: StandIns, folder: Path) -> dict[str, str]:
    """As `in_reach`, with an installation whose executor was not compiled."""
    runtime = folder / "tuccl" / "runtime"
    runtime.mkdir(parents=True)
    for library in (stand_ins.libraries / "tuccl" / "runtime").glob("*.so"):
        (runtime / library.name).symlink_to(library)
    return {**in_reach(stand_ins), "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}


def test_gpus_and_an_nccl_are_used(stand_ins: StandIns, tmp_path: Path) -> None:
    backends, said = told(**without_executor(stand_ins, tmp_path))
    assert backends == ["nccl"]
    assert said.startswith("backend: nccl, real NCCL (8 GPUs and NCCL ")
    assert said.endswith(
        "; no executor, which `tuccl build-executor` compiles); --backend simulated for the other\n"
    )
    assert said.count("\n") == 1


def test_an_executor_that_is_compiled_is_used_where_schedules_are_searched(
    stand_ins: StandIns,
) -> None:
    backends, said = told(**in_reach(stand_ins))
    assert backends == ["nccl,executor"]
    assert said.startswith("backend: nccl,executor, real NCCL and the executor's schedules (8 GPUs")
    assert said.endswith("); --backend nccl for NCCL alone, simulated for a model\n")
    alone = TELL.replace("RunOptions()", "RunOptions(schedules=False)")
    backends, said = told(script=alone, **in_reach(stand_ins))
    assert backends == ["nccl"]
    assert "no executor" not in said


@pytest.mark.parametrize(
    ("machine", "backend"),
    [
        (cluster(1, 8, 1), "nccl,executor"),
        (cluster(2, 4, 1), "nccl,executor"),
        (cluster(1, 16, 1), "nccl,executor"),
        (cluster(1, 33, 1), "nccl"),
        (cluster(2, 33, 1), "nccl"),
    ],
)
def test_nccl_alone_is_timed_where_no_executor_serves_the_machine(
    machine: Topology, backend: str
) -> None:
    chosen, said = RunOptions(backend="nccl,executor"), list[str]()
    assert with_served_backend(chosen, lambda: machine, said.append).backend == backend
    assert ("the executor serves 2 to 32 GPUs" in "".join(said)) == (backend == "nccl")


def test_nodes_that_share_the_only_gpu_are_served_by_the_executor() -> None:
    said: list[str] = []
    nodes = RunOptions(nodes=2, node_gpus="2,2", fake_nodes=True, network_gbps=10)
    chosen = replace(nodes, backend="nccl,executor", share_gpus=True)
    served = with_served_backend(chosen, lambda: virtual_machine(1, 1), said.append)
    assert (served.backend, said) == ("nccl,executor", [])


def test_a_machine_is_not_probed_for_a_backend_that_any_machine_has() -> None:
    def probed() -> Topology:
        raise AssertionError("probed")

    chosen = RunOptions(backend="nccl")
    assert with_served_backend(chosen, probed, print) is chosen


def test_one_gpu_is_too_few_and_no_nccl_is_none(stand_ins: StandIns, tmp_path: Path) -> None:
    backends, said = told(**in_reach(stand_ins), STAND_IN_GPUS="1")
    assert backends == ["simulated"]
    assert "visible here: 1 " in said
    backends, said = told(**{**in_reach(stand_ins), "TUCCL_NCCL_LIBRARY": str(tmp_path / "none")})
    assert backends == ["simulated"]
    assert "is not an NCCL that can be loaded" in said


def test_without_a_driver_the_model_is_taken(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    backends, said = told(LD_LIBRARY_PATH=str(tmp_path))
    assert backends == ["simulated"]
    assert said.startswith("backend: simulated, a model of NCCL (no NVIDIA driver here ")
    assert said.endswith("--backend nccl for the other\n")


def test_a_rank_of_a_job_needs_one_gpu(stand_ins: StandIns) -> None:
    script = TELL.replace("sys.stderr))", "sys.stderr), 1)")
    backends, said = told(script=script, **in_reach(stand_ins), STAND_IN_GPUS="1")
    assert backends == ["nccl,executor"]
    assert said.count("backend: nccl,executor") == 1


@pytest.mark.parametrize(
    "asked",
    [
        RunOptions(backend="sockets"),
        RunOptions(topology="shipped:h200-4gpu"),
        RunOptions(records="r.parquet"),
        RunOptions(model="m.json"),
        RunOptions(nodes=2),
    ],
)
def test_whoever_asks_for_something_gets_it(asked: RunOptions) -> None:
    said: list[str] = []
    assert with_backend(asked, said.append) == asked
    assert said == []
