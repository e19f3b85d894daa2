"""`FileTree`: a system's files, read from a live root directory or from a snapshot of it.

Paths are relative to the root and have no leading slash: `sys/bus/pci/devices`. Links are followed
here, not by the kernel, so that an absolute link of another machine leads into its own tree, never
out of it, and a loop of links ends. Snapshots stay in memory; nothing is written to a disk.
"""

from __future__ import annotations

import errno
import os
import re
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from typing import Protocol

from probes.pci.archive import archive_entries
from probes.pci.errors import SnapshotError, TreeError

MAX_FILE_BYTES = 1 << 20
"""Of a file only so much is read; the values of sysfs fit a page."""
MAX_LINKS = 40
"""Links followed on one path, as Linux does, before it counts as a loop."""

_PIECE_BYTES = 1 << 16
_REMEMBERED_LINKS = 65_536


class FileTree(Protocol):
    """Read access to the files of a system."""

    def read(self, path: str) -> bytes:
        """Contents of a file, the first `MAX_FILE_BYTES` of it.

        Raises:
            TreeError: it is not there or cannot be read.
        """

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted.

        Raises:
            TreeError: it is not there, cannot be read or is no folder.
        """

    def resolve(self, path: str) -> str:
        """The same path without links.

        Raises:
            TreeError: it is not there, or its links form a loop.
        """


class _LinkedTree(ABC):
    """Follows links on behalf of the trees."""

    @abstractmethod
    def _link(self, path: str) -> str | None:
        """Target of the link at a path without links before its last part; None: no link."""

    def resolve(self, path: str) -> str:
        """As `FileTree.resolve`."""
        here, followed = "", 0
        parts = deque((part, False) for part in path.split("/"))
        while parts:
            part, of_link = parts.popleft()
            if part in {"", "."}:
                continue
            if part == "..":
                here = here.rpartition("/")[0]
                continue
            there = f"{here}/{part}" if here else part
            target = self._target(there, of_link=of_link)
            if target is None:
                here = there
                continue
            followed += 1
            if followed > MAX_LINKS:
                raise TreeError("its links form a loop")
            if target.startswith("/"):
                here = ""
            parts.extendleft((step, True) for step in reversed(target.split("/")))
        return here

    def _target(self, path: str, *, of_link: bool) -> str | None:
        try:
            return self._link(path)
        except TreeError as error:
            if of_link and error.missing:
                raise TreeError("its link leads nowhere") from None
            raise


class DirectoryTree(_LinkedTree):
    """The files below a root directory; `/` for this machine."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._links: dict[str, str | None] = {}

    def read(self, path: str) -> bytes:
        """As `FileTree.read`."""
        real = self.resolve(path)
        try:
            # Neither a pipe nor a device that lies in the tree may keep us waiting.
            number = os.open(self._root / real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                return _read_all(number)
            finally:
                os.close(number)
        except OSError as error:
            raise _tree_error(error) from None

    def list(self, path: str) -> list[str]:
        """As `FileTree.list`."""
        try:
            return sorted(os.listdir(self._root / self.resolve(path)))  # noqa: PTH208 - names only
        except OSError as error:
            raise _tree_error(error) from None

    def _link(self, path: str) -> str | None:
        if len(self._links) > _REMEMBERED_LINKS:
            self._links.clear()
        if path not in self._links:
            try:
                self._links[path] = str((self._root / path).readlink())
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise _tree_error(error) from None
                self._links[path] = None
            except ValueError:
                raise TreeError("its name holds a null byte") from None
        return self._links[path]


def _read_all(number: int) -> bytes:
    """Up to the limit; files of proc come in several pieces."""
    content = b""
    while len(content) < MAX_FILE_BYTES and (piece := os.read(number, _PIECE_BYTES)):
        content += piece
    return content[:MAX_FILE_BYTES]


def _tree_error(error: OSError) -> TreeError:
    missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
    return TreeError(error.strerror or "cannot be read", missing=missing)


class TarTree(_LinkedTree):
    """A tar archive, plain or packed (gzip, bzip2, xz), wherever in it the system's root lies."""

    def __init__(self, data: bytes, source: str = "archive") -> None:
        """Read the archive; devices, pipes and names that lead out of it are ignored.

        Args:
            data: the archive.
            source: what to call it in an error, usually the path.

        Raises:
            SnapshotError: no such archive, cut short, too big, or without exactly one sysfs.
        """
        files: dict[str, bytes] = {}
        links: dict[str, str] = {}
        folders: set[str] = set()
        try:
            for entry in archive_entries(data):
                if entry.content is not None:
                    files[entry.path] = entry.content
                elif entry.link is not None:
                    links[entry.path] = entry.link
                else:
                    folders.add(entry.path)
            top = _top_folder({*files, *links, *folders})
        except SnapshotError as error:
            raise SnapshotError(f"{source}: {error}") from None
        # The top folder becomes the root, which is what absolute links of the system mean.
        self._files = {path.removeprefix(top): content for path, content in files.items()}
        self._links = {path.removeprefix(top): target for path, target in links.items()}
        folders = {path.removeprefix(top) for path in folders}
        self._names: dict[str, set[str]] = {"": set(), **{folder: set() for folder in folders}}
        for path in (*self._files, *self._links, *folders):
            above, _, name = path.rpartition("/")
            while name and name not in self._names.setdefault(above, set()):
                self._names[above].add(name)
                above, _, name = above.rpartition("/")

    def read(self, path: str) -> bytes:
        """As `FileTree.read`."""
        real = self.resolve(path)
        if real not in self._files:
            raise TreeError("Is a directory")
        return self._files[real]

    def list(self, path: str) -> list[str]:
        """As `FileTree.list`."""
        real = self.resolve(path)
        if real not in self._names:
            raise TreeError("Not a directory", missing=True)
        return sorted(self._names[real])

    def _link(self, path: str) -> str | None:
        if path in self._links:
            return self._links[path]
        if path not in self._files and path not in self._names:
            raise TreeError("No such file or directory", missing=True)
        return None


def _top_folder(paths: set[str]) -> str:
    """What comes before `sys/...` in the archive, with its slash."""
    for mark in ("sys/bus/pci/devices", "sys/class/infiniband", "sys/class/net", "sys/devices"):
        tops = {
            match[1]
            for path in paths
            if (match := re.match(rf"((?:.*?/)?){mark}(?:/|$)", path)) is not None
        }
        if len(tops) > 1:
            raise SnapshotError(
                f"it holds {len(tops)} systems ({', '.join(sorted(tops)[:3])}); give one at a time"
            )
        if tops:
            return tops.pop()
    raise SnapshotError("it holds no sys/bus/pci/devices; pack a machine's /sys")
