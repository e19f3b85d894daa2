"""`FileTree`: a system's files, read from a live root directory or from a snapshot of it.

Paths are relative to the root and have no leading slash: `sys/bus/pci/devices`. Links are resolved
here, not by the kernel, so that an absolute link of another machine stays inside its own tree, and
a loop of links ends. Snapshots stay in memory; nothing is written to disk.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import posixpath
import re
import tarfile
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from tuccl.errors import MachineError, TreeError

MAX_ARCHIVE_BYTES = 256 << 20
"""Unpacked size above which an archive is refused."""
MAX_MEMBERS = 200_000
"""Files of an archive above which it is refused."""
MAX_FILE_BYTES = 1 << 20
"""Bytes read of a file; values of sysfs fit in a page."""


def _inside(name: str) -> str:
    """Convert a member's name to a path below the root of the archive; empty outside of it."""
    path = name.removeprefix("./").strip("/")
    return "" if {"", ".", ".."} & set(path.split("/")) else path


def _uncompressed(file: io.BytesIO) -> io.BufferedIOBase:
    return file


_OPENERS: tuple[tuple[bytes, Callable[[io.BytesIO], io.BufferedIOBase]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
"""Openers by the first bytes of the archive."""


def _decompress(data: bytes) -> bytes:
    opener = next((opener for magic, opener in _OPENERS if data.startswith(magic)), _uncompressed)
    try:
        with opener(io.BytesIO(data)) as file:
            plain = file.read(MAX_ARCHIVE_BYTES + 1)
    except EOFError:
        raise MachineError("it is cut short; copy it again") from None
    except (OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise MachineError(f"it is damaged ({error!s:.80}); copy it again") from None
    if len(plain) > MAX_ARCHIVE_BYTES:
        raise MachineError(
            f"it holds more than {MAX_ARCHIVE_BYTES >> 20} MiB; pack sys/bus/pci, sys/devices, "
            "sys/class/net, sys/class/infiniband and proc/cpuinfo only"
        )
    return plain


def _members(plain: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Iterate over members, with the contents of regular files."""
    stream = io.BytesIO(plain)
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_MEMBERS:
                    raise MachineError(
                        f"it holds more than {MAX_MEMBERS:,} files; pack less of /sys"
                    )
                content = b""
                if member.isreg() and not member.issparse():
                    file = archive.extractfile(member)
                    content = file.read(MAX_FILE_BYTES) if file else b""
                yield member, content
            end = archive.offset
    except (tarfile.TarError, OSError, ValueError, OverflowError, EOFError, KeyError) as error:
        raise MachineError(
            f"it is damaged or no tar archive ({error!s:.80}); copy it again"
        ) from None
    # tarfile takes a damaged header for the end; the true end is a block of zeros.
    if plain[end : end + tarfile.BLOCKSIZE] != bytes(tarfile.BLOCKSIZE):
        raise MachineError("it is cut short or damaged; copy it again")


MAX_LINKS = 40
"""Links resolved in one path before it counts as a loop, as in Linux."""

_PIECE_BYTES = 1 << 16
_MAX_CACHED_LINKS = 65_536


class FileTree(ABC):
    """Read access to the files of a system."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the contents of a file, up to `MAX_FILE_BYTES`.

        Raises:
            TreeError: the file does not exist or cannot be read.
        """

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted.

        Raises:
            TreeError: the path does not exist, cannot be read or is not a folder.
        """

    @abstractmethod
    def _link(self, path: str) -> str | None:
        """Return the target of a symbolic link, or None if the path is not one.

        No parent of the path may be a link.
        """

    def resolve(self, path: str) -> str:
        """Return the path without links.

        Raises:
            TreeError: the path does not exist, or its links form a loop.
        """
        resolved, followed = "", 0
        pending = deque((component, False) for component in path.split("/"))
        while pending:
            component, of_link = pending.popleft()
            if component in {"", "."}:
                continue
            if component == "..":
                resolved = resolved.rpartition("/")[0]
                continue
            path_so_far = f"{resolved}/{component}" if resolved else component
            target = self._target(path_so_far, of_link=of_link)
            if target is None:
                resolved = path_so_far
                continue
            followed += 1
            if followed > MAX_LINKS:
                raise TreeError("its links form a loop")
            if target.startswith("/"):
                resolved = ""
            pending.extendleft((component, True) for component in reversed(target.split("/")))
        return resolved

    def _target(self, path: str, *, of_link: bool) -> str | None:
        try:
            return self._link(path)
        except TreeError as error:
            if of_link and error.missing:
                raise TreeError("its link leads nowhere") from None
            raise


class DirectoryTree(FileTree):
    """The files below a root directory, `/` for this machine."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._links: dict[str, str | None] = {}

    def read(self, path: str) -> bytes:
        """As `FileTree.read`."""
        real = self.resolve(path)
        try:
            # Pipes and devices in the tree must not block.
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
        if len(self._links) > _MAX_CACHED_LINKS:
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
    """Read up to the limit; files of proc come in several pieces."""
    content = b""
    while len(content) < MAX_FILE_BYTES and (piece := os.read(number, _PIECE_BYTES)):
        content += piece
    return content[:MAX_FILE_BYTES]


def _tree_error(error: OSError) -> TreeError:
    missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
    return TreeError(error.strerror or "cannot be read", missing=missing)


class TarTree(FileTree):
    """A tar archive, plain or compressed (gzip, bzip2, xz), with the system's root at any level."""

    def __init__(self, data: bytes, source: str = "archive") -> None:
        """Read the archive; devices, pipes and names outside of it are ignored.

        Raises:
            MachineError: not an archive, cut short, too big, or without exactly one sysfs.
        """
        files: dict[str, bytes] = {}
        links: dict[str, str] = {}
        folders: set[str] = set()
        try:
            for member, content in _members(_decompress(data)):
                path = _inside(member.name)
                if path and member.isreg():
                    files[path] = content
                elif path and member.issym():
                    links[path] = member.linkname
                elif path and member.islnk():
                    # A hard link to an earlier file; relative, so that it stays inside the archive.
                    target = member.linkname.removeprefix("./").strip("/") or "."
                    links[path] = posixpath.relpath(target, posixpath.dirname(path))
                elif path and member.isdir():
                    folders.add(path)
            top = _top_folder({*files, *links, *folders})
        except MachineError as error:
            raise MachineError(f"{source}: {error}") from None
        # The top folder becomes the root, to which absolute links refer.
        self._files = {path.removeprefix(top): content for path, content in files.items()}
        self._links = {path.removeprefix(top): target for path, target in links.items()}
        folders = {path.removeprefix(top) for path in folders}
        self._names: dict[str, set[str]] = {"": set(), **{folder: set() for folder in folders}}
        for path in (*self._files, *self._links, *folders):
            parent, _, name = path.rpartition("/")
            while name and name not in self._names.setdefault(parent, set()):
                self._names[parent].add(name)
                parent, _, name = parent.rpartition("/")

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
    """Return the path before `sys/...` in the archive, with its slash."""
    for mark in ("sys/bus/pci/devices", "sys/class/infiniband", "sys/class/net", "sys/devices"):
        tops = {
            match[1]
            for path in paths
            if (match := re.match(rf"((?:.*?/)?){mark}(?:/|$)", path)) is not None
        }
        if len(tops) > 1:
            raise MachineError(
                f"it holds {len(tops)} systems ({', '.join(sorted(tops)[:3])}); give one at a time"
            )
        if tops:
            return tops.pop()
    raise MachineError("it holds no sys/bus/pci/devices; pack a machine's /sys")
