"""`read_elf`, `needed_by`: what a shared library defines and needs, read without loading it."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from probes.inputs.regular_file import read_regular_file

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NEED = struct.Struct("<HHIII")
_NEED_VERSION = struct.Struct("<IHHII")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_IDENT = b"\x7fELF\x02\x01"
_DYNAMIC_SYMBOLS, _NEEDED_VERSIONS = 11, 0x6FFFFFFE
"""Types of sections: SHT_DYNSYM, SHT_GNU_verneed."""
_LOAD, _DYNAMIC = 1, 2
"""Types of segments: PT_LOAD, PT_DYNAMIC."""
_NEEDED, _STRINGS = 1, 5
"""Tags of the dynamic segment: DT_NEEDED, DT_STRTAB."""
_MOST_SECTIONS, _MOST_VERSIONS = 1000, 1000
"""Bounds for damaged files; a library has about thirty of each."""
_MOST_ENTRIES, _LONGEST_NAME = 1000, 4096
_Read = Callable[[int, int], bytes]
"""Returns so many bytes from a place of a file on, fewer where it ends."""
_MACHINES = {62: "x86_64", 183: "aarch64", 21: "ppc64le"}
_C_LIBRARY = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ElfLibrary:
    """A shared library."""

    machine: str
    """As `uname -m` names it; empty for one without a name here."""
    symbols: frozenset[str]
    """Names of the symbols that it defines."""
    versions: frozenset[str]
    """Versions that it needs of other libraries, as `GLIBC_2.34`."""

    @property
    def c_library(self) -> tuple[int, int]:
        """The newest version of the C library that is needed."""
        found = (_C_LIBRARY.fullmatch(version) for version in self.versions)
        return max(((int(match[1]), int(match[2])) for match in found if match), default=(0, 0))


def read_elf(path: Path) -> ElfLibrary:
    """Read a shared library.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no shared library of 64 bits, or damaged.
    """
    data = read_regular_file(path)
    try:
        return _parsed(data)
    except (struct.error, ValueError, IndexError) as error:
        raise ValueError(f"damaged ({error})") from error


def needed_by(path: Path) -> tuple[str, ...]:
    """Return the names of the libraries that a library needs, in order.

    Reads the parts of the file that have them: libraries of a GB are common.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no shared library of 64 bits, or damaged.
    """
    with path.open("rb") as file:

        def read(at: int, length: int) -> bytes:
            return os.pread(file.fileno(), length, at)

        try:
            return tuple(_needed_names(read))
        except (struct.error, OverflowError, ValueError, StopIteration) as error:
            raise ValueError(f"damaged ({error})") from error


def _needed_names(read: _Read) -> Iterator[str]:
    """Yield them by the segments, which the loader reads; sections may have been stripped."""
    ident, _, _, _, _, at, _, _, _, size, count, _, _, _ = _HEADER.unpack_from(
        read(0, _HEADER.size)
    )
    if not ident.startswith(_IDENT) or size != _SEGMENT.size:
        raise ValueError("no shared library of 64 bits")
    segments = list(_SEGMENT.iter_unpack(read(at, count * size)))
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == _DYNAMIC:
            entries = read(offset, min(length // _ENTRY.size, _MOST_ENTRIES) * _ENTRY.size)
            tags = list(_ENTRY.iter_unpack(entries))
            names_at = _place(segments, next(value for tag, value in tags if tag == _STRINGS))
            names = (value for tag, value in tags if tag == _NEEDED)
            yield from (_text(read(names_at + name, _LONGEST_NAME), 0) for name in names)


def _place(segments: list[tuple[int, ...]], address: int) -> int:
    """Return where the file has what is loaded at an address."""
    for kind, _, offset, start, _, length, _, _ in segments:
        if kind == _LOAD and start <= address < start + length:
            return address - start + offset
    raise ValueError("its names are not loaded")


def _parsed(data: bytes) -> ElfLibrary:
    ident, _, machine, _, _, _, sections_at, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
    if not ident.startswith(_IDENT) or size != _SECTION.size:
        raise ValueError("no shared library of 64 bits")
    places = range(sections_at, sections_at + min(count, _MOST_SECTIONS) * size, size)
    sections = [_SECTION.unpack_from(data, place) for place in places]
    # The first of each type counts; a library has one.
    by_type = {found[1]: found for found in reversed(sections)}
    symbols: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    if (found := by_type.get(_DYNAMIC_SYMBOLS)) is not None:
        texts, (offset, length) = _texts(data, sections, found), found[4:6]
        records = _SYMBOL.iter_unpack(data[offset : offset + length // 24 * 24])
        symbols = frozenset(_text(texts, record[0]) for record in records if record[3] != 0)
    if (found := by_type.get(_NEEDED_VERSIONS)) is not None:
        needed = _needed(data, found[4], found[7], _texts(data, sections, found))
        versions = frozenset(islice(needed, _MOST_VERSIONS))
    return ElfLibrary(_MACHINES.get(machine, ""), symbols, versions)


def _texts(data: bytes, sections: list[tuple[int, ...]], of: tuple[int, ...]) -> bytes:
    """Return the names that a section refers to."""
    offset, length = sections[of[6]][4:6]
    return data[offset : offset + length]


def _needed(data: bytes, at: int, count: int, texts: bytes) -> Iterator[str]:
    for _ in range(count):
        _, versions, _, first, following = _NEED.unpack_from(data, at)
        place = at + first
        for _ in range(versions):
            _, _, _, name, step = _NEED_VERSION.unpack_from(data, place)
            yield _text(texts, name)
            place += step
        if not following:
            return
        at += following


def _text(texts: bytes, at: int) -> str:
    return texts[at : texts.index(b"\0", at)].decode() if at < len(texts) else ""
