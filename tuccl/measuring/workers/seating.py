"""Placement of a communicator's ranks: on real nodes, or on nodes that are faked on one host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate, chain

from lookup_tables.table import Shape
from tuccl.crew.cores import share_variable
from tuccl.crew.places import Place
from tuccl.errors import MeasurementError
from tuccl.measuring.workers.leader import Seat
from tuccl.quantities import count_of


def whole_shape(places: Sequence[Place], faked_sizes: Sequence[int] = ()) -> Shape:
    """Return the shape of a communicator over all places."""
    return shape_of_nodes(_nodes(places, faked_sizes))


def seats_of(
    shape: Shape,
    places: Sequence[Place],
    faked_sizes: Sequence[int] = (),
    hosts_of_nodes: Sequence[int] = (),
) -> tuple[Seat, ...]:
    """Return a seat for every rank of a shape: the first devices of the first nodes.

    Args:
        shape: Shape of the communicator.
        places: All places of the run.
        faked_sizes: Ranks of each node that one host appears as; empty: none are faked.
        hosts_of_nodes: Number of hosts of each node, where NVLink joins several to one; empty: each
            is a node.

    Raises:
        MeasurementError: The machine has too few nodes or devices.
    """
    nodes = _of_hosts(_nodes(places, faked_sizes), hosts_of_nodes)
    if shape == shape_of_nodes(nodes):
        chosen = nodes
    else:
        each = shape.ranks_per_node
        chosen = [node[:each] for node in nodes if len(node) >= each][: shape.nodes]
    if not chosen or sum(map(len, chosen)) != shape.ranks or len(chosen) != shape.nodes:
        here = " + ".join(str(len(node)) for node in nodes)
        raise MeasurementError(
            f"a communicator of {shape.ranks} ranks on {count_of(shape.nodes, 'node')} does not "
            f"fit the devices here ({here}): measure another shape, or start a rank for each GPU, "
            f"as torchrun --nproc-per-node {shape.ranks_per_node or 'N'} or slots of --hosts"
        )
    seats = [(number, place) for number, node in enumerate(chosen) for place in node]
    if not faked_sizes:
        return tuple(Seat(place, {}) for _, place in seats)
    return tuple(
        Seat(place, {**appearing_as(number), **share_variable(rank, len(seats))})
        for rank, (number, place) in enumerate(seats)
    )


def shape_of_nodes(nodes: Sequence[Sequence[int]]) -> Shape:
    """Return the shape of a communicator over the ranks of these nodes."""
    sizes = {len(node) for node in nodes}
    return Shape(sum(map(len, nodes)), len(nodes), sizes.pop() if len(sizes) == 1 else 0)


def _of_hosts(hosts: list[list[int]], hosts_of_nodes: Sequence[int]) -> list[list[int]]:
    """Return the places of each node, whose hosts follow one another."""
    if sum(hosts_of_nodes) != len(hosts):
        return hosts
    ends = accumulate(hosts_of_nodes)
    return [
        list(chain.from_iterable(hosts[end - count : end]))
        for end, count in zip(ends, hosts_of_nodes, strict=True)
    ]


def _nodes(places: Sequence[Place], faked_sizes: Sequence[int]) -> list[list[int]]:
    """Return the numbers of the places by node."""
    by_host: dict[str, list[int]] = {}
    for number, place in enumerate(places):
        by_host.setdefault(place.host, []).append(number)
    hosts = list(by_host.values())
    if not faked_sizes:
        return hosts
    if len(hosts) > 1 or sum(faked_sizes) != len(places) or min(faked_sizes) < 1:
        sizes = " + ".join(map(str, faked_sizes))
        raise MeasurementError(
            f"{len(places)} ranks on {len(hosts)} hosts cannot appear as nodes of {sizes}: nodes "
            "are faked on one host, and have all of its ranks together"
        )
    ends = accumulate(faked_sizes)
    return [list(range(end - size, end)) for end, size in zip(ends, faked_sizes, strict=True)]


def appearing_as(node: int) -> dict[str, str]:
    """Return variables that let NCCL see a process as on another host, over TCP on loopback.

    A caller who names interfaces of this host (NCCL_SOCKET_IFNAME) has them as its NICs.
    """
    return {
        "NCCL_HOSTID": f"tuccl-node{node}",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": os.environ.get("NCCL_SOCKET_IFNAME", "lo"),
    }
