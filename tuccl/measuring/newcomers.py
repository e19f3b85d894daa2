"""Connections that have proved nothing yet: `Newcomers` hears all of them at once.

A stranger may connect, say nothing, garbage, or a byte a second. Each newcomer has a deadline of
its own, so it delays nobody; and where too many wait, the one that has waited longest is closed,
so it keeps nobody out.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from tuccl.measuring.errors import ConnectionLostError, MessageError

HANDSHAKE_S = 5.0
"""How long one may take to prove that it knows the key."""
MOST_WAITING = 128
ACCEPTED_AT_ONCE = 16
"""Then those that wait are heard again, before any more of them are closed."""

_Proved_co = TypeVar("_Proved_co", covariant=True)
_Found = TypeVar("_Found")


class Newcomer(Protocol[_Proved_co]):
    """One connection until it has proved that it knows the key."""

    def fileno(self) -> int:
        """For `poll`."""

    def hear(self) -> _Proved_co | None:
        """Read what has come; what it proved to be, None while something is missing.

        Raises:
            ConnectionLostError: It has gone.
            MessageError: It is a stranger, or of another release.
        """

    def close(self) -> None:
        """Turn it away."""


class OtherReleaseError(MessageError):
    """Part of this run, and of another release: not a stranger, whom nobody is told about."""


class Newcomers(Generic[_Found]):
    """Those who have connected to a listening socket and proved nothing; close it."""

    def __init__(
        self,
        listener: socket.socket,
        greet: Callable[[socket.socket], Newcomer[_Found]],
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """Nobody has come.

        Args:
            listener: Where they connect; whoever made it closes it.
            greet: Makes a newcomer of a connection and says the first word, if there is one.
            most_waiting: Beyond that many the oldest is closed.
        """
        listener.setblocking(False)
        self._listener = listener
        self._greet = greet
        self._most_waiting = most_waiting
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._waiting: dict[int, tuple[Newcomer[_Found], float]] = {}
        """With their deadlines, by descriptor, the oldest first."""

    def next(self, timeout_s: float | None) -> _Found | None:
        """What the next one proved; None when nobody did in time.

        Args:
            timeout_s: How long to wait; None for ever.

        Raises:
            OtherReleaseError: One knows the key and runs another release.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            ready = [number for number, _ in self._poll.poll(self._pause_ms(deadline))]
            for number in ready:
                if number in self._waiting and (found := self._hear(number)) is not None:
                    return found
            self._close_late()
            if self._listener.fileno() in ready:
                self._accept()
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def close(self) -> None:
        """Turn all of them away."""
        while self._waiting:
            self._forget(next(iter(self._waiting))).close()

    def _pause_ms(self, deadline: float | None) -> float | None:
        """Until the next deadline; None: there is none."""
        ends = [end for _, end in self._waiting.values()]
        if deadline is not None:
            ends.append(deadline)
        if not ends:
            return None
        left_s = min(ends) - time.monotonic()
        return left_s * 1e3 + 1 if left_s > 0 else 0.0

    def _hear(self, number: int) -> _Found | None:
        newcomer, _ = self._waiting[number]
        try:
            found = newcomer.hear()
        except (ConnectionLostError, MessageError) as error:
            self._forget(number).close()
            if isinstance(error, OtherReleaseError):
                raise
            return None
        if found is not None:
            self._forget(number)
        return found

    def _close_late(self) -> None:
        now = time.monotonic()
        for number in [number for number, (_, end) in self._waiting.items() if end <= now]:
            self._forget(number).close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                end, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # No descriptor is left.
                if not self._waiting:
                    raise
                self._forget(next(iter(self._waiting))).close()
                return
            if len(self._waiting) >= self._most_waiting:
                self._forget(next(iter(self._waiting))).close()
            try:
                newcomer = self._greet(end)
            except (ConnectionLostError, OSError):  # It has gone already.
                with suppress(OSError):
                    end.close()
                continue
            self._waiting[newcomer.fileno()] = (newcomer, time.monotonic() + HANDSHAKE_S)
            self._poll.register(newcomer.fileno(), select.POLLIN)

    def _forget(self, number: int) -> Newcomer[_Found]:
        newcomer, _ = self._waiting.pop(number)
        self._poll.unregister(number)
        return newcomer
