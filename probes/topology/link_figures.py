"""Nominal figures of unmeasured links: bandwidth by kind and generation, latency by kind.

Every figure names its source here and nowhere else. GB/s = 1e9 bytes/s per direction.

Latency is the alpha of one transfer over the link, not the time of flight. TACCL (section 3.1,
table 1) measured 0.7 us for a GPU pair over NVLink and 1.7 us over InfiniBand; a path of several
links divides such a figure among them.
"""

from __future__ import annotations

from probes.topology.graph import LinkKind

NVLINK_LATENCY_US = 0.7
"""GPU to GPU directly; TACCL table 1."""
NVSWITCH_LATENCY_US = 0.35
"""GPU to NVSwitch and NVSwitch to GPU: half of TACCL's 0.7 us each."""
NETWORK_LATENCY_US = 1.7
"""NIC to NIC where unmeasured: InfiniBand in TACCL table 1."""
LATENCY_US: dict[LinkKind, float] = {
    LinkKind.NVLINK: NVLINK_LATENCY_US,
    LinkKind.C2C: NVLINK_LATENCY_US,
    LinkKind.XGMI: NVLINK_LATENCY_US,
    LinkKind.PCIE: 0.1,
    LinkKind.UPI: 0.1,
}
"""NVLink from TACCL; C2C and xGMI assumed equal to it. PCIe: vendors of gen 4 and 5 switches state
100 to 115 ns per switch. UPI: an assumption of the same order."""

DEFAULT_PCIE_MBPS_PER_LANE = 60
"""PCIe gen 3, as NCCL 2.30 src/graph/topo.cc assumes when a speed is missing or unknown."""
DEFAULT_PCIE_WIDTH = 16
"""PCIe lanes that NCCL 2.30 src/graph/topo.cc assumes for a width of 0."""

_PCIE_MBPS_PER_LANE = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}
"""Payload per lane and direction in 100 Mb/s, by GT/s (NCCL 2.30 src/graph/topo.cc)."""

_NVLINK_GB_PER_S = ((100, 50.0), (87, 25.0), (86, 14.0625), (70, 25.0), (60, 20.0))
"""GB/s of one link by least compute capability: NVIDIA's data sheets of P100 (160 GB/s in both
directions over 4 links), V100, A100, H100 (50 per link), B200 (100 per link) and RTX A6000 (112.5
over 4 links)."""

_XGMI_GB_PER_S = {90: 36.0, 94: 48.0, 95: 48.0}
"""GB/s of one link by gcn family, else 24 (RCCL src/graph/topo.h: MI200 36, MI300 48)."""

_INTEL_UPI_GB_PER_S = ((0xCF, 40.0), (0x8F, 22.0), (0x55, 10.0))
"""GB/s by least model of CPU family 6: Emerald Rapids, Sapphire Rapids, Skylake; older models 6
(NCCL 2.30 topo.h, topo.cc)."""


def pcie_generation_mbps(link_speed: str) -> int | None:
    """Payload rate of one lane in 100 Mb/s, from `16 GT/s` or `16.0 GT/s PCIe`; None if unknown."""
    number, _, rest = link_speed.strip().partition(" ")
    try:
        rate = float(number)
    except ValueError:
        return None
    return _PCIE_MBPS_PER_LANE.get(rate) if rest.startswith("GT/s") else None


def pcie_gb_per_s(mbps_per_lane: int, width: int) -> float:
    """Bandwidth of a PCIe link: width x rate / 80, NCCL 2.30 src/graph/topo.cc."""
    return width * mbps_per_lane / 80


def nvlink_gb_per_s(compute_capability: int) -> float:
    """Bandwidth of one NVLink; 25 GB/s (Volta to Hopper) when the compute capability is unknown."""
    for least, bandwidth in _NVLINK_GB_PER_S:
        if compute_capability >= least:
            return bandwidth
    return 25.0


def xgmi_gb_per_s(gcn: int) -> float:
    """Bandwidth of one xGMI link by AMD gcn number (`906`, `910` for gfx90a, `942`)."""
    # RCCL writes gfx90a as 910, since hexadecimal digits do not fit its number.
    return _XGMI_GB_PER_S.get(90 if gcn == 910 else gcn // 10 if gcn >= 940 else 0, 24.0)


def cpu_link_gb_per_s(arch: str, vendor: str, family: int, model: int) -> float:
    """Bandwidth between two sockets or NUMA nodes, NCCL 2.30 src/graph/topo.cc and topo.h."""
    if arch == "ppc64":
        return 32.0
    if arch == "x86_64" and vendor == "AuthenticAMD":
        return 16.0
    if arch == "x86_64" and vendor == "GenuineIntel" and family == 6:
        for least, bandwidth in _INTEL_UPI_GB_PER_S:
            if model >= least:
                return bandwidth
    return 6.0
