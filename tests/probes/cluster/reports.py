"""Host reports of small machines, for the tests of a cluster's probe."""

from collections.abc import Sequence
from dataclasses import replace

from probes.host.report import HostIdentity, HostReport
from probes.network.ports import NetworkPort
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology


def machine(
    *, gpus: int = 2, nics: int = 2, bus: int = 0x10, notes: Sequence[str] = (), noise: float = 1.0
) -> Topology:
    """GPUs and NICs below one CPU, GPUs joined by NVLink whose speed `noise` multiplies."""
    cpu = Device("n0/cpu0", DeviceKind.CPU, 0)
    cards = [
        Device(f"n0/gpu{i}", DeviceKind.GPU, 0, i, "10de:2335", f"0000:{bus + i:02x}:00.0", 90)
        for i in range(gpus)
    ]
    ports = [
        Device(f"n0/nic{i}", DeviceKind.NIC, 0, i, "15b3:1021", f"0000:{bus + 32 + i:02x}:00.0",
               line_rate_gb_per_s=25.0, os_name=f"mlx5_{i}")
        for i in range(nics)
    ]  # fmt: skip
    links = [
        link
        for device in (*cards, *ports)
        for link in _both(device.name, cpu.name, LinkKind.PCIE, 50.0, 16)
    ]
    links += [
        link
        for i in range(gpus)
        for j in range(i)
        for link in _both(f"n0/gpu{i}", f"n0/gpu{j}", LinkKind.NVLINK, 450.0 * noise, 18)
    ]
    return Topology("machine", (*cards, *ports, cpu), tuple(links), tuple(notes))


def _both(a: str, b: str, kind: LinkKind, gb_per_s: float, lanes: int) -> list[Link]:
    return [
        Link(src, dst, kind, gb_per_s, 0.5, Provenance.MEASURED, lanes)
        for src, dst in ((a, b), (b, a))
    ]


def report(hostname: str, topology: Topology | None = None, boot_id: str = "b") -> HostReport:
    topology = machine() if topology is None else topology
    ports = tuple(
        NetworkPort(0, hostname, nic.index, nic.os_name, f"eth{nic.index}") for nic in topology.nics
    )
    named = replace(topology, name=hostname, hosts=(hostname,))
    return HostReport(HostIdentity(hostname, boot_id), named, ports)
