"""The network of a machine without bindings of NICs, for lower bounds.

A sketch binds a GPU to one NIC; NCCL's channels may use any. So here the usable NICs that the same
GPUs of a node reach form a pool, and an edge between GPUs of two nodes may spread over all NICs of
both pools. Its limits are those that no transfer can avoid: the links that all paths from the GPU
to its pool share, the joint bandwidth of each pool's NICs, the NICs that the network connects, and
the joint bandwidth of the links that lead from the leaf switches of one rack and to those of
another. Every simplification makes the machine faster, never slower.

In a sketch, the NICs that serve one GPU together form a bundle: one NIC with the name of its first
and the bandwidth of all, since NCCL's channels spread a GPU's traffic over them (dual-rail nodes,
AWS p5 with four). On each rail it has the bandwidth of its NICs on that rail, so bundles on
different rails exchange data only over the rails that they share.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

import networkx as nx

from probes.topology.graph import Link, LinkKind, Topology
from probes.topology.paths import Path, local_path, network_path
from sketches.binding import (
    fast_nics,
    host_gb_per_s,
    nearest_nics,
    nic_gb_per_s,
    ranks_and_nics_by_node,
)
from sketches.sketch import Edge, EdgeKind, Port
from sketches.wires import Wire, link_ports


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
    merged: dict[tuple[str, str, LinkKind], Link] = {}
    for link in links:
        src, dst = first.get(link.src, link.src), first.get(link.dst, link.dst)
        key = (src, dst, link.kind)
        known = merged[key].bandwidth_gb_per_s if key in merged else 0.0
        total = known + link.bandwidth_gb_per_s
        merged[key] = replace(link, src=src, dst=dst, bandwidth_gb_per_s=total)
    return tuple(merged.values())


@dataclass(frozen=True, slots=True)
class NicPool:
    """NICs of a node, and the ranks that reach them."""

    node: int
    nics: tuple[str, ...]
    ranks: tuple[int, ...]


def nic_pools(topology: Topology) -> tuple[NicPool, ...]:
    """Return the pools of every node with NICs; a GPU without a known path reaches all of them."""
    pools: list[NicPool] = []
    for ranks, nics in ranks_and_nics_by_node(topology):
        if not nics:
            continue
        names = [nic.name for nic in fast_nics(topology, nics)]
        reach: nx.Graph[int | str] = nx.Graph()
        reach.add_nodes_from(ranks)
        for rank in ranks:
            gpu = topology.gpus[rank].name
            known = [name for name in names if local_path(topology, gpu, name) is not None]
            reach.add_edges_from((rank, name) for name in known or names)
        for component in sorted(nx.connected_components(reach), key=_least_rank):
            inside = tuple(name for name in names if name in component)
            pools.append(NicPool(nics[0].node, inside, tuple(r for r in ranks if r in component)))
    return tuple(pools)


def pool_wires(topology: Topology) -> tuple[Wire, ...]:
    """Return an edge for any two GPUs of different nodes whose pools the network connects."""
    pools = nic_pools(topology)
    out = {rank: _segment(topology, pool, rank, out=True) for pool in pools for rank in pool.ranks}
    back = {
        rank: _segment(topology, pool, rank, out=False) for pool in pools for rank in pool.ranks
    }
    wires: list[Wire] = []
    for a, b in permutations(pools, 2):
        between = _between(topology, a, b) if a.node != b.node else None
        if between is None:
            continue
        wires += [
            _wire(src, dst, out[src], between, back[dst]) for src in a.ranks for dst in b.ranks
        ]
    return tuple(wires)


def _least_rank(component: set[int | str]) -> int:
    return min(member for member in component if isinstance(member, int))


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment of a route: its least latency, and the ports that every transfer passes."""

    alpha_us: float
    ports: tuple[Port, ...]
    gb_per_s: float


def _segment(topology: Topology, pool: NicPool, rank: int, *, out: bool) -> _Segment:
    """Return the segment from a GPU to its pool, or back."""
    gpu = topology.gpus[rank].name
    ends = [(gpu, nic) if out else (nic, gpu) for nic in pool.nics]
    paths = [path for src, dst in ends if (path := local_path(topology, src, dst)) is not None]
    shared = _shared_links(paths)
    return _Segment(
        min((path.latency_us for path in paths), default=0.0),
        tuple(port for link in shared for port in link_ports(topology, link)),
        min((link.bandwidth_gb_per_s for link in shared), default=math.inf),
    )


def _shared_links(paths: Sequence[Path]) -> tuple[Link, ...]:
    first, *others = (path.links for path in paths) if paths else ((),)
    return tuple(link for link in first if all(link in links for links in others))


def _between(topology: Topology, a: NicPool, b: NicPool) -> _Segment | None:
    """Return the segment between two pools; None if no NIC of the first reaches the second."""
    latency_us: list[float] = []
    senders: set[str] = set()
    receivers: set[str] = set()
    crossings: list[tuple[Link, ...]] = []
    for near in a.nics:
        for far in b.nics:
            path = network_path(topology, near, far)
            if path is not None:
                latency_us.append(path.latency_us)
                crossings.append(path.links[1:-1])
                senders.add(near)
                receivers.add(far)
    if not latency_us:
        return None
    racks = tuple(_rack_ports(crossings))
    carried = min(
        _joint_gb_per_s(topology, sorted(senders)),
        _joint_gb_per_s(topology, sorted(receivers), receiving=True),
        *(port.bandwidth_gb_per_s for port in racks),
    )
    ports = (
        Port(f"tx:{_name(a)}", _joint_gb_per_s(topology, a.nics)),
        *racks,
        Port(f"rx:{_name(b)}", _joint_gb_per_s(topology, b.nics, receiving=True)),
    )
    return _Segment(min(latency_us), ports, carried)


def _rack_ports(crossings: Sequence[tuple[Link, ...]]) -> Iterator[Port]:
    """Yield the links that leave the first switches of all paths, and those that enter the last.

    Nothing, if a path passes one switch only.
    """
    if all(crossings):
        for end in (0, -1):
            links = dict.fromkeys(links[end] for links in crossings)
            # All names, since two racks may share some of the links.
            name = "+".join(sorted(f"{link.src}>{link.dst}" for link in links))
            yield Port(f"racks:{name}", sum(link.bandwidth_gb_per_s for link in links))


def _name(pool: NicPool) -> str:
    return pool.nics[0] if len(pool.nics) == 1 else f"{pool.nics[0]}..{pool.nics[-1]}"


def _joint_gb_per_s(topology: Topology, nics: Sequence[str], *, receiving: bool = False) -> float:
    """Return the joint bandwidth of NICs, each limited by its host or by the network."""
    return sum(
        min(
            host_gb_per_s(topology, nic, receiving=receiving),
            nic_gb_per_s(topology, nic, receiving=receiving),
        )
        for nic in nics
    )


def _wire(src: int, dst: int, out: _Segment, between: _Segment, back: _Segment) -> Wire:
    ports = (*out.ports, *between.ports, *back.ports)
    return Wire(
        Edge(
            src=src,
            dst=dst,
            kind=EdgeKind.NETWORK,
            alpha_us=out.alpha_us + between.alpha_us + back.alpha_us,
            bandwidth_gb_per_s=min(out.gb_per_s, between.gb_per_s, back.gb_per_s),
            ports=tuple(port.name for port in ports),
        ),
        ports,
    )
