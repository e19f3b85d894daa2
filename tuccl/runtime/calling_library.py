"""A library that stands for NCCL, for programs that look functions up in a handle of dlopen.

A preloaded library serves calls that the loader binds. vLLM, JAX and others open `libnccl.so.2`
themselves and ask the handle for each function, which finds NCCL's own. The library made here has
no function: it needs the executor and then NCCL, and `dlsym` searches a handle's library and what
it needs in that order. So the executor's functions are found first, and all others are NCCL's, of
every release, those of releases to come included.

It is an ELF file of one page, written here, so that `tuccl ship` needs no linker.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tuccl.runtime import EXECUTOR_NAME

CALLING_LIBRARY_NAME = "libtuccl-nccl.so"
"""Its name in a shipped directory: also its soname, which differs from NCCL's, so that it can need
NCCL by name, and thus have the one that a process has loaded already."""
_NEEDED_LIBRARIES = (f"$ORIGIN/{EXECUTOR_NAME}", "libnccl.so.2")
_IDENT = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)  # 64 bits, little endian, version 1.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SHARED_OBJECT = 3
_LOAD, _DYNAMIC_SEGMENT, _STACK = 1, 2, 0x6474E551
_READ_WRITE = 6  # The loader writes addresses into the dynamic section.
_LARGEST_PAGE = 0x10000
_NEEDED, _HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE, _SONAME = 1, 4, 5, 6, 10, 11, 14
_NO_SYMBOL = bytes(24)
_NO_HASHES = struct.pack("<4I", 1, 1, 0, 0)  # One bucket and one chain, both of no symbol.


def calling_library(
    beside: bytes, soname: str = CALLING_LIBRARY_NAME, needed: Sequence[str] = _NEEDED_LIBRARIES
) -> bytes:
    """Return a shared library without symbols that needs others.

    Args:
        beside: A library for the same machine.
        soname: Its name.
        needed: What it needs, in the order of search; `$ORIGIN` stands for its own folder.

    Raises:
        ValueError: `beside` is no ELF library of 64 bits, little endian.
    """
    if beside[:6] != _IDENT[:6] or len(beside) < _HEADER.size:
        raise ValueError("no ELF library of 64 bits")
    machine, flags = (
        struct.unpack_from("<H", beside, 18)[0],
        struct.unpack_from("<I", beside, 48)[0],
    )
    strings, offsets = b"\0", []
    for name in (soname, *needed):
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    at = _HEADER.size + 3 * _SEGMENT.size
    count = 1 + len(needed) + 6
    symbols_at = at + count * _DYNAMIC.size
    hashes_at = symbols_at + len(_NO_SYMBOL)
    strings_at = hashes_at + len(_NO_HASHES)
    entries = [
        *((_NEEDED, offset) for offset in offsets[1:]),
        (_SONAME, offsets[0]),
        (_HASH, hashes_at),
        (_SYMBOLS, symbols_at),
        (_SYMBOL_SIZE, len(_NO_SYMBOL)),
        (_STRINGS, strings_at),
        (_STRINGS_SIZE, len(strings)),
        (0, 0),
    ]
    dynamic = b"".join(_DYNAMIC.pack(*entry) for entry in entries)
    body = dynamic + _NO_SYMBOL + _NO_HASHES + strings
    size = at + len(body)
    segments = (
        (_LOAD, _READ_WRITE, 0, 0, 0, size, size, _LARGEST_PAGE),
        (_DYNAMIC_SEGMENT, _READ_WRITE, at, at, at, len(dynamic), len(dynamic), 8),
        (_STACK, _READ_WRITE, 0, 0, 0, 0, 0, 16),
    )
    header = _HEADER.pack(
        _IDENT, _SHARED_OBJECT, machine, 1, 0, _HEADER.size, 0, flags,
        _HEADER.size, _SEGMENT.size, len(segments), 0, 0, 0,
    )  # fmt: skip
    return header + b"".join(_SEGMENT.pack(*segment) for segment in segments) + body
