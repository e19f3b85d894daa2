"""`JsonText`: values of a long JSON text, decoded one after the other.

A trace of a gigabyte never is in memory as a whole: of its events the caller keeps what it needs.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from typing import Any

_BLANK = re.compile(r"[\s\x00\ufeff]*")
LONGEST_EVENT = 1 << 22
"""Characters beyond which an event that cannot be decoded is damaged, not merely long."""
LONGEST_VALUE = 1 << 28
"""The same of a value that is no event."""


class JsonText:
    """A JSON text and a place in it."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        """Begin at the start of a text.

        Args:
            read: Returns its next bytes; none at the end.
        """
        self._read = read
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._decoder = json.JSONDecoder(strict=False)
        self._text = ""
        self._at = 0
        self._is_whole = False
        """Whether the rest of the text is in memory."""

    def peek(self) -> str:
        """Return the next character that is not blank; empty at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = self._at if blank is None else blank.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def takes(self, character: str) -> bool:
        """Return whether this character is next, and go behind it if it is."""
        found = self.peek() == character
        self._at += found
        return found

    def value(self, longest: int = LONGEST_EVENT) -> Any:
        """Return the next value, and go behind it.

        Args:
            longest: Characters beyond which a value that cannot be decoded is damaged.

        Raises:
            ValueError: It is damaged, or the text ends within it.
        """
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                # Twice as much each time, so that a long value takes little longer to decode.
                more = len(self._text) - self._at
                if more > longest or not self._fill(more):
                    raise ValueError(str(error)) from error
                continue
            # A number may go on in the next piece.
            if end == len(self._text) and self._fill():
                continue
            self._at = end
            return value

    def skip_to(self, pattern: re.Pattern[str]) -> bool:
        """Go to the next match of a short pattern behind this character; False: there is none."""
        self._at += 1
        while (found := pattern.search(self._text, self._at)) is None:
            self._at = max(self._at, len(self._text) - 64)
            if not self._fill():
                return False
        self._at = found.start()
        return True

    def _fill(self, least: int = 1) -> bool:
        """Decode further pieces, of so many bytes if there are as many; False at the end."""
        if self._is_whole:
            return False
        pieces: list[bytes] = []
        while sum(map(len, pieces)) < least and not self._is_whole:
            pieces.append(self._read())
            self._is_whole = not pieces[-1]
        more = self._decode(b"".join(pieces), final=self._is_whole)
        self._text = self._text[self._at :] + more
        self._at = 0
        return bool(pieces[0])
