"""The probe of a host: sysfs with NVML, ports, and the probe of this machine."""

import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from probes.files.read import read_topology
from probes.host.probe import (
    HostProbeOptions,
    describe_host,
    measure_gpus,
    network_ports,
    probe_host,
    read_inventory,
    with_rdma_subnets,
)
from probes.host.report import report_from_json, report_to_json
from probes.network.addresses import InterfaceAddress
from probes.nvidia.nvml import NvmlFacts, read_nvml
from probes.nvidia.nvml_inventory import gpu_classes, join_nvml
from probes.pci.inventory import Gap, PcieLink, PciInventory
from probes.pci.tree import DirectoryTree
from probes.topology.graph import Provenance, Topology
from tests.probes.host.sysfs_host import GPUS, write_host
from tests.probes.nvidia.nvml_session import RecordedNvml, session
from tests.probes.p2p.reports import all_pairs, content
from tests.shared_data import SHARED_DATA, requires_shared_data


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_host(tmp_path / "root")


def inventory_of(root: Path) -> PciInventory:
    return read_inventory(DirectoryTree(root), HostProbeOptions(root))


def described(root: Path, **changes: object) -> Topology:
    facts = read_nvml(RecordedNvml(session() | changes), {})
    return describe_host(inventory_of(root), facts, "node7")


def test_sysfs_and_nvml_together_give_the_machine(root: Path) -> None:
    topology = described(root)
    assert [gpu.bus_id for gpu in topology.gpus] == list(GPUS)
    assert {gpu.memory_bytes for gpu in topology.gpus} == {150754820096}
    assert (topology.name, topology.hosts) == ("node7", ("node7",))
    (to_switch,) = topology.links_between["n0/gpu0", "n0/nvswitch0"]
    assert (to_switch.lanes, to_switch.bandwidth_gb_per_s) == (18, 450.0)
    (to_cpu,) = topology.links_between["n0/gpu0", "n0/cpu0"]
    assert (to_cpu.lanes, to_cpu.provenance) == (16, Provenance.SYSFS)
    (note,) = [note for note in topology.notes if "given by NVML" in note]
    assert "0000:00:06.0" in note
    assert "its PCIe link (32 GT/s x16) is given by NVML, not sysfs" in note


@requires_shared_data
def test_the_machine_is_the_one_that_nccl_dumped(root: Path) -> None:
    dumped = read_topology(SHARED_DATA / "replay" / "h200x4_topo.xml")
    # NCCL took the virtual machine's interface as 10 Gb/s, which sysfs did not say.
    speed = root / "sys/devices/pci0000:00/0000:00:03.0/net/eth0/speed"
    speed.write_text("10000\n")
    assert described(root).fingerprint() == dumped.fingerprint()


def test_without_nvml_the_gpus_are_from_sysfs_alone_and_a_note_says_so(root: Path) -> None:
    topology = described(root, init={"fault": "no library", "words": "NVML not found"})
    assert [gpu.bus_id for gpu in topology.gpus] == list(GPUS)
    (note,) = [note for note in topology.notes if note.startswith("NVML: ")]
    assert "no answer (NVML not found), so NVLinks are not known: install the NVIDIA" in note


def test_a_host_without_nvidia_devices_needs_no_nvml(root: Path) -> None:
    inventory = inventory_of(root)
    others = tuple(function for function in inventory.functions if function.vendor != 0x10DE)
    facts = NvmlFacts(available=False, gaps=(Gap("NVML", "no answer"),))
    assert join_nvml(replace(inventory, functions=others), facts).gaps == ()
    assert join_nvml(replace(inventory, functions=()), facts).gaps == facts.gaps


def test_gpus_that_nvml_does_not_list_or_cuda_does_not_see_are_left_out(root: Path) -> None:
    recording = session()
    recording["gpus"] = recording["gpus"][:3]
    environment = {"CUDA_VISIBLE_DEVICES": "2,0"}
    facts = read_nvml(RecordedNvml(recording), environment)
    topology = describe_host(inventory_of(root), facts, "node7")
    assert [gpu.bus_id for gpu in topology.gpus] == ["0000:00:08.0", "0000:00:06.0"]
    notes = " ".join(topology.notes)
    assert "CUDA_VISIBLE_DEVICES=2,0: leaves out GPU 1 (0000:00:07.0)" in notes
    assert "0000:00:09.0: a GPU that NVML does not list was left out" in notes
    facts = read_nvml(RecordedNvml(recording), {"CUDA_VISIBLE_DEVICES": ""})
    assert describe_host(inventory_of(root), facts, "node7").gpus == ()


def test_sysfs_wins_where_nvml_states_less_and_a_note_says_so(root: Path) -> None:
    inventory = inventory_of(root)
    fast = tuple(
        replace(function, link=PcieLink(32.0, 16)) if function.address in GPUS else function
        for function in inventory.functions
    )
    recording = session()
    recording["gpus"][1]["pcie"] = [4, 16]
    joined = join_nvml(replace(inventory, functions=fast), read_nvml(RecordedNvml(recording), {}))
    assert joined.by_address["0000:00:07.0"].link == PcieLink(32.0, 16)
    assert [gap.sentence() for gap in joined.gaps] == [
        "0000:00:07.0: sysfs says PCIe 32 GT/s x16, NVML at most 16 GT/s x16: sysfs is believed."
    ]


def test_unprintable_text_is_made_printable(root: Path) -> None:
    facts = read_nvml(RecordedNvml(session()), {"CUDA_VISIBLE_DEVICES": "0,\n\x1b[2J"})
    topology = describe_host(inventory_of(root), facts, "node7")
    assert len(topology.gpus) == 1
    assert all(note.isprintable() for note in topology.notes)


def test_classes_are_given_to_nvml_in_six_digits(root: Path) -> None:
    assert gpu_classes(inventory_of(root))["0000:00:06.0"] == "030200"


def test_ports_follow_the_nics_with_their_best_address(tmp_path: Path) -> None:
    root = write_host(tmp_path, rdma_state="4: ACTIVE")
    inventory, topology = inventory_of(root), described(root)
    addresses = {"eth0": (InterfaceAddress("10.0.0.7", 24), InterfaceAddress("fe80::1%eth0", 64))}
    (port,) = network_ports(topology, inventory, "node7", addresses)
    assert (port.host, port.nic, port.os_name, port.interface) == (0, 0, "mlx5_0", "eth0")
    assert (port.rdma_device, port.rdma_port) == ("mlx5_0", 1)
    assert (port.address, port.prefix_length) == ("10.0.0.7", 24)
    assert port.other_addresses == ("fe80::1%eth0/64",)
    assert port.line_rate_gb_per_s == 12.5
    (port,) = network_ports(topology, inventory, "node7", {})
    assert (port.address, port.prefix_length) == ("", 0)


def test_rdma_ports_come_with_their_subnet_and_the_address_of_the_host(tmp_path: Path) -> None:
    root = write_host(tmp_path, rdma_state="4: ACTIVE")
    inventory = inventory_of(root)
    inventory = replace(
        inventory, ports=tuple(replace(port, link_layer="InfiniBand") for port in inventory.ports)
    )
    gids = root / "sys/class/infiniband/mlx5_0/ports/1/gids"
    gids.mkdir()
    (gids / "0").write_text("fe80:0000:0000:0000:0c42:a103:00a1:0001\n")
    addresses = {"eno1": (InterfaceAddress("192.0.2.7", 24),)}
    (port,) = network_ports(described(root), inventory, "node7", {})
    assert not port.is_rdma_only
    (port,) = with_rdma_subnets([port], inventory, addresses, root / "sys/class/infiniband")
    assert (port.management_address, port.rdma_subnet) == ("192.0.2.7", "InfiniBand fe80::/64")
    assert port.is_rdma_only
    plain = replace(port, rdma_device="", rdma_port=0, management_address="", rdma_subnet="")
    assert with_rdma_subnets([plain], inventory, addresses) == (plain,)


def test_two_ports_of_one_rdma_device_stay_apart(tmp_path: Path) -> None:
    root = write_host(tmp_path, rdma_state="4: ACTIVE")
    inventory = inventory_of(root)
    (first,) = inventory.ports
    down = replace(first, rdma_port=2, interface="eth1", active=False)
    third = replace(first, rdma_port=3, interface="eth2")
    both = replace(inventory, ports=(first, down, third))
    topology = describe_host(both, read_nvml(RecordedNvml(session()), {}), "node7")
    ports = network_ports(topology, both, "node7", {})
    assert [(port.nic, port.rdma_port, port.interface) for port in ports] == [
        (0, 1, "eth0"),
        (1, 3, "eth2"),
    ]


def test_a_controller_without_a_port_is_not_measured(root: Path) -> None:
    shutil.rmtree(root / "sys/class/net")
    report = probe_host(HostProbeOptions(root))
    assert report.ports == ()


def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "tuccl-p2p"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("TUCCL_P2P_BENCHMARK", str(program))


def test_figures_of_the_benchmark_replace_those_of_data_sheets(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = content(GPUS, all_pairs(4, "copy_engine", 386.0)) | {"notes": ["a note\twith a tab"]}
    message: list[str] = []
    benchmark(tmp_path, monkeypatch, f"echo step 1 >&2; cat <<'END'\n{json.dumps(report)}\nEND")
    topology, figures = measure_gpus(described(root), 20, message.append)
    (link,) = topology.links_between["n0/gpu2", "n0/nvswitch0"]
    assert (link.bandwidth_gb_per_s, link.provenance) == (386.0, Provenance.MEASURED)
    assert figures is not None
    assert [pair.src for pair in figures.pairs[:4]] == [*["n0/gpu0"] * 3, "n0/gpu1"]
    measured = [pair.copy_engine_gb_per_s for pair in figures.pairs]
    assert [figure.median for figure in measured if figure] == [386.0] * 12
    assert message == ["measuring GPUs", "step 1"]
    assert all(note.isprintable() for note in topology.notes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('echo \'{"error": "no CUDA driver"}\'; exit 3', "no CUDA driver"),
        ("echo '{\"schema_vers'", "report of tuccl-p2p: cut or not valid JSON"),
        ("exit 1", "exit code 1 without a report"),
        ("sleep 30", "did not end within 0.5 s and was killed"),
    ],
)
def test_a_benchmark_that_fails_costs_its_figures_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    benchmark(tmp_path, monkeypatch, script)
    before = described(root)
    after, figures = measure_gpus(before, 0.5, lambda _: None)
    assert (after, figures) == (before, None)
    *kept, note = after.notes
    assert tuple(kept) == before.notes
    assert note.startswith("GPUs were not measured, their links have data sheet figures: ")
    assert why in note


def test_a_copy_of_a_system_is_read_without_asking_this_one(root: Path) -> None:
    message: list[str] = []
    report = probe_host(HostProbeOptions(root), message.append)
    assert message == ["reading sysfs"]
    assert (report.identity.hostname, report.identity.boot_id) == ("node7", "6f1c0e5a-0001")
    assert report.identity.network_namespace == ""
    assert len(report.topology.gpus) == 4
    assert [port.address for port in report.ports] == [""]
    assert report.missing_tools == ()
    assert any("NVML is not asked: GPUs from sysfs alone" in note for note in report.topology.notes)
    assert probe_host(HostProbeOptions(root)) == report
    assert report_from_json(report_to_json(report), "node7") == report


def test_this_host_is_probed() -> None:
    report = probe_host(HostProbeOptions(measure_p2p=False))
    assert report.identity.hostname == socket.gethostname()
    assert report.identity.network_namespace == str(Path("/proc/self/ns/net").stat().st_ino)
    assert report.identity.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert report.topology.hosts == (socket.gethostname(),)
    assert len(report.ports) <= len(report.topology.nics)
    assert {port.nic for port in report.ports} <= {nic.index for nic in report.topology.nics}
    assert report_from_json(report_to_json(report), "this") == report
