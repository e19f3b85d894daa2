"""The values of sysfs files: text becomes a figure, or a gap if it is invalid.

A missing file is a gap only if it is required, since kernels differ in the files they have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from probes.inputs.messages import printable
from probes.pci.inventory import Gap
from probes.pci.tree import FileTree
from tuccl.errors import TreeError

Value = TypeVar("Value")

_RATES_GT_PER_S = frozenset({2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0})
_WIDTHS = frozenset({0, 1, 2, 4, 8, 12, 16, 32})
_UNKNOWN_MBPS = frozenset({-1, 0, 0xFFFF, 0xFFFFFFFF})
"""Values of kernels of different age for an unknown speed of an interface."""
_MAX_GBIT_PER_S = 3200.0
"""Twice the fastest port announced."""


class ValueReader:
    """Reads values of one tree and collects the gaps."""

    def __init__(self, tree: FileTree) -> None:
        self.tree = tree
        self.gaps: list[Gap] = []

    def gap(self, where: str, reason: str) -> None:
        """Record a gap."""
        self.gaps.append(Gap(printable(where), reason))

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it is missing."""
        try:
            return self.tree.list(path)
        except TreeError as error:
            if not error.missing:
                self.gap(path, f"the folder cannot be read ({error})")
            return []

    def text(self, path: str, *, needed: bool = False) -> str | None:
        """Return the contents of a file, stripped; None if empty, missing or unreadable."""
        try:
            raw = self.tree.read(path)
        except TreeError as error:
            if needed or not error.missing:
                self.gap(path, f"cannot be read ({error}), so its value is not known")
            return None
        # tar fills a file that shrank while it was packed with zero bytes.
        text = raw.rstrip(b"\0").decode("utf-8", "replace").strip()
        if not text:
            self.gap(path, "is empty, so its value is not known")
        return text or None

    def quiet_text(self, path: str) -> str:
        """Return the contents as `text`, without a gap, for files that a kernel may not fill."""
        try:
            return self.tree.read(path).rstrip(b"\0").decode("utf-8", "replace").strip()
        except TreeError:
            return ""

    def is_there(self, path: str) -> bool:
        """Whether the path exists; a broken link does not."""
        try:
            self.tree.resolve(path)
        except TreeError:
            return False
        return True

    def value(
        self, path: str, parse: Callable[[str], Value], *, needed: bool = False
    ) -> Value | None:
        """Return a file's parsed contents; None with a gap where `parse` raises ValueError."""
        text = self.text(path, needed=needed)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.gap(path, f"holds {text!a:.40}, {error}, so its value is not known")
            return None


def hexadecimal(digits: int) -> Callable[[str], int]:
    """Return a parser of `0x10de` with exactly `digits` digits; fewer are a cut value."""

    def parse(text: str) -> int:
        if re.fullmatch(rf"0x[0-9a-fA-F]{{{digits}}}", text) is None:
            raise ValueError(f"which is not a number of {digits} hex digits")
        return int(text, 16)

    return parse


def whole_number(text: str, high: int = 65_535) -> int:
    """Parse a decimal number up to a limit."""
    if re.fullmatch(r"-?[0-9]{1,10}", text) is None or not 0 <= int(text) <= high:
        raise ValueError(f"which is not a whole number from 0 to {high}")
    return int(text)


def number_or_none(text: str) -> int | None:
    """Parse the number of a NUMA node or package; the kernel's -1 becomes None."""
    return None if text == "-1" else whole_number(text)


def link_rate(text: str) -> float:
    """Parse GT/s of `max_link_speed` (`16.0 GT/s PCIe`, `8 GT/s`); 0 for `Unknown`."""
    if text.lower().startswith("unknown") or text == "0":
        return 0.0
    match = re.fullmatch(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?", text)
    if match is None or float(match[1]) not in _RATES_GT_PER_S:
        raise ValueError("which is not a PCIe transfer rate")
    return float(match[1])


def link_width(text: str) -> int:
    """Parse the lanes of `current_link_width`; 0 when unknown, which Linux writes as 255."""
    if text == "255":
        return 0
    if re.fullmatch(r"[0-9]{1,2}", text) is None or int(text) not in _WIDTHS:
        raise ValueError("which is not a PCIe width")
    return int(text)


def interface_gbit_per_s(text: str) -> float | None:
    """Parse an interface's `speed` in Mb/s; None if the kernel does not know it."""
    if re.fullmatch(r"-?[0-9]{1,10}", text) is None:
        raise ValueError("which is not a speed in Mb/s")
    if int(text) in _UNKNOWN_MBPS:
        return None
    return _checked(int(text) / 1000)


def rdma_gbit_per_s(text: str) -> float:
    """Parse an RDMA port's `rate`: `200 Gb/sec (4X HDR)`."""
    match = re.fullmatch(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec(?: \(.*\))?", text)
    if match is None:
        raise ValueError("which is not a rate in Gb/sec")
    return _checked(float(match[1]))


def _checked(gbit_per_s: float) -> float:
    if not 0 < gbit_per_s <= _MAX_GBIT_PER_S:
        raise ValueError("which no port does")
    return gbit_per_s
