"""`Laboratory`: the devices of one host in the place of several nodes.

Whoever has one host and wants the figures of several fakes them. Real machines need nothing of
this: a communicator's nodes are its hosts, and each rank has a GPU of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.measuring.congestion import loopback_notes


@dataclass(frozen=True, slots=True)
class Laboratory:
    """What is faked; nothing is, unless it says so."""

    nodes: int = 1
    """As how many nodes the devices of this host appear; 1: as what they are."""
    share_gpus: bool = False
    """Whether each of these nodes has all devices of this host, instead of a part of them."""
    congestion_control: str = ""
    """TCP's, by which faked nodes talk over loopback; empty: none are faked, or nobody looked."""

    def devices(self, ranks: int) -> int:
        """How many devices so many ranks need."""
        return ranks // self.nodes if self.share_gpus else ranks

    def ranks(self, devices: int) -> int:
        """How many ranks so many devices have."""
        return devices * self.nodes if self.share_gpus else devices

    def notes(self) -> list[str]:
        """What is to be noted about figures that are taken so."""
        loopback = loopback_notes(self.congestion_control)
        if not self.share_gpus:
            return loopback
        # No job that the table is for does that.
        shared = (
            f"each GPU is used by {self.nodes} ranks, one of each faked node, side by side through "
            "MPS"
        )
        return [*loopback, shared]

    def conditions(self) -> list[str]:
        """How figures were taken, in a few words each."""
        faked = f"nodes faked over TCP with {self.congestion_control}"
        return [
            *([faked] if self.congestion_control else []),
            *(["faked nodes shared the GPUs"] if self.share_gpus else []),
        ]

    def changes_since(self, before: Laboratory) -> tuple[str, ...]:
        """What another congestion control means for a table of faked nodes, in a sentence.

        Args:
            before: What the table was measured in; unknown where its congestion control is empty.
        """
        control, now = before.congestion_control, self.congestion_control
        if self.nodes == 1 or not control or control == now:
            return ()
        sentence = (
            f"TCP's congestion control is {now or 'not known'}, the table's faked nodes were "
            f"measured under {control}: every key is measured again"
        )
        return (sentence,)
