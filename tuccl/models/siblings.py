"""The machine that one of a shape's communicators sees while its siblings are in use, too.

A sibling has its own GPUs, the links between them and, on several nodes, the NICs next to its GPUs.
What siblings share is divided among them: each gets a link's bandwidth over the number of siblings
that use it at the same time. The communicator of all GPUs has the whole machine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from lookup_tables.table import Shape
from probes.topology.graph import DeviceKind, Link, LinkKind, Topology
from probes.topology.hosts import hosts_alike
from probes.topology.paths import local_path
from sketches.binding import fast_nics, nearest_nics, ranks_and_nics_by_node
from tuccl.errors import UsageError
from tuccl.models.figures import MachineFigures, communicator_shape, machine_figures
from tuccl.models.rack_shares import links_between_leaves
from tuccl.search.trials.shapes import Membership, memberships

_KEPT = (DeviceKind.GPU, DeviceKind.NIC)
"""Devices of which a sibling has its own; it sees all others."""


class SiblingMachines:
    """The machines of a topology's siblings, by communicator shape."""

    def __init__(self, topology: Topology) -> None:
        """Take a valid topology."""
        self._topology = topology
        self._whole = communicator_shape(topology)
        self._found: dict[Shape, tuple[Topology, ...]] = {self._whole: (topology,)}
        self._figures: dict[Shape, tuple[MachineFigures, ...]] = {}

    def topologies(self, shape: Shape) -> tuple[Topology, ...]:
        """Return the machines of a shape's siblings, one of those that are alike.

        Raises:
            UsageError: The machine has no siblings of this shape.
        """
        if shape not in self._found:
            if memberships(shape, self._whole) is None:
                raise UsageError(
                    f"{self._topology.name} has no communicators of {shape.ranks} ranks on "
                    f"{shape.nodes} node(s) that leave no GPU over"
                )
            self._found[shape] = tuple(self._siblings(shape))
        return self._found[shape]

    def slowest(self, shape: Shape) -> Topology:
        """Return the machine of the sibling with the slowest links, which counts for a shape.

        Raises:
            UsageError: As `topologies`.
        """
        return min(self.topologies(shape), key=lambda machine: machine_figures(machine).speed)

    def figures(self, shape: Shape) -> tuple[MachineFigures, ...]:
        """Return the different figures of a shape's siblings.

        Raises:
            UsageError: As `topologies`.
        """
        if shape not in self._figures:
            found = map(machine_figures, self.topologies(shape))
            self._figures[shape] = tuple(dict.fromkeys(found))
        return self._figures[shape]

    def slowest_figures(self, shape: Shape) -> MachineFigures:
        """Return the figures of the machine that `slowest` returns.

        Raises:
            UsageError: As `topologies`.
        """
        return min(self.figures(shape), key=lambda figures: figures.speed)

    def _siblings(self, shape: Shape) -> Iterator[Topology]:
        if shape.nodes > 1:
            yield from (seen for _, seen in divided(self._topology, shape))
            return
        for group in hosts_alike(self._topology):
            yield from (seen for _, seen in divided(group.example, shape))


@dataclass(frozen=True, slots=True)
class Communicator:
    """A sibling of a shape."""

    number: int
    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    """NICs next to its GPUs; none if it is inside one host."""


def communicators(topology: Topology, shape: Shape, stride: int = 1) -> tuple[Communicator, ...]:
    """Return the siblings of a shape on a topology; none where it does not divide the GPUs."""
    places = memberships(shape, communicator_shape(topology), stride) or ()
    gpus: dict[int, list[str]] = defaultdict(list)
    for gpu, place in zip(topology.gpus, places, strict=bool(places)):
        gpus[place.sibling].append(gpu.name)
    nics = _nics(topology, places) if places and shape.nodes > 1 else {}
    return tuple(
        Communicator(number, tuple(names), tuple(nics.get(number, ())))
        for number, names in gpus.items()
    )


def divided(
    topology: Topology, shape: Shape, stride: int = 1, *, alone: bool = False
) -> Iterator[tuple[Communicator, Topology]]:
    """Yield each sibling on a topology with the machine that it sees.

    Args:
        topology: The machine.
        shape: Shape of the siblings.
        stride: As `tuccl.search.trials.shapes.memberships`.
        alone: Whether the machine is as without the other siblings, as NCCL's own estimates have
            it; else links are divided among the siblings.
    """
    found = communicators(topology, shape, stride)
    if len(found) > 1:
        # A switch of NVIDIA's sums for two streams at most (HPC-X, NCCL-RDMA-SHARP Plugins), and
        # which communicators get them is not known.
        devices = (replace(device, network_sums=False) for device in topology.devices)
        topology = replace(topology, devices=tuple(devices))
    used = [] if alone else [used_links(topology, each.gpus, each.nics) for each in found]
    users = Counter(link for links in used for link in links)
    for each in found:
        own = {*each.gpus, *each.nics}
        name = f"{topology.name}, {_name(shape, each.number)}"
        yield each, _seen_by(topology, name, own, users)


def _name(shape: Shape, sibling: int) -> str:
    return f"communicator {sibling} of {shape.ranks} ranks on {shape.nodes} node(s)"


def _seen_by(topology: Topology, name: str, own: set[str], users: Mapping[Link, int]) -> Topology:
    """Return the part of a machine that a sibling sees, with its share of what others use, too."""
    devices = tuple(
        device for device in topology.devices if device.kind not in _KEPT or device.name in own
    )
    names = {device.name for device in devices}
    links = tuple(
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / max(1, users[link]))
        for link in topology.links
        if link.src in names and link.dst in names
    )
    limits = tuple(limit for limit in topology.limits if limit.src in names and limit.dst in names)
    return replace(topology, name=name, devices=devices, links=links, limits=limits)


def _nics(topology: Topology, places: Sequence[Membership]) -> dict[int, list[str]]:
    """Return the NICs of each sibling: those next to its GPUs, divided among the GPUs beside."""
    found: dict[int, list[str]] = defaultdict(list)
    for ranks, nics in ranks_and_nics_by_node(topology):
        nearest = nearest_nics(topology, ranks, fast_nics(topology, nics)) if nics else {}
        for names, sharers in nearest.items():
            for position, rank in enumerate(sharers):
                own = names[position :: len(sharers)] or (names[position % len(names)],)
                known = found[places[rank].sibling]
                known += [name for name in own if name not in known]
    return found


def used_links(topology: Topology, gpus: Sequence[str], nics: Iterable[str]) -> set[Link]:
    """Return the links that a sibling uses: between its GPUs, to its NICs, and in the network."""
    device = topology.device
    of_node: dict[int, list[str]] = {}
    for gpu in gpus:
        of_node.setdefault(device[gpu].node, []).append(gpu)
    pairs = [pair for beside in of_node.values() for pair in permutations(beside, 2)]
    nics = list(nics)
    racks = links_between_leaves(topology, [device[nic] for nic in nics]).values()
    used = {link for links in racks for link in links}
    for nic in nics:
        beside = of_node.get(device[nic].node, [])
        pairs += [pair for gpu in beside for pair in ((gpu, nic), (nic, gpu))]
        ends = (*topology.links_from[nic], *topology.links_to[nic])
        used |= {link for link in ends if link.kind is LinkKind.NETWORK}
    for a, b in pairs:
        path = local_path(topology, a, b)
        used |= set() if path is None else set(path.links)
    return used
