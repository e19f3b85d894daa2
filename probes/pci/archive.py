"""The members of a tar archive, read in memory with limits of size and number."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tuccl.errors import MachineError

MAX_ARCHIVE_BYTES = 256 << 20
"""Unpacked size above which an archive is refused."""
MAX_MEMBERS = 200_000
"""Files of an archive above which it is refused."""
_MAX_CONTENT_BYTES = 1 << 20
"""Bytes kept of one file; values of sysfs fit in a page."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A file (its content), a link (its target) or, with neither, a folder."""

    path: str
    content: bytes | None = None
    link: str | None = None


def is_plain(path: str) -> bool:
    """Whether a path only descends."""
    return bool(path) and not {"", ".", ".."} & set(path.split("/"))


def archive_entries(data: bytes) -> Iterator[ArchiveEntry]:
    """Iterate over the entries of an archive, plain or compressed by gzip, bzip2 or xz.

    Devices, pipes and names outside of it are skipped.

    Raises:
        MachineError: not an archive, cut short, or too big; the message lacks the archive's name.
    """
    for member, content in _members(_decompress(data)):
        path = _inside(member.name)
        if not is_plain(path):
            continue
        if member.isreg():
            yield ArchiveEntry(path, content=content)
        elif member.issym():
            yield ArchiveEntry(path, link=member.linkname)
        elif member.islnk():
            # A hard link to an earlier file; relative, so that it stays inside the archive.
            target = posixpath.relpath(_inside(member.linkname) or ".", posixpath.dirname(path))
            yield ArchiveEntry(path, link=target)
        elif member.isdir():
            yield ArchiveEntry(path)


def _inside(name: str) -> str:
    """Convert a member's name to a path below the root of the archive."""
    return name.removeprefix("./").strip("/")


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
                    content = file.read(_MAX_CONTENT_BYTES) if file else b""
                yield member, content
            end = archive.offset
    except (tarfile.TarError, OSError, ValueError, OverflowError, EOFError, KeyError) as error:
        raise MachineError(
            f"it is damaged or no tar archive ({error!s:.80}); copy it again"
        ) from None
    # tarfile takes a damaged header for the end; the true end is a block of zeros.
    if plain[end : end + tarfile.BLOCKSIZE] != bytes(tarfile.BLOCKSIZE):
        raise MachineError("it is cut short or damaged; copy it again")
