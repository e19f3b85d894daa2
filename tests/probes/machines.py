"""Small machines for the tests of `probes`, with figures that are easy to work by hand."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from probes.files.read import shipped_machines
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology


def gpu(index: int, node: int = 0, *, model: str = "", memory_bytes: int = 0) -> Device:
    return Device(
        f"n{node}/gpu{index}", DeviceKind.GPU, node, index, model, memory_bytes=memory_bytes
    )


def both_ways(
    a: str,
    b: str,
    kind: LinkKind = LinkKind.NVLINK,
    gb_per_s: float = 25.0,
    *,
    latency_us: float = 0.7,
    lanes: int = 1,
) -> list[Link]:
    return [
        Link(src, dst, kind, gb_per_s, latency_us, Provenance.SPEC, lanes)
        for src, dst in ((a, b), (b, a))
    ]


def ring(members: Iterable[int], *, name: str = "ring") -> Topology:
    """GPUs in a ring of NVLinks."""
    return rings([list(members)], name=name)


def rings(groups: list[list[int]], *, name: str = "rings") -> Topology:
    """A host with a ring of NVLinks through each group; a CPU connects all GPUs."""
    gpus = [gpu(index) for group in groups for index in group]
    links = []
    for group in groups:
        for a, b in zip(group, group[1:] + group[:1], strict=True):
            links += both_ways(f"n0/gpu{a}", f"n0/gpu{b}")
    for device in gpus:
        links += both_ways(device.name, "n0/cpu0", LinkKind.PCIE, 12.0, latency_us=0.1, lanes=16)
    cpu = Device("n0/cpu0", DeviceKind.CPU, 0)
    return Topology(name, (*gpus, cpu), tuple(links))


def crossed(cluster: Topology, node: int, a: int, b: int) -> Topology:
    """Exchange the network cables of two NICs of a node."""
    swap = {f"n{node}/nic{a}": f"n{node}/nic{b}", f"n{node}/nic{b}": f"n{node}/nic{a}"}

    def plugged(link: Link) -> Link:
        if link.kind is not LinkKind.NETWORK:
            return link
        return replace(link, src=swap.get(link.src, link.src), dst=swap.get(link.dst, link.dst))

    return replace(cluster, links=tuple(plugged(link) for link in cluster.links))


def shipped_text(name: str = "a100-8gpu-8nic") -> str:
    return shipped_machines()[name].read_text(encoding="utf-8")


def shipped(name: str = "a100-8gpu-8nic") -> Topology:
    return parse_nccl_xml(shipped_text(name), name)


def disguised(topology: Topology, seed: int, noise: float = 0.03) -> Topology:
    """Change names, bus ids, latencies and orders, and figures by up to `noise`."""
    chance = random.Random(seed)
    labels = list(range(len(topology.devices)))
    chance.shuffle(labels)
    name = {
        device.name: f"host-{seed}/d{i}" for device, i in zip(topology.devices, labels, strict=True)
    }
    nodes = sorted({device.node for device in topology.devices} - {-1})
    shuffled = chance.sample(nodes, len(nodes))
    node = {-1: -1} | dict(zip(nodes, shuffled, strict=True))
    devices = [
        replace(
            device,
            name=name[device.name],
            node=node[device.node],
            bus_id=f"{chance.randrange(65536):04x}:00:00.0",
            os_name=f"eth{chance.randrange(99)}",
            line_rate_gb_per_s=device.line_rate_gb_per_s * chance.uniform(1 - noise, 1 + noise),
        )
        for device in topology.devices
    ]
    links = [
        replace(
            link,
            src=name[link.src],
            dst=name[link.dst],
            bandwidth_gb_per_s=link.bandwidth_gb_per_s * chance.uniform(1 - noise, 1 + noise),
            latency_us=link.latency_us * chance.uniform(0.5, 2),
        )
        for link in topology.links
    ]
    chance.shuffle(devices)
    chance.shuffle(links)
    limits = tuple(
        replace(
            limit,
            src=name[limit.src],
            dst=name[limit.dst],
            bandwidth_gb_per_s=limit.bandwidth_gb_per_s * chance.uniform(1 - noise, 1 + noise),
        )
        for limit in topology.limits
    )
    hosts = tuple(f"renamed{node}" for node in nodes)
    return Topology("disguised", tuple(devices), tuple(links), ("a note",), hosts, limits)
