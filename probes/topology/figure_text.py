"""How figures of a topology are written for people, and where each came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from probes.topology.bandwidth_class import pcie_generation
from probes.topology.gfx_names import gfx_name
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance

LINK_NAMES = {
    LinkKind.NVLINK: "NVLink",
    LinkKind.C2C: "C2C",
    LinkKind.XGMI: "xGMI",
    LinkKind.PCIE: "PCIe",
    LinkKind.UPI: "CPU to CPU",
    LinkKind.NETWORK: "network",
}


def three_digits(figure: float) -> str:
    """A figure without its unit: `386`, `20`, `0.985`."""
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"


def speed(gb_per_s: float) -> str:
    """`24 GB/s`, `0.985 GB/s`: three digits, none that say nothing."""
    return f"{three_digits(gb_per_s)} GB/s"


def link_text(link: Link) -> str:
    """`x16 gen 4, 24 GB/s (sysfs)`."""
    told = f"{speed(link.bandwidth_gb_per_s)} ({link.provenance})"
    if link.latency_provenance is Provenance.MEASURED:
        told += f", {link.latency_us:.3g} us (measured)"
    if link.kind is LinkKind.PCIE:
        return f"x{link.lanes} gen {pcie_generation(link)}, {told}"
    return f"{link.lanes} links, {told}" if link.lanes > 1 else told


def range_text(links: Iterable[Link]) -> str:
    """`386 GB/s (measured)`, `380-391 GB/s (spec, measured)` of links that are shown as one."""
    links = tuple(links)
    told = _span([link.bandwidth_gb_per_s for link in links], "GB/s")
    sources = {link.provenance for link in links}
    told += f" ({', '.join(source for source in Provenance if source in sources)})"
    timed = [x.latency_us for x in links if x.latency_provenance is Provenance.MEASURED]
    return f"{told}, {_span(timed, 'us')} (measured)" if timed else told


def _span(figures: Sequence[float], unit: str) -> str:
    low, high = three_digits(min(figures)), three_digits(max(figures))
    return f"{low} {unit}" if low == high else f"{low}-{high} {unit}"


def short_name(device: Device) -> str:
    """The name without its host: `gpu3`."""
    return device.name.rpartition("/")[2]


def device_facts(device: Device) -> tuple[str, ...]:
    """What is known of the device itself: port, speed, model, memory, bus id."""
    facts = [device.os_name, device.model]
    if device.kind is DeviceKind.NIC and device.line_rate_gb_per_s:
        facts.insert(1, f"{device.line_rate_gb_per_s * 8:g} Gb/s")
    facts.append(gpu_architecture(device, "sm "))
    if device.memory_bytes:
        facts.append(f"{device.memory_bytes / 1e9:.0f} GB")
    return tuple(fact for fact in (*facts, device.bus_id) if fact)


def gpu_architecture(gpu: Device, before: str) -> str:
    """`gfx90a` of an AMD GPU, `sm 90` of NVIDIA's; empty where it is unknown.

    Args:
        gpu: or any other device, of which nothing is told.
        before: what comes before NVIDIA's compute capability times ten, as `sm `.
    """
    number = gpu.compute_capability
    return gfx_name(number) or (f"{before}{number}" if number else "")


def counted(count: int, what: str) -> str:
    """`1 GPU`, `8 GPUs`, `2 switches`."""
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {what}{'es' if what.endswith('ch') else 's'}"


def summary(devices: Iterable[Device], hosts: int) -> str:
    """`1 host, 8 GPUs, 8 NICs, 4 PCIe switches`."""
    kinds = [device.kind for device in devices]
    parts = [counted(hosts, "host")]
    for kind, what in (
        (DeviceKind.GPU, "GPU"),
        (DeviceKind.NIC, "NIC"),
        (DeviceKind.PCIE_SWITCH, "PCIe switch"),
        (DeviceKind.NETWORK_SWITCH, "network switch"),
    ):
        if kind in kinds:
            parts.append(counted(kinds.count(kind), what))
    return ", ".join(parts)
