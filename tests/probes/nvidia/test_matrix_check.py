"""The comparison of a topology with `nvidia-smi topo -m`, and the run of the program."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from probes.host.probe import HostProbeOptions, describe_host, read_inventory
from probes.nccl_xml.records import GpuRecord
from probes.nvidia import matrix_check
from probes.nvidia.matrix_check import check_with_nvidia_smi, compare_with_matrix
from probes.nvidia.nvidia_smi_topo import topology_of_matrix
from probes.nvidia.nvml import NvmlFacts, read_nvml
from probes.nvidia.topo_matrix import TopoMatrix, parse_topo_matrix
from probes.pci.inventory import NicPort
from probes.pci.records import host_topology
from probes.pci.relation import Relation, relation
from probes.pci.tree import DirectoryTree
from tests.probes.host.sysfs_host import GPUS, write_host
from tests.probes.nvidia.nvml_session import RecordedNvml, session
from tests.probes.pci.hand_made import hand_made

Program = Callable[[str], None]


def matrix_of(cells: dict[tuple[str, str], str], devices: tuple[str, ...]) -> TopoMatrix:
    """Return the table with these cells, of either triangle."""
    rows = [" ".join([*devices, "CPU Affinity"])]
    for a in devices:
        row = ["X" if a == b else cells.get((a, b)) or cells[b, a] for b in devices]
        rows.append(f"{a} {' '.join(row)}")
    return parse_topo_matrix("\n".join(rows) + "\n", "table")


def all_alike(word: str, count: int) -> str:
    """A table of GPUs with equal cells, as the program prints it."""
    names = [f"GPU{place}" for place in range(count)]
    rows = ["\t\x1b[4m" + "\t".join([*names, "CPU Affinity\tNUMA Affinity\x1b[0m"])]
    rows += ["\t".join([a, *(" X " if a == b else word for b in names), "0-63\t0"]) for a in names]
    return "\n".join([*rows, "", "Legend:", "", "  X    = Self", ""])


GPU_ADDRESSES = ("0000:13:00.0", "0000:18:00.0", "0000:1b:00.0", "0000:31:00.0", "0000:41:00.0")
NIC_ADDRESSES = {"mlx5_0": "0000:14:00.0", "mlx5_1": "0000:20:05.0"}


PORTS = tuple(
    NicPort(name, function, name, 1, speed_gbit_per_s=400.0)
    for name, function in NIC_ADDRESSES.items()
)
INVENTORY = replace(hand_made(), ports=PORTS)
"""GPU0 and mlx5_0 on a switch, GPU1 on one below it, GPU2 beside; mlx5_1 on another root bus, GPU3
on another NUMA node of the socket, GPU4 on another socket."""
TOPOLOGY = host_topology(
    INVENTORY,
    "hand-made",
    {address: GpuRecord(dev, dev, 90, ()) for dev, address in enumerate(GPU_ADDRESSES)},
)
DEVICES = ("GPU0", "GPU1", "GPU2", "GPU3", "GPU4", "mlx5_0", "mlx5_1")
CELLS = {
    ("GPU0", "GPU1"): "PXB", ("GPU0", "GPU2"): "PHB", ("GPU0", "GPU3"): "SYS",
    ("GPU0", "GPU4"): "SYS", ("GPU1", "GPU2"): "PHB", ("GPU1", "GPU3"): "SYS",
    ("GPU1", "GPU4"): "SYS", ("GPU2", "GPU3"): "SYS", ("GPU2", "GPU4"): "SYS",
    ("GPU3", "GPU4"): "SYS",
    ("GPU0", "mlx5_0"): "PIX", ("GPU1", "mlx5_0"): "PXB", ("GPU2", "mlx5_0"): "PHB",
    ("GPU3", "mlx5_0"): "SYS", ("GPU4", "mlx5_0"): "SYS",
    ("GPU0", "mlx5_1"): "NODE", ("GPU1", "mlx5_1"): "NODE", ("GPU2", "mlx5_1"): "NODE",
    ("GPU3", "mlx5_1"): "SYS", ("GPU4", "mlx5_1"): "SYS",
    ("mlx5_0", "mlx5_1"): "NODE",
}  # fmt: skip
"""The driver's table of that machine, with every word, and SYS within a socket as well."""
ADDRESSES = {f"GPU{number}": address for number, address in enumerate(GPU_ADDRESSES)}


def test_a_machine_agrees_with_the_table_that_a_driver_makes_of_it() -> None:
    assert relation(INVENTORY, GPU_ADDRESSES[2], GPU_ADDRESSES[3]) is Relation.SOCKET
    matrix = matrix_of(CELLS, DEVICES)
    assert compare_with_matrix(TOPOLOGY, matrix, INVENTORY, ADDRESSES) == ()
    assert compare_with_matrix(TOPOLOGY, matrix, INVENTORY) == ()
    assert compare_with_matrix(TOPOLOGY, matrix) == ()


@pytest.mark.parametrize(
    ("pair", "word", "tree", "topology"),
    [
        (("GPU0", "mlx5_0"), "PXB", "one PCIe switch", None),
        (("GPU0", "GPU1"), "PIX", "several PCIe switches", None),
        (("GPU0", "GPU1"), "PHB", "several PCIe switches", "PCIe switches only"),
        (("GPU0", "GPU2"), "NODE", "one host bridge", None),
        (("GPU0", "mlx5_1"), "PHB", "host bridges of one NUMA node", None),
        (("GPU1", "mlx5_1"), "SYS", "host bridges of one NUMA node", "one CPU"),
        (("GPU0", "GPU3"), "NODE", "NUMA nodes of one socket", "two CPUs or more"),
        (("GPU0", "GPU4"), "PIX", "the link between sockets", "two CPUs or more"),
    ],
)
def test_the_pci_tree_tells_more_kinds_of_closeness_apart_than_the_topology(
    pair: tuple[str, str], word: str, tree: str, topology: str | None
) -> None:
    matrix = matrix_of(CELLS | {pair: word}, DEVICES)
    names = " - ".join(name.lower() for name in pair)
    assert compare_with_matrix(TOPOLOGY, matrix, INVENTORY, ADDRESSES) == (
        f"{names}: the matrix says {word}, the PCI tree has {tree} between them.",
    )
    words = f"{names}: the matrix says {word}, the topology has {topology} between them."
    assert compare_with_matrix(TOPOLOGY, matrix) == ((words,) if topology else ())


def test_a_tree_that_does_not_say_leaves_the_word_to_the_topology() -> None:
    functions = tuple(replace(function, numa_node=None) for function in INVENTORY.functions)
    silent = replace(INVENTORY, functions=functions)
    assert relation(silent, GPU_ADDRESSES[0], GPU_ADDRESSES[4]) is Relation.UNKNOWN
    matrix = matrix_of(CELLS | {("GPU0", "GPU4"): "NODE"}, DEVICES)
    (sentence,) = compare_with_matrix(TOPOLOGY, matrix, silent, ADDRESSES)
    assert "GPU4".lower() in sentence
    assert "the topology has two CPUs or more" in sentence


def test_gpus_and_ports_that_the_topology_leaves_out_on_purpose_are_no_difference() -> None:
    records = {GPU_ADDRESSES[3]: GpuRecord(0, 0, 90, ()), GPU_ADDRESSES[0]: GpuRecord(1, 1, 90, ())}
    down = tuple(replace(port, active=port.name == "mlx5_0") for port in INVENTORY.ports)
    inventory = replace(INVENTORY, ports=down)
    topology = host_topology(inventory, "two of five", records)
    assert [gpu.bus_id for gpu in topology.gpus] == [GPU_ADDRESSES[3], GPU_ADDRESSES[0]]
    assert [nic.os_name for nic in topology.nics] == ["mlx5_0"]
    matrix = matrix_of(CELLS | {("GPU0", "GPU3"): "PIX"}, DEVICES)
    # Rows are those of all GPUs, by NVML's numbers: GPU0 is CUDA's second here.
    assert compare_with_matrix(topology, matrix, inventory, ADDRESSES) == (
        "gpu1 - gpu0: the matrix says PIX, the PCI tree has NUMA nodes of one socket between them.",
    )
    assert compare_with_matrix(topology, matrix_of(CELLS, DEVICES), None, ADDRESSES) == (
        "mlx5_1: in the matrix, not in the topology.",
    )


def test_a_table_of_another_machine_is_reported_pair_by_pair() -> None:
    topology = topology_of_matrix(parse_topo_matrix(all_alike("NV10", 8), "mail"), "mail")
    found = compare_with_matrix(topology, parse_topo_matrix(all_alike("NV12", 8), "mail"))
    assert len(found) == 28
    assert found[2] == "gpu0 - gpu3: the matrix says NV12, the topology has 10 NVLinks."
    assert compare_with_matrix(topology, parse_topo_matrix(all_alike("NV12", 4), "m")) == (
        "The matrix has 4 GPUs, the topology's host 8.",
    )


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Put a program of that name on PATH."""

    def put(script: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    return put


def checked(tmp_path: Path, recording: dict[str, object], visible: str | None = None) -> list[str]:
    """Notes of the check on the virtual machine with 4 H200."""
    inventory = read_inventory(DirectoryTree(write_host(tmp_path / "root")), HostProbeOptions())
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    facts = read_nvml(RecordedNvml(recording), environment)
    topology = describe_host(inventory, facts, "node7")
    return list(check_with_nvidia_smi(topology, inventory, facts))


def printing(text: str) -> str:
    return f"[ \"$*\" = 'topo -m' ] || exit 9\ncat <<'END'\n{text}\nEND"


def test_a_host_that_the_driver_describes_alike_gets_no_note(
    tmp_path: Path, nvidia_smi: Program
) -> None:
    nvidia_smi(printing(all_alike("NV18", 4)))
    assert checked(tmp_path, session()) == []


def test_gpus_that_cuda_hides_and_reorders_are_found_by_their_addresses(
    tmp_path: Path, nvidia_smi: Program
) -> None:
    table = all_alike("NV18", 4).splitlines()
    table[1] = table[1].replace("NV18", "NV9", 2).replace("NV9", "NV18", 1)  # GPU0 to GPU2
    table[3] = table[3].replace("NV18", "NV9", 1)
    nvidia_smi(printing("\n".join(table)))
    assert checked(tmp_path, session(), "2,0") == [
        "nvidia-smi says otherwise: gpu1 - gpu0: the matrix says NV9, the topology has 18 NVLinks."
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'No devices were found' >&2; exit 6",
            "exit code 6, it said 'No devices were found', so the topology was not compared",
        ),
        (
            "sleep 30",
            "did not end within 0.3 s, so the topology was not compared with it; see dmesg",
        ),
        ("echo hello", "nvidia-smi topo -m: its table: no table of `nvidia-smi topo -m` in it"),
        (printing("GPU0 GPU1\nGPU0 X FAR\nGPU1 FAR X"), "its table:2: 'FAR' at row GPU0"),
        (
            printing(all_alike("NV18", 3)),
            "nvidia-smi says otherwise: The matrix has 3 GPUs, the topology's host 4.",
        ),
    ],
)
def test_a_program_that_fails_costs_the_check_only(
    tmp_path: Path,
    nvidia_smi: Program,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    message: str,
) -> None:
    monkeypatch.setattr(matrix_check, "DEADLINE_S", 0.3 if "sleep" in script else 10.0)
    nvidia_smi(script)
    started = time.monotonic()
    (note,) = checked(tmp_path, session())
    assert message in note
    assert note.isprintable()
    assert note.endswith(".")
    assert time.monotonic() - started < 8


def test_a_host_without_the_program_gets_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checked(tmp_path, session()) == []


def test_without_nvml_gpus_are_taken_in_the_order_of_their_addresses(
    tmp_path: Path, nvidia_smi: Program
) -> None:
    nvidia_smi(printing(all_alike("PHB", 4)))
    inventory = read_inventory(DirectoryTree(write_host(tmp_path / "root")), HostProbeOptions())
    facts = NvmlFacts(available=False)
    topology = describe_host(inventory, facts, "node7")
    assert [gpu.bus_id for gpu in topology.gpus] == list(GPUS)
    assert check_with_nvidia_smi(topology, inventory, facts) == ()
