"""`RecordingFile`: a recording that is read in pieces, and decompressed if it is gzip.

What launchers and collectors wrote before its lines is taken away.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from probes.inputs.prefixes import bare_line, has_prefixes
from probes.inputs.regular_file import regular_status
from tuccl.errors import InputFileError

_GZIP = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 16
"""Length at which a line is divided: no line of calls is as long, and a file may have no lines."""


class RecordingFile:
    """A recording, open from its beginning."""

    def __init__(self, path: Path, told: Callable[[int], None] = lambda _: None) -> None:
        """Open a file.

        Args:
            path: The file.
            told: Called with the number of bytes that have been read since its last call.

        Raises:
            InputFileError: The file cannot be read.
        """
        self.path = path
        self.is_cut = False
        """Whether the file ends within its compressed data."""
        self._told = told
        self._told_bytes = 0
        self._kept = b""
        self._has_prefixes: bool | None = None
        self._line = b""
        """The beginning of a line, of a file with prefixes."""
        self._is_within_line = False
        try:
            self.size_bytes = regular_status(path).st_size
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            raise unreadable(path, error) from error
        self._raw = os.fdopen(descriptor, "rb")
        self._data: IO[bytes] | gzip.GzipFile = self._raw
        if self._raw.peek(len(_GZIP)).startswith(_GZIP):
            self._data = gzip.GzipFile(fileobj=self._raw)

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._raw.close()

    def head(self, most: int) -> bytes:
        """Return at most so many bytes of the beginning, before anything else is read."""
        while len(self._kept) < most and (piece := self._piece()):
            self._kept += piece
        return self._kept[:most]

    def read(self) -> bytes:
        """Return the next piece; empty at the end.

        Raises:
            InputFileError: The file cannot be read.
        """
        if self._kept:
            kept, self._kept = self._kept, b""
            return kept
        return self._piece()

    def lines(self) -> Iterator[bytes]:
        """Yield lines with their ends; a very long one in pieces."""
        rest = b""
        while piece := self.read():
            lines = (rest + piece).splitlines(keepends=True)
            rest = lines.pop()
            if rest.endswith(b"\n") or len(rest) > _LONGEST_LINE_BYTES:
                lines.append(rest)
                rest = b""
            yield from lines
        if rest:
            yield rest

    def _piece(self) -> bytes:
        """Return the next piece, without prefixes; empty at the end."""
        piece = self._stored_piece()
        if self._has_prefixes is None:
            self._has_prefixes = has_prefixes(piece.splitlines(keepends=True))
        if not self._has_prefixes:
            return piece
        while piece:
            bare = b"".join(self._bare_lines(piece))
            if bare:
                return bare
            piece = self._stored_piece()
        rest, self._line = self._line, b""
        return bare_line(rest)

    def _bare_lines(self, piece: bytes) -> Iterator[bytes]:
        """Yield what is known of lines without their prefixes, and keep the rest for later."""
        lines = (self._line + piece).splitlines(keepends=True)
        self._line = b""
        begins = len(lines) > 1 or not self._is_within_line
        if begins and not lines[-1].endswith(b"\n") and len(lines[-1]) <= _PIECE_BYTES:
            self._line = lines.pop()
        for line in lines:
            yield line if self._is_within_line else bare_line(line)
            self._is_within_line = not line.endswith(b"\n")

    def _stored_piece(self) -> bytes:
        try:
            piece = self._data.read1(_PIECE_BYTES)  # type: ignore[union-attr]
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.is_cut = True
            return b""
        except OSError as error:
            raise unreadable(self.path, error) from error
        now = self._raw.tell()
        self._told(now - self._told_bytes)
        self._told_bytes = now
        return bytes(piece)


def unreadable(path: Path, error: OSError) -> InputFileError:
    """Return the error of a recording that cannot be read."""
    return InputFileError(f"cannot read {path}: {error.strerror}; name a recording of a job")
