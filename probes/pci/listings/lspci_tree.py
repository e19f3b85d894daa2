"""`BusTree`: which bridge leads to which bus, from the bus numbers that bridges are given.

A bridge's secondary bus has a higher number than the bus it sits on (PCI Local Bus 3.0, 3.2.2.3.1;
Linux assigns no other), so a tree that keeps this rule has no loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probes.pci.address import root_of
from probes.pci.inventory import Gap

_Bus = tuple[str, int]
"""Domain and bus number."""


class BusTree:
    """Parents and root buses of functions."""

    def __init__(
        self,
        addresses: Sequence[str],
        bridges: Mapping[str, tuple[int, int] | None],
        *,
        told: bool = True,
    ) -> None:
        """Connect functions and bridges.

        Args:
            addresses: of all functions, bridges included.
            bridges: secondary and subordinate bus by address, None where they are not known.
            told: whether the source speaks of bridges at all; if not, roots are not known either.
        """
        self.gaps: list[Gap] = []
        self.told = told
        self._bridge_to: dict[_Bus, str] = {}
        for address, buses in bridges.items():
            if buses is None:
                if told:
                    what = "a bridge without bus numbers: what is below it is not known"
                    self.gaps.append(Gap(address, what))
            elif buses[0]:  # 0: switched off, nothing below
                self._add(address, *buses)
        self.parent: dict[str, str] = {
            address: bridge
            for address in addresses
            if (bridge := self._bridge_to.get(_bus(address))) is not None
        }

    def root(self, address: str) -> str:
        """The root bus that a function hangs below: `pci0000:15`."""
        while (bridge := self.parent.get(address)) is not None:
            address = bridge
        return root_of(address)

    def _add(self, address: str, secondary: int, subordinate: int) -> None:
        domain, bus = _bus(address)
        if not bus < secondary <= subordinate:
            what = f"buses {secondary:02x} to {subordinate:02x} cannot lie below bus {bus:02x}"
            self.gaps.append(Gap(address, f"{what}: what is below it is not known"))
        elif (other := self._bridge_to.get((domain, secondary))) is not None:
            what = f"leads to bus {secondary:02x} as {other} does, which was taken"
            self.gaps.append(Gap(address, what))
        else:
            self._bridge_to[domain, secondary] = address


def _bus(address: str) -> _Bus:
    domain, bus, _ = address.split(":")
    return domain, int(bus, 16)
