"""`HostsLeft`: a run goes on without lost hosts, on the part of its machine that is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from probes.topology.graph import LinkKind, Topology
from probes.topology.hosts import folded, host_name, hosts_alike, only_nodes
from tuccl.crew.places import Places
from tuccl.crew.ranks import START_S
from tuccl.errors import MachineError, MeasurementError
from tuccl.quantities import count_of


@dataclass(frozen=True)
class HostsLeft:
    """The hosts that answer, by name."""

    asked: tuple[str, ...]
    """All that were asked, in their order."""
    left: tuple[str, ...]
    """Those of them that answer."""

    def part_of(self, machine: Topology) -> Topology:
        """Return the part of a machine that these hosts are; the machine if they are all of it.

        Hosts are known by their names in the machine, else by their places among those that were
        asked. If neither tells them apart, any will do of a machine whose hosts are alike.

        Raises:
            MachineError: It is not clear which hosts are left.
        """
        nodes = sorted(set(machine.node_of_rank))
        if len(self.left) >= len(nodes):
            return machine
        names = [host_name(machine, node) for node in nodes]
        if not set(self.left) <= set(names):
            names = list(self.asked)
        if machine.host_count != len(nodes) or (len(names) != len(nodes) and not _is_even(machine)):
            raise MachineError(
                f"{folded(self.left)} of a machine of {count_of(len(nodes), 'node')} are here, and "
                "nothing says which of its hosts they are: name the machine that is left in "
                "--topology, or start on all of them"
            )
        return only_nodes(machine, [names.index(name) for name in self.left])


def _is_even(machine: Topology) -> bool:
    """Return whether hosts are alike, and alike on the network."""
    rates = {link.bandwidth_gb_per_s for link in machine.links if link.kind is LinkKind.NETWORK}
    return len(rates) == 1 and len(hosts_alike(machine)) == 1


def hosts_left(places: Places, tell: Callable[[str], None]) -> HostsLeft:
    """Leave out the hosts that are lost, and return those that are left.

    Args:
        places: Places of all hosts; without those of lost ones afterwards.
        tell: Called with a line for each lost host.

    Raises:
        MeasurementError: None is left.
    """
    asked = tuple(dict.fromkeys(place.host for place in places.places))
    lost = places.leave_out_lost(START_S)
    left = tuple(dict.fromkeys(place.host for place in places.places))
    if not left:
        name, why = next(iter(lost.items()))
        raise MeasurementError(f"no host answers ({name}: {why}): mend them")
    for name, why in lost.items():
        tell(f"note: {name} is missing ({why}): this goes on without it")
    return HostsLeft(asked, left)
