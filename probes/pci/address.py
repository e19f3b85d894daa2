"""PCI addresses as text: `0000:3b:00.0`, lower case, the domain of four hex digits or more."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def is_address(text: str) -> bool:
    """Whether the text is the address of a function."""
    return _ADDRESS.fullmatch(text) is not None


def is_root(text: str) -> bool:
    """Whether the text names a root bus as sysfs does: `pci0000:3a`."""
    return _ROOT.fullmatch(text) is not None


def address_key(address: str) -> tuple[int, int, int, int]:
    """Return a sort key, since domains differ in their number of digits.

    Raises:
        ValueError: the text is not an address.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!a:.40} is not a PCI address")
    domain, bus, device, function = (int(field, 16) for field in match.groups())
    return domain, bus, device, function


def slot_of(address: str) -> str:
    """Return the device of a function: `0000:3b:00`."""
    return address.rpartition(".")[0]


def root_of(address: str) -> str:
    """Return the address's own bus in the form of a root bus."""
    return f"pci{address.rpartition(':')[0]}"
