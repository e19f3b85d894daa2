"""Figures of links: nominal ones by generation, and classes of bandwidth.

Bandwidth classes are equal for links that differ by noise only, and different for half the speed.

A class is a range of bandwidths, so a figure at its border changes class with any noise. Borders
therefore lie where no link's bandwidth is expected: a link measured at 88 to 103 % of its nominal
bandwidth is in the class of the nominal bandwidth, for the generations of PCIe, NVLink and xGMI and
for the usual network speeds. This does not hold for a link far below its nominal bandwidth.

- NVLink, xGMI, C2C and PCIe: octaves of the bandwidth of one lane, so generations of PCIe are one
  class apart and halving always changes the class.
- Between sockets: octaves of the whole link.
- Network: the nearest usual speed of one port, since these are less than an octave apart.
"""

from __future__ import annotations

import itertools
import math

from probes.topology.devices import Link, LinkKind

NVLINK_LATENCY_US = 0.7
"""GPU to GPU directly; TACCL table 1."""
NVSWITCH_LATENCY_US = 0.35
"""GPU to NVSwitch and NVSwitch to GPU: half of TACCL's 0.7 us each."""
NETWORK_LATENCY_US = 1.7
"""NIC to NIC if unmeasured: InfiniBand in TACCL table 1."""
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
PCIE_GT_PER_S = tuple(_PCIE_MBPS_PER_LANE)
"""Transfer rates of a lane by PCIe generation, from 1."""

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


_OCTAVE_BORDER_GB_PER_S = {
    # Per lane: 14.06 (RTX bridges) below; 20, 24, 25 above; 36, 48, 50 an octave above these.
    LinkKind.NVLINK: 14.6,
    LinkKind.XGMI: 14.6,
    LinkKind.C2C: 14.6,
    # Per lane: between gen 3 on the wire (0.985) and gen 4 as payload (1.5).
    LinkKind.PCIE: 1.215,
    # NCCL's figures 6, 10, 16, 22, 32 and 40 all keep 3 % away from these octaves.
    LinkKind.UPI: 1.3,
}

_USUAL_GBPS = (1, 2.5, 5, 10, 20, 25, 40, 50, 100, 200, 400, 800, 1600, 3200)


def bandwidth_class(link: Link) -> int:
    """Class of a link; comparable between links of one kind and lane count only."""
    if link.kind is LinkKind.NETWORK:
        return network_class(link.bandwidth_gb_per_s / link.lanes)
    per_lane = link.bandwidth_gb_per_s / link.lanes
    return math.floor(math.log2(per_lane / _OCTAVE_BORDER_GB_PER_S[link.kind]))


def pcie_generation(link: Link) -> int:
    """PCIe generation, 1 to 6, whose bandwidth per lane is nearest to this PCIe link's."""
    # Gen 4 is the first generation above the border.
    return min(max(bandwidth_class(link) + 4, 1), 6)


def limit_class(gb_per_s: float) -> int:
    """Class of a measured limit between two devices: octaves, as between sockets.

    Such limits have no nominal values to keep the borders away from, so noise may change the class.
    """
    return math.floor(math.log2(gb_per_s / _OCTAVE_BORDER_GB_PER_S[LinkKind.UPI]))


def network_class(gb_per_s: float) -> int:
    """Index in the list of usual network speeds; -1 for 0, an unknown speed.

    A port runs below its line rate rather than above it, so the border between two speeds is the
    geometric mean of 105 % of the slower and 85 % of the faster.
    """
    if gb_per_s <= 0:
        return -1
    gbps = gb_per_s * 8
    for index, (slower, faster) in enumerate(itertools.pairwise(_USUAL_GBPS)):
        if gbps < math.sqrt(slower * 1.05 * faster * 0.85):
            return index
    return len(_USUAL_GBPS) - 1
