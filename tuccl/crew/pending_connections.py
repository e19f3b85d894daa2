"""Unauthenticated connections: `PendingConnections` reads from all of them at once.

A peer without the key may send nothing, garbage, or a byte a second. Each connection has its own
deadline, so it delays no other; beyond the largest number the oldest is closed, so that none is
kept out.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from tuccl.errors import ConnectionLostError, MessageError, OtherReleaseError

HANDSHAKE_S = 5.0
"""Time in which a connection has to prove that it knows the key."""
MOST_WAITING = 128
ACCEPTED_AT_ONCE = 16
"""Connections accepted before the pending ones are read again."""

_Proved_co = TypeVar("_Proved_co", covariant=True)
_Found = TypeVar("_Found")


class PendingConnection(Protocol[_Proved_co]):
    """A connection that has not proved yet that it knows the key."""

    def fileno(self) -> int:
        """Return the descriptor for `poll`."""

    def read(self) -> _Proved_co | None:
        """Read what has arrived; return the peer once its proof is complete.

        Raises:
            ConnectionLostError: The peer has closed the connection.
            MessageError: The proof is wrong, or the peer runs another release.
        """

    def close(self) -> None:
        """Close the connection."""


class PendingConnections(Generic[_Found]):
    """The unauthenticated connections of a listening socket; to be closed."""

    def __init__(
        self,
        listener: socket.socket,
        open_pending: Callable[[socket.socket], PendingConnection[_Found]],
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """Start without connections.

        Args:
            listener: Socket that accepts connections; the caller closes it.
            open_pending: Wraps an accepted socket and sends the first message, if there is one.
            most_waiting: Largest number of pending connections; beyond it the oldest is closed.
        """
        listener.setblocking(False)
        self._listener = listener
        self._open_pending = open_pending
        self._most_waiting = most_waiting
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._waiting: dict[int, tuple[PendingConnection[_Found], float]] = {}
        """Connections and their deadlines by descriptor, the oldest first."""

    def next(self, timeout_s: float | None) -> _Found | None:
        """Return the next authenticated peer; None if there is none in time.

        Args:
            timeout_s: Time to wait; without limit if None.

        Raises:
            OtherReleaseError: A peer knows the key and runs another release.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            ready = [number for number, _ in self._poll.poll(self._pause_ms(deadline))]
            for number in ready:
                if number in self._waiting and (found := self._read(number)) is not None:
                    return found
            self._close_late()
            if self._listener.fileno() in ready:
                self._accept()
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def close(self) -> None:
        """Close all of them."""
        while self._waiting:
            self._forget(next(iter(self._waiting))).close()

    def _pause_ms(self, deadline: float | None) -> float | None:
        """Return the time to the next deadline, None without one."""
        ends = [end for _, end in self._waiting.values()]
        if deadline is not None:
            ends.append(deadline)
        if not ends:
            return None
        left_s = min(ends) - time.monotonic()
        return left_s * 1e3 + 1 if left_s > 0 else 0.0

    def _read(self, number: int) -> _Found | None:
        connection, _ = self._waiting[number]
        try:
            found = connection.read()
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
                connection = self._open_pending(end)
            except (ConnectionLostError, OSError):  # The peer has closed it already.
                with suppress(OSError):
                    end.close()
                continue
            self._waiting[connection.fileno()] = (connection, time.monotonic() + HANDSHAKE_S)
            self._poll.register(connection.fileno(), select.POLLIN)

    def _forget(self, number: int) -> PendingConnection[_Found]:
        connection, _ = self._waiting.pop(number)
        self._poll.unregister(number)
        return connection
