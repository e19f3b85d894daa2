"""A terminal for tests: a pseudo terminal, and the screen that its output makes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CODE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Screen:
    """Rows as a terminal shows them that folds its lines when it becomes narrower."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows = [""]
        self.row = self.column = 0
        self.cursor_is_visible = True

    def show(self, text: str) -> None:
        """Take output."""
        at = 0
        while at < len(text):
            if match := _CODE.match(text, at):
                self._control(match[1], match[2])
                at = match.end()
                continue
            assert text[at] != "\x1b", text[at : at + 20]
            self._put(text[at])
            at += 1

    def _control(self, given: str, kind: str) -> None:
        if kind == "A":
            self.row = max(0, self.row - int(given or 1))
        elif kind == "K":
            assert given == "2", "the whole line"
            self.rows[self.row] = ""
        elif kind in "hl":
            assert given == "?25", "no mode but the cursor's"
            self.cursor_is_visible = kind == "h"
        else:
            assert kind == "m", kind

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
            return
        if character == "\n":
            self.row += 1
        elif self.column < self.columns:
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
            self.column += 1
            return
        else:
            self.row, self.column = self.row + 1, 0
            self._grow()
            self._put(character)
            return
        self._grow()

    def _grow(self) -> None:
        while len(self.rows) <= self.row:
            self.rows.append("")

    def resize(self, columns: int) -> None:
        """Fold the rows that are longer; the cursor stays in the last one."""
        assert self.row == len(self.rows) - 1
        folded = [
            row[at : at + columns]
            for row in self.rows
            for at in range(0, max(1, len(row)), columns)
        ]
        self.rows, self.columns = folded, columns
        self.row = len(folded) - 1
        self.column = len(folded[-1])

    @property
    def lines(self) -> list[str]:
        """Rows up to the last one that is not empty."""
        rows = [row.rstrip() for row in self.rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows


class Terminal:
    """A pseudo terminal whose output is read while it is written."""

    def __init__(self, columns: int, rows: int) -> None:
        self._leader, self.follower = pty.openpty()
        self.resize(columns, rows)
        self._found = b""
        self._changed = threading.Condition()
        self._hung_up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.follower, termios.TIOCSWINSZ, size)

    def _read(self) -> None:
        found = b"-"
        while found and not self._hung_up.is_set():
            if not select.select([self._leader], [], [], 0.02)[0]:
                continue
            try:
                found = os.read(self._leader, 1 << 16)
            except OSError:  # All that write have closed it.
                found = b""
            with self._changed:
                self._found += found
                self._changed.notify_all()
        os.close(self._leader)

    def wait_for(self, text: str, times: int = 1, limit_s: float = 60.0) -> None:
        """Wait until it was written so many times."""

        def is_there() -> bool:
            return self._found.count(text.encode()) >= times

        with self._changed:
            assert self._changed.wait_for(is_there, limit_s), self.text

    @property
    def text(self) -> str:
        """All that was written so far."""
        return self._found.decode()

    def mark(self) -> str:
        """Return all that was written, once nothing has come for a tenth of a second."""
        with self._changed:
            while self._changed.wait(0.1):
                pass
            return self.text

    def hang_up(self) -> None:
        """Let the terminal go away, so that writing to it fails."""
        self._hung_up.set()
        self._reader.join(60.0)

    def ended(self) -> str:
        """Return all that was written; whoever else writes has closed it."""
        if self.follower >= 0:
            os.close(self.follower)
            self.follower = -1
        self._reader.join(60.0)
        return self.text


@contextmanager
def terminal(columns: int, rows: int) -> Iterator[Terminal]:
    """Open a terminal, which the block may end."""
    opened = Terminal(columns, rows)
    try:
        yield opened
    finally:
        opened.hang_up()
        opened.ended()
