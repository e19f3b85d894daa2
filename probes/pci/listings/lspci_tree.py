"""`BusTree`: the bridge above each bus, from the bus numbers of the bridges.

A bridge's secondary bus has a higher number than its own bus (PCI Local Bus 3.0, 3.2.2.3.1; Linux
follows this), so a tree that keeps this rule has no loops.
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
        has_buses: bool = True,
    ) -> None:
        """Connect functions and bridges.

        Args:
            addresses: addresses of all functions, bridges included.
            bridges: secondary and subordinate bus by address, None where unknown.
            has_buses: whether the source has bus numbers; if not, roots are not known either.
        """
        self.gaps: list[Gap] = []
        self.has_buses = has_buses
        self._bridge_to: dict[_Bus, str] = {}
        for address, buses in bridges.items():
            if buses is None:
                if has_buses:
                    problem = "a bridge without bus numbers: what is below it is not known"
                    self.gaps.append(Gap(address, problem))
            elif buses[0]:  # 0: switched off, nothing below
                self._add(address, *buses)
        self.parent: dict[str, str] = {
            address: bridge
            for address in addresses
            if (bridge := self._bridge_to.get(_bus(address))) is not None
        }

    def root(self, address: str) -> str:
        """Return the root bus of a function: `pci0000:15`."""
        while (bridge := self.parent.get(address)) is not None:
            address = bridge
        return root_of(address)

    def _add(self, address: str, secondary: int, subordinate: int) -> None:
        domain, bus = _bus(address)
        if not bus < secondary <= subordinate:
            problem = f"buses {secondary:02x} to {subordinate:02x} cannot lie below bus {bus:02x}"
            self.gaps.append(Gap(address, f"{problem}: what is below it is not known"))
        elif (rival := self._bridge_to.get((domain, secondary))) is not None:
            problem = f"leads to bus {secondary:02x} as {rival} does, which was taken"
            self.gaps.append(Gap(address, problem))
        else:
            self._bridge_to[domain, secondary] = address


def _bus(address: str) -> _Bus:
    domain, bus, _ = address.split(":")
    return domain, int(bus, 16)
