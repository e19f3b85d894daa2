"""`Laboratory`: the devices of one host stand in for several nodes.

Real machines need none of this: a communicator's nodes are its hosts, and each rank has a GPU of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.errors import UsageError
from tuccl.measuring.congestion import loopback_notes


def parse_node_sizes(text: str, name: str = "--fake-nodes") -> tuple[int, tuple[int, ...]]:
    """Parse `2`, a number of nodes, or `2+1`, their sizes; return number and sizes.

    Raises:
        UsageError: It is neither.
    """
    words = text.split("+")
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise UsageError(
            f"{name} {text!a:.40} is no number of nodes and no sizes, such as 2 or 3+1"
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

    def node_sizes(self, ranks: int) -> tuple[int, ...]:
        """Return the number of ranks of each faked node; empty where none are faked."""
        if self.nodes == 1:
            return ()
        return self.sizes or (ranks // self.nodes,) * self.nodes

    def devices(self, ranks: int) -> int:
        """Return the number of devices that these ranks need."""
        return max(self.node_sizes(ranks)) if self.share_gpus else ranks

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
        shared = (
            f"each GPU is used by {self._ranks_of_a_gpu} ranks, one of each faked node, side by "
            "side through MPS"
        )
        return [*loopback, shared]

    @property
    def _ranks_of_a_gpu(self) -> str:
        return f"up to {self.nodes}" if self.sizes else str(self.nodes)

    def conditions(self) -> list[str]:
        """Return the conditions of measurement, in a few words each."""
        faked = f"nodes faked over TCP with {self.congestion_control}"
        return [
            *([faked] if self.congestion_control else []),
            *(["faked nodes shared the GPUs"] if self.share_gpus else []),
        ]

    def changes_since(self, before: Laboratory) -> tuple[str, ...]:
        """Return a sentence on a changed congestion control, for a table of faked nodes.

        Args:
            before: Laboratory of the table; unknown where its congestion control is empty.
        """
        control, now = before.congestion_control, self.congestion_control
        if self.nodes == 1 or not control or control == now:
            return ()
        sentence = (
            f"TCP's congestion control is {now or 'not known'}, the table's faked nodes were "
            f"measured under {control}: every key is measured again"
        )
        return (sentence,)
