"""Hand-written topologies, and the benchmark topologies as `Topology`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from types import MappingProxyType

from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from tests.shared_data import SHARED_DATA

Cable = tuple[str, str, LinkKind, float, float]


def machine(name: str, devices: Iterable[Device], cables: Iterable[Cable]) -> Topology:
    """Return a topology of devices and bidirectional cables."""
    links = [
        Link(a, b, kind, gb_per_s, latency_us, Provenance.SPEC)
        for src, dst, kind, gb_per_s, latency_us in cables
        for a, b in ((src, dst), (dst, src))
    ]
    return Topology(name, tuple(devices), tuple(links))


def devices(node: int, kind: DeviceKind, count: int) -> list[Device]:
    return [Device(f"n{node}/{kind.value}{i}", kind, node, i) for i in range(count)]


def host(
    gpus: int,
    nics: int,
    *,
    node: int = 0,
    nvlink_gb_per_s: float = 300.0,
    mesh: Mapping[tuple[int, int], float] = MappingProxyType({}),
    pcie_gb_per_s: float = 24.0,
    capability: int = 0,
) -> Topology:
    """Return GPUs with an NVSwitch, or with the NVLinks of a mesh between pairs of them.

    GPU i shares a PCIe switch with NIC i * nics // gpus.
    """
    at = f"n{node}/"
    members = [
        *(
            replace(gpu, compute_capability=capability)
            for gpu in devices(node, DeviceKind.GPU, gpus)
        ),
        *devices(node, DeviceKind.NIC, nics),
        *devices(node, DeviceKind.PCIE_SWITCH, nics),
    ]
    cables: list[Cable] = [
        (f"{at}gpu{a}", f"{at}gpu{b}", LinkKind.NVLINK, gb_per_s, 0.7)
        for (a, b), gb_per_s in mesh.items()
    ]
    if not mesh:
        members.append(Device(f"{at}nvswitch", DeviceKind.NVSWITCH, node))
    for gpu in range(gpus):
        if not mesh:
            nvlink = LinkKind.NVLINK, nvlink_gb_per_s, 0.35
            cables.append((f"{at}gpu{gpu}", f"{at}nvswitch", *nvlink))
        if nics:
            switch = f"{at}pcie_switch{gpu * nics // gpus}"
            cables.append((f"{at}gpu{gpu}", switch, LinkKind.PCIE, pcie_gb_per_s, 0.1))
    for nic in range(nics):
        ends = f"{at}pcie_switch{nic}", f"{at}nic{nic}"
        cables.append((*ends, LinkKind.PCIE, pcie_gb_per_s, 0.1))
    return machine("host", members, cables)


def cluster(
    nodes: int,
    gpus: int,
    nics: int,
    *,
    nic_gb_per_s: dict[tuple[int, int], float] | None = None,
    absent: frozenset[str] = frozenset(),
    rails_only: bool = False,
) -> Topology:
    """Return such nodes with an NVSwitch, on one network switch or one for each rail."""
    hosts = [host(gpus, nics, node=node) for node in range(nodes)]
    names = [f"rail{i}" for i in range(nics)] if rails_only else ["fabric"]
    network = machine(
        "network",
        [Device(name, DeviceKind.NETWORK_SWITCH, NETWORK_NODE) for name in names],
        [
            (f"n{node}/nic{nic}", names[nic % len(names)], LinkKind.NETWORK, speed, 0.85)
            for node, nic in product(range(nodes), range(nics))
            for speed in [(nic_gb_per_s or {}).get((node, nic), 25.0)]
        ],
    )
    parts = (*hosts, network)
    whole = Topology(
        "cluster",
        tuple(device for part in parts for device in part.devices),
        tuple(link for part in parts for link in part.links),
    )
    return without(whole, *absent)


def half_known() -> Topology:
    """Return two nodes of three GPUs and a NIC, whose third GPU has no known path to the NIC."""
    members, cables = [Device("fabric", DeviceKind.NETWORK_SWITCH, NETWORK_NODE)], list[Cable]()
    for node in range(2):
        gpus = devices(node, DeviceKind.GPU, 3)
        (nic,) = devices(node, DeviceKind.NIC, 1)
        members += [*gpus, nic]
        ends = [(a.name, b.name) for a, b in combinations(gpus, 2)]
        cables += [(*pair, LinkKind.NVLINK, 300.0, 0.7) for pair in ends]
        cables += [
            (gpu.name, nic.name, LinkKind.PCIE, gb_per_s, 0.1)
            for gpu, gb_per_s in zip(gpus, (12.5, 6.25), strict=False)
        ]
        cables.append((nic.name, "fabric", LinkKind.NETWORK, 50.0, 0.85))
    return machine("half_known", members, cables)


def without(topology: Topology, *absent: str) -> Topology:
    """Return a machine less some devices."""
    return replace(
        topology,
        devices=tuple(each for each in topology.devices if each.name not in absent),
        links=tuple(each for each in topology.links if not {each.src, each.dst} & set(absent)),
    )


def slowed(topology: Topology, nic: str, share: float) -> Topology:
    """Return a machine whose NIC has a share of its bandwidth on the network."""
    return replace(
        topology,
        links=tuple(
            replace(link, bandwidth_gb_per_s=share * link.bandwidth_gb_per_s)
            if link.kind is LinkKind.NETWORK and nic in (link.src, link.dst)
            else link
            for link in topology.links
        ),
    )


def pcie_box(gpus: int) -> Topology:
    """Return GPUs under one PCIe switch, without NICs."""
    members = [*devices(0, DeviceKind.GPU, gpus), *devices(0, DeviceKind.PCIE_SWITCH, 1)]
    return machine(
        "pcie_box",
        members,
        [(f"n0/gpu{i}", "n0/pcie_switch0", LinkKind.PCIE, 24.0, 0.1) for i in range(gpus)],
    )


def nvlink_path_with_pcie() -> Topology:
    """Return three GPUs in a row by NVLink, all under one PCIe switch."""
    box = pcie_box(3)
    row = machine(
        "row",
        (),
        [(f"n0/gpu{i}", f"n0/gpu{i + 1}", LinkKind.NVLINK, 50.0, 0.7) for i in range(2)],
    )
    return Topology("row", box.devices, box.links + row.links)


def two_sockets(gpus: int) -> Topology:
    """Return a host whose GPUs sit under the PCIe switches of two sockets, half under each."""
    members, cables = devices(0, DeviceKind.GPU, gpus), list[Cable]()
    members += [*devices(0, DeviceKind.PCIE_SWITCH, 2), *devices(0, DeviceKind.CPU, 2)]
    for gpu in range(gpus):
        switch = f"n0/pcie_switch{2 * gpu // gpus}"
        cables.append((f"n0/gpu{gpu}", switch, LinkKind.PCIE, 24.0, 0.1))
    for socket in range(2):
        ends = f"n0/pcie_switch{socket}", f"n0/cpu{socket}"
        cables.append((*ends, LinkKind.PCIE, 24.0, 0.1))
    cables.append(("n0/cpu0", "n0/cpu1", LinkKind.UPI, 10.0, 0.1))
    return machine("two_sockets", members, cables)


DGX1_MESH = {
    **dict.fromkeys(((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)), 50.0),
    **dict.fromkeys(((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)), 25.0),
}
"""GB/s of each pair of GPUs of a DGX-1: two quads, and an edge of a cube to the other."""


def hybrid_mesh() -> Topology:
    """Return the 8 GPUs of a DGX-1; pairs have one or two links, some have none."""
    return host(8, 0, mesh=DGX1_MESH)


def virtual_machine(gpus: int, nics: int) -> Topology:
    """Return devices directly under the CPU, as in virtual machines that hide the PCIe tree."""
    members = [*devices(0, DeviceKind.GPU, gpus), *devices(0, DeviceKind.NIC, nics)]
    ends = [device.name for device in members]
    members.append(Device("n0/cpu0", DeviceKind.CPU, 0))
    return machine("vm", members, [(end, "n0/cpu0", LinkKind.PCIE, 12.0, 0.1) for end in ends])


@cache
def bench_topologies() -> dict[str, tuple[Topology, float]]:
    """Return the benchmark topologies with their all_gather bounds; empty without shared data."""
    file = SHARED_DATA / "bench_topologies.json"
    if not file.is_file():
        return {}
    return {name: _bench(name, entry) for name, entry in json.loads(file.read_text()).items()}


def _bench(name: str, entry: dict) -> tuple[Topology, float]:  # type: ignore[type-arg]
    gpus = set(entry["gpus"])

    def kind(device: str) -> DeviceKind:
        if device in gpus:
            return DeviceKind.GPU
        if "nvs" in device:
            return DeviceKind.NVSWITCH
        return DeviceKind.NIC if "nic" in device else DeviceKind.NETWORK_SWITCH

    def link_kind(ends: set[DeviceKind]) -> LinkKind:
        if DeviceKind.NETWORK_SWITCH in ends:
            return LinkKind.NETWORK
        return LinkKind.PCIE if DeviceKind.NIC in ends else LinkKind.NVLINK

    def device(label: str) -> Device:
        prefix = re.match(r"n(\d+)", label)
        number = re.search(r"(\d+)$", label)
        unnamed = NETWORK_NODE if kind(label) is DeviceKind.NETWORK_SWITCH else 0
        return Device(
            label,
            kind(label),
            int(prefix[1]) if prefix else unnamed,
            int(number[1]) if number else 0,
        )

    labels = dict.fromkeys(
        [*entry["gpus"], *(link[end] for link in entry["links"] for end in ("src", "dst"))]
    )
    links = tuple(
        Link(
            link["src"],
            link["dst"],
            link_kind({kind(link["src"]), kind(link["dst"])}),
            link["bandwidth_gb_per_s"],
            link["latency_us"],
            Provenance.SPEC,
        )
        for link in entry["links"]
    )
    topology = Topology(name, tuple(device(label) for label in labels), links)
    return topology, entry["allgather_bound_gb_per_s"]
