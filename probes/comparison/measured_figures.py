"""Comparison of a measured topology with one that was probed without measurements.

Measured bandwidths may be far from those of a data sheet, as in virtual machines, so only the
structure can be compared: devices, wiring and lanes, and figures that were never measured.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from probes.comparison.changes import with_old_names
from probes.topology.graph import Link, LinkKind, Provenance, Topology

_Pair = tuple[str, str, LinkKind, int]


def with_figures_of(measured: Topology, probed: Topology) -> Topology:
    """Return a measured topology with the bandwidths that the probe gives for measured links.

    A link has its bandwidth where the probe has one between the same devices, of the same kind and
    with as many lanes. Measured limits of pairs are left out.
    """
    given: defaultdict[_Pair, list[Link]] = defaultdict(list)
    for link in with_old_names(measured, probed).links:
        given[_pair(link)].append(link)
    links = tuple(
        replace(link, bandwidth_gb_per_s=given[_pair(link)].pop(0).bandwidth_gb_per_s)
        if link.provenance is Provenance.MEASURED and given[_pair(link)]
        else link
        for link in measured.links
    )
    return replace(measured, links=links, limits=())


def _pair(link: Link) -> _Pair:
    return link.src, link.dst, link.kind, link.lanes
