"""Text forms of a topology's figures and their provenance, for messages and listings.

AMD's names of architectures stand for numbers in a topology: `gfx90a` is 910, 100 x major + 10 x
minor + stepping, as in HIP's old `gcnArch` and RCCL's older files. NVIDIA's compute capabilities
times ten are below all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from probes.topology.bandwidth_class import pcie_generation
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance

_LEAST = 600
_NAME = re.compile(r"gfx(\d{1,2})(\d)([0-9a-f])")


def gfx_number(name: str) -> int | None:
    """Parse an architecture's name, `gfx942:sramecc+:xnack-` to 942; None if it is not one.

    Features after a colon are ignored, as RCCL ignores them.
    """
    match = _NAME.fullmatch(name.strip().lower().partition(":")[0])
    if match is None:
        return None
    number = 100 * int(match[1]) + 10 * int(match[2]) + int(match[3], 16)
    # A hexadecimal stepping outside gfx90x would give the number of another architecture.
    return number if gfx_name(number) == match[0] else None


def gfx_name(number: int) -> str:
    """Architecture's name, `gfx90a` for 910; empty for a number that is not AMD's."""
    if number < _LEAST:
        return ""
    if 910 <= number <= 915:
        # No gfx91x exists; these are the steppings a to f of gfx90x.
        return f"gfx90{number - 900:x}"
    return f"gfx{number}"


LINK_NAMES = {
    LinkKind.NVLINK: "NVLink",
    LinkKind.C2C: "C2C",
    LinkKind.XGMI: "xGMI",
    LinkKind.PCIE: "PCIe",
    LinkKind.UPI: "CPU to CPU",
    LinkKind.NETWORK: "network",
}


def three_digits(figure: float) -> str:
    """Format a figure without its unit: `386`, `20`, `0.985`."""
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"


def speed(gb_per_s: float) -> str:
    """Format a bandwidth to three digits: `24 GB/s`, `0.985 GB/s`."""
    return f"{three_digits(gb_per_s)} GB/s"


def link_text(link: Link) -> str:
    """Format a link: `x16 gen 4, 24 GB/s (sysfs)`."""
    text = f"{speed(link.bandwidth_gb_per_s)} ({link.provenance})"
    if link.latency_provenance is Provenance.MEASURED:
        text += f", {link.latency_us:.3g} us (measured)"
    if link.kind is LinkKind.PCIE:
        return f"x{link.lanes} gen {pcie_generation(link)}, {text}"
    return f"{link.lanes} links, {text}" if link.lanes > 1 else text


def range_text(links: Iterable[Link]) -> str:
    """Format links shown as one: `386 GB/s (measured)`, `380-391 GB/s (spec, measured)`."""
    links = tuple(links)
    text = _range([link.bandwidth_gb_per_s for link in links], "GB/s")
    sources = {link.provenance for link in links}
    text += f" ({', '.join(source for source in Provenance if source in sources)})"
    latencies_us = [x.latency_us for x in links if x.latency_provenance is Provenance.MEASURED]
    return f"{text}, {_range(latencies_us, 'us')} (measured)" if latencies_us else text


def _range(figures: Sequence[float], unit: str) -> str:
    low, high = three_digits(min(figures)), three_digits(max(figures))
    return f"{low} {unit}" if low == high else f"{low}-{high} {unit}"


def short_name(device: Device) -> str:
    """The device's name without its host: `gpu3`."""
    return device.name.rpartition("/")[2]


def device_facts(device: Device) -> tuple[str, ...]:
    """Known properties of the device: port, speed, model, memory, bus id."""
    facts = [device.os_name, device.model]
    if device.kind is DeviceKind.NIC and device.line_rate_gb_per_s:
        facts.insert(1, f"{device.line_rate_gb_per_s * 8:g} Gb/s")
    facts.append(gpu_architecture(device, "sm "))
    if device.memory_bytes:
        facts.append(f"{device.memory_bytes / 1e9:.0f} GB")
    return tuple(fact for fact in (*facts, device.bus_id) if fact)


def gpu_architecture(gpu: Device, prefix: str) -> str:
    """Architecture of a GPU, `gfx90a` (AMD) or `sm 90` (NVIDIA); empty if unknown or no GPU.

    `prefix` precedes NVIDIA's compute capability times ten.
    """
    number = gpu.compute_capability
    return gfx_name(number) or (f"{prefix}{number}" if number else "")


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: `1 GPU`, `8 GPUs`, `2 switches`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def summary(devices: Iterable[Device], hosts: int) -> str:
    """Count devices by kind: `1 host, 8 GPUs, 8 NICs, 4 PCIe switches`."""
    kinds = [device.kind for device in devices]
    counts = [counted(hosts, "host")]
    for kind, noun in (
        (DeviceKind.GPU, "GPU"),
        (DeviceKind.NIC, "NIC"),
        (DeviceKind.PCIE_SWITCH, "PCIe switch"),
        (DeviceKind.NETWORK_SWITCH, "network switch"),
    ):
        if kind in kinds:
            counts.append(counted(kinds.count(kind), noun))
    return ", ".join(counts)
