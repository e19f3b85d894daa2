"""Bundling: NICs that serve one GPU together become one NIC.

Machines with two or more NICs per GPU (dual-rail nodes, AWS p5 with four) spread a GPU's traffic
over its NICs, as NCCL does with its channels. In a sketch such a bundle is one NIC with the name of
its first and the bandwidth of all. On each rail it has the bandwidth of its NICs on that rail, so
bundles on different rails exchange data only over the rails that they share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from probes.topology.graph import Link, LinkKind, Topology
from sketches.binding import fast_nics, nearest_nics, nic_gb_per_s, ranks_and_nics_by_node


def bundle_nics(topology: Topology) -> tuple[Topology, tuple[str, ...]]:
    """Return the machine with every bundle as one NIC, and a note for each bundle."""
    bundles = _bundles(topology)
    if not bundles:
        return topology, ()
    first = {nic: bundle[0] for bundle in bundles for nic in bundle}
    untouched = [link for link in topology.links if not {link.src, link.dst} & first.keys()]
    merged = _merged(
        (link for link in topology.links if {link.src, link.dst} & first.keys()), first
    )
    rates: dict[str, float] = defaultdict(float)
    for nic, name in first.items():
        rates[name] += nic_gb_per_s(topology, nic)
    devices = tuple(
        replace(device, line_rate_gb_per_s=rates.get(device.name, device.line_rate_gb_per_s))
        for device in topology.devices
        if first.get(device.name, device.name) == device.name
    )
    notes = tuple(f"{bundle[0]} stands for {', '.join(bundle)} together" for bundle in bundles)
    return replace(topology, devices=devices, links=(*untouched, *merged)), notes


def _bundles(topology: Topology) -> list[tuple[str, ...]]:
    """Return the bundles, where each GPU of a set that shares NICs can have two or more."""
    bundles: list[tuple[str, ...]] = []
    for ranks, nics in ranks_and_nics_by_node(topology):
        sharers = nearest_nics(topology, ranks, fast_nics(topology, nics)) if nics else {}
        wanted = Counter(nic for names in sharers for nic in names)
        for names, group in sharers.items():
            if len(names) < 2 * len(group) or any(wanted[nic] > 1 for nic in names):
                continue
            cuts = [position * len(names) // len(group) for position in range(len(group) + 1)]
            bundles += [names[start:end] for start, end in pairwise(cuts)]
    return bundles


def _merged(links: Iterable[Link], first: Mapping[str, str]) -> tuple[Link, ...]:
    """Return the links of bundles, with parallel links merged."""
    merged: dict[tuple[str, str, LinkKind], Link] = {}
    for link in links:
        src, dst = first.get(link.src, link.src), first.get(link.dst, link.dst)
        key = (src, dst, link.kind)
        known = merged[key].bandwidth_gb_per_s if key in merged else 0.0
        total = known + link.bandwidth_gb_per_s
        merged[key] = replace(link, src=src, dst=dst, bandwidth_gb_per_s=total)
    return tuple(merged.values())
