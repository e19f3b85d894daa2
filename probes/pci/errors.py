"""Errors of reading a system's files.

ProbeError
├── TreeError      one file or folder cannot be read; the readers make a gap of it
├── SnapshotError  an archive is damaged, cut short, too big, or holds no sysfs
└── SysfsError     what is there is no sysfs of a machine
"""

from __future__ import annotations

from probes.errors import ProbeError


class TreeError(ProbeError):
    """A path of a `FileTree` cannot be read; the message says why, without the path."""

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing
        """Nothing of this name is there, as opposed to something that cannot be read."""


class SnapshotError(ProbeError):
    """An archive that was given as a snapshot of a system is not usable as one."""


class SysfsError(ProbeError):
    """The tree shows neither PCI devices nor network ports, or more than a machine has."""
