"""`Laboratory`: the devices of one host stand in for several nodes.

Real machines need none of this: a communicator's nodes are its hosts, and each rank has a GPU of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from probes.topology.figure_text import counted
from tuccl.errors import UsageError
from tuccl.measuring.workers.congestion import loopback_notes


def parse_node_sizes(text: str, name: str = "--fake-nodes") -> tuple[int, tuple[int, ...]]:
    """Parse `2`, a number of nodes, or `2+1`, their sizes; return number and sizes.

    Raises:
        UsageError: It is neither.
    """
    words = text.split("+")
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise UsageError(
            f"{name} {text!a:.40} is neither a number of nodes nor sizes, such as 2 or 3+1"
        )
    sizes = tuple(map(int, words))
    return (sizes[0], ()) if len(sizes) == 1 else (len(sizes), sizes)


@dataclass(frozen=True, slots=True)
class Laboratory:
    """The faked properties of a host; by default nothing is faked."""

    nodes: int = 1
    """Number of nodes that this host appears as; 1: not faked."""
    share_gpus: bool = False
    """Whether each faked node has all devices of this host, instead of a part of them."""
    congestion_control: str = ""
    """TCP's algorithm between faked nodes over loopback; empty: none are faked, or unknown."""
    sizes: tuple[int, ...] = ()
    """Number of ranks of each faked node; empty: all have as many."""
    gpus: int = 0
    """Number of GPUs of this host, if they are fewer than a node has ranks; else 0."""

    def node_sizes(self, ranks: int) -> tuple[int, ...]:
        """Return the number of ranks of each faked node; empty if none are faked."""
        if self.nodes == 1:
            return ()
        return self.sizes or (ranks // self.nodes,) * self.nodes

    def devices(self, ranks: int) -> int:
        """Return the number of devices that these ranks use."""
        if not self.share_gpus:
            return ranks
        largest_node = max(self.node_sizes(ranks) or (ranks,))
        return min(largest_node, self.gpus or largest_node)

    def on_gpus(self, ranks: int, gpus: int) -> Laboratory:
        """Return this laboratory on a host of `gpus` GPUs, fewer than a node has ranks or not."""
        return replace(self, gpus=gpus) if self.devices(ranks) > gpus else self

    def ranks(self, devices: int) -> int:
        """Return the number of ranks on these devices."""
        if self.sizes:
            return sum(self.sizes)
        return devices * self.nodes if self.share_gpus else devices

    def notes(self) -> list[str]:
        """Return notes on figures that are measured this way."""
        loopback = loopback_notes(self.congestion_control)
        if not self.share_gpus:
            return loopback
        # Jobs that use the table do not share GPUs.
        return [*loopback, f"{self._who_shares}, side by side through MPS"]

    @property
    def _who_shares(self) -> str:
        if self.gpus:
            host = f"all ranks, also those of one node, share {counted(self.gpus, 'GPU')}"
            return f"{host} of this host, so their links are those within a GPU"
        ranks = f"up to {self.nodes}" if self.sizes else str(self.nodes)
        return f"each GPU is used by {ranks} ranks, one of each faked node"

    def conditions(self) -> list[str]:
        """Return the conditions of measurement, in a few words each."""
        faked = f"nodes faked over TCP with {self.congestion_control}"
        return [
            *([faked] if self.congestion_control else []),
            *(["faked nodes shared the GPUs"] if self.share_gpus and not self.gpus else []),
            *(["ranks of a node shared a GPU"] if self.gpus else []),
        ]

    def changes_since(self, before: Laboratory) -> tuple[str, ...]:
        """Return a sentence on a changed congestion control, for a table of faked nodes.

        Args:
            before: Laboratory of the table; unknown if its congestion control is empty.
        """
        control, now = before.congestion_control, self.congestion_control
        if self.nodes == 1 or not control or control == now:
            return ()
        sentence = (
            f"TCP's congestion control is {now or 'not known'}, the table's faked nodes were "
            f"measured under {control}: every key is measured again"
        )
        return (sentence,)
