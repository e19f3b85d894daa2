"""Errors of reading a system's files.

ProbeError
├── TreeError      a file or folder cannot be read; readers turn it into a gap
├── SnapshotError  an archive is damaged, cut short, too big, or has no sysfs
└── SysfsError     the tree is not the sysfs of a machine
"""

from __future__ import annotations

from probes.errors import ProbeError


class TreeError(ProbeError):
    """Raised when a path of a `FileTree` cannot be read; the message has the reason only."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing
        """Whether the path does not exist, as opposed to being unreadable."""


class SnapshotError(ProbeError):
    """Raised when an archive is not a usable snapshot of a system."""


class SysfsError(ProbeError):
    """Raised when a tree has neither PCI devices nor network ports, or too many devices."""
