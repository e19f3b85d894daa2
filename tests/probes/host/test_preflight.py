"""The check of a host: this machine, and hosts made for the tests."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from probes.host import preflight
from probes.host.preflight import Check, CheckStatus, check_host
from probes.host.probe import HostProbeOptions
from probes.nvidia.nvml import read_nvml
from tests.probes.host.sysfs_host import GPUS, write_host
from tests.probes.nvidia.nvml_session import RecordedNvml, session

OK, LIMITED, MISSING = CheckStatus.OK, CheckStatus.LIMITED, CheckStatus.MISSING
SUBJECTS = [
    "PCI tree",
    "NVML",
    "GPU benchmark",
    "RDMA ports",
    "perftest",
    "locked memory",
    "iperf3",
    "ping",
    "MPI",
    "LLDP",
    "Slurm",
    "IOMMU and ACS",
    "whole host",
]


def checks(root: Path | None = None, environment: dict[str, str] | None = None) -> dict[str, Check]:
    options = HostProbeOptions() if root is None else HostProbeOptions(root)
    return {check.subject: check for check in check_host(options, environment or {})}


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH, with the programs that run other programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "timeout", "sleep"):
        if program := shutil.which(name):
            (folder / name).symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_this_machine_is_checked_in_every_part() -> None:
    found = checks()
    assert list(found) == SUBJECTS
    for check in found.values():
        assert check.what_it_gives
        assert check.why
        assert check.remedy or check.status is OK or check.subject == "GPU benchmark"
        for text in (check.why, check.remedy):
            assert text.isprintable()


def test_missing_tools_are_named_with_their_packages(path: Path) -> None:
    found = checks()
    for subject, package in (
        ("perftest", "perftest"),
        ("iperf3", "iperf3"),
        ("ping", "iputils-ping"),
        ("LLDP", "lldpd"),
    ):
        assert found[subject].status is MISSING
        assert f"apt-get install {package}" in found[subject].remedy
    assert found["perftest"].why.startswith("ib_write_bw and ib_write_lat not installed")
    assert found["MPI"].status is MISSING
    assert "neither mpirun nor srun is on PATH" in found["MPI"].why
    assert "mpi4py is" in found["MPI"].why
    assert found["Slurm"].status is MISSING


@pytest.mark.long
def test_tools_that_fail_say_so_in_their_own_words(path: Path) -> None:
    tool(path, "ping", "echo 'ping: socket: Operation not permitted' >&2; exit 2")
    tool(path, "lldpctl", "sleep 20")
    tool(path, "scontrol", "exit 0")
    slurm = {"SLURM_CONF": str(path / "slurm.conf")}
    started = time.monotonic()
    found = checks(environment=slurm)
    assert time.monotonic() - started < 15, "lldpctl would have slept for 20 s"
    assert found["ping"].status is LIMITED
    assert "ping: socket: Operation not permitted" in found["ping"].why
    assert "setcap cap_net_raw" in found["ping"].remedy
    assert (found["LLDP"].status, found["LLDP"].why) == (LIMITED, "`lldpctl`: no answer in time")
    assert found["Slurm"].status is LIMITED
    assert f"no topology file in {path}" in found["Slurm"].why


def test_a_slurm_topology_file_and_a_run_under_mpi_are_seen(path: Path) -> None:
    (path / "topology.conf").write_text("SwitchName=s0 Nodes=n[0-3]\n")
    environment = {"SLURM_CONF": str(path / "slurm.conf"), "PMIX_RANK": "3"}
    found = checks(environment=environment)
    assert (found["Slurm"].status, found["Slurm"].why) == (OK, str(path / "topology.conf"))
    assert found["MPI"].why.endswith("this is rank 3")


def test_the_benchmark_program_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUCCL_P2P_BENCHMARK", str(tmp_path / "none"))
    check = checks()["GPU benchmark"]
    assert check.status is MISSING
    assert "no executable file" in f"{check.why} {check.remedy}"


def test_a_copy_of_a_virtual_machine_is_checked_by_its_files_alone(tmp_path: Path) -> None:
    found = checks(write_host(tmp_path))
    assert list(found) == ["PCI tree", "RDMA ports", "IOMMU and ACS"]
    assert found["PCI tree"].status is LIMITED
    assert found["PCI tree"].why == (
        "5 PCI functions, 4 GPUs, 1 network ports; it does not show which devices are close, as in "
        "virtual machines"
    )
    assert found["RDMA ports"].status is MISSING
    assert (found["IOMMU and ACS"].status, found["IOMMU and ACS"].why) == (
        OK,
        "no IOMMU at work",
    )


def test_gpus_are_those_that_a_probe_counts(tmp_path: Path) -> None:
    root = write_host(tmp_path)
    console = root / "sys/devices/pci0000:00/0000:00:09.0"
    (console / "vendor").write_text("0x1002\n")
    (console / "device").write_text("0x515e\n")  # ES1000, the console chip of a board
    assert checks(root)["PCI tree"].why.startswith("5 PCI functions, 3 GPUs")
    for address in GPUS:
        (root / f"sys/devices/pci0000:00/{address}/class").write_text("0x0b4000\n")
        (root / f"sys/devices/pci0000:00/{address}/vendor").write_text("0x1bcf\n")
    assert checks(root)["PCI tree"].why.startswith("5 PCI functions, 4 GPUs")


@pytest.mark.parametrize(
    ("state", "status", "why"),
    [
        ("4: ACTIVE", OK, "1 of 1 active"),
        ("1: DOWN", MISSING, "0 of 1 active; down: mlx5_0/1 (1: DOWN)"),
    ],
)
def test_rdma_ports_by_their_state(
    tmp_path: Path, state: str, status: CheckStatus, why: str
) -> None:
    check = checks(write_host(tmp_path, rdma_state=state))["RDMA ports"]
    assert (check.status, check.why) == (status, why)


@pytest.mark.parametrize(
    ("types", "status", "why"),
    [
        ((), LIMITED, "an IOMMU is at work, and does not say whether it translates"),
        (("identity",), OK, "the IOMMU passes addresses through"),
        (("identity", "DMA-FQ"), LIMITED, "an IOMMU translates addresses (groups of type DMA-FQ, "),
    ],
)
def test_an_iommu_that_translates_is_a_limit(
    tmp_path: Path, types: Sequence[str], status: CheckStatus, why: str
) -> None:
    root = write_host(tmp_path)
    (root / "sys/class/iommu/dmar0").mkdir(parents=True)
    for number, each in enumerate(types):
        write_group(root, number, each)
        link = root / f"sys/bus/pci/devices/{GPUS[number]}/iommu_group"
        link.symlink_to(f"../../../kernel/iommu_groups/{number}")
    if types:
        write_group(root, 9, "DMA")  # Of none of the GPUs and NICs.
    check = checks(root)["IOMMU and ACS"]
    assert (check.status, bool(check.remedy)) == (status, status is LIMITED)
    assert check.why.startswith(why)


def write_group(root: Path, number: int, group_type: str) -> None:
    folder = root / f"sys/kernel/iommu_groups/{number}"
    folder.mkdir(parents=True)
    (folder / "type").write_text(f"{group_type}\n")


def test_a_folder_that_holds_no_system_is_one_missing_part(tmp_path: Path) -> None:
    found = checks(tmp_path / "nowhere")
    assert [check.status for check in found.values()] == [MISSING]
    assert "no PCI devices" in found["PCI tree"].why


def test_an_unreadable_tree_is_reported_without_a_traceback(tmp_path: Path) -> None:
    root = write_host(tmp_path)
    loop = root / "sys/bus/pci/devices/0000:00:09.0"
    loop.unlink()
    loop.symlink_to("0000:00:09.0")
    (root / "sys/class/iommu").symlink_to("iommu")
    found = checks(root)
    assert found["PCI tree"].why.startswith("4 PCI functions, 3 GPUs")
    assert found["IOMMU and ACS"].status is LIMITED


@pytest.mark.parametrize(
    ("recording", "message"),
    [
        ({}, "ok | driver 580.159.04, 4 GPUs | "),
        (
            {"init": {"fault": "version mismatch", "words": "mismatch"}},
            "missing | no answer (mismatch), so NVLinks are not known | driver and library are of",
        ),
        (
            {"gpus": [*session()["gpus"][:3], {"fault": "GPU lost", "words": "GPU is lost"}]},
            "limited | driver 580.159.04, 3 GPUs; GPU 3: left out, NVML says 'GPU is lost'",
        ),
        (
            {"gpus": [session()["gpus"][0] | {"mig": [True, True]}]},
            "missing | GPU 0 (0000:00:06.0, NVIDIA H200): MIG is on",
        ),
    ],
)
def test_nvml_by_its_answers(
    monkeypatch: pytest.MonkeyPatch, recording: dict[str, object], message: str
) -> None:
    nvml = RecordedNvml(session() | recording)
    monkeypatch.setattr(preflight, "read_nvml", lambda environment: read_nvml(nvml, environment))
    check = checks()["NVML"]
    assert f"{check.status} | {check.why} | {check.remedy}".startswith(message)
