"""Bandwidth classes: equal for links that differ by noise only, different for half the speed.

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
