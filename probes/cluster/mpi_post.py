"""Messages between MPI ranks that never block: `Post`."""

from __future__ import annotations

import importlib
import time
from typing import Any

RANK_PAUSE_S = 0.01
"""Between two looks of a rank that waits, which leaves the cores to the measurement."""


class Post:
    """Messages of bytes, sent and received without ever blocking."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._mpi = importlib.import_module("mpi4py.MPI")
        self._sending: list[tuple[Any, bytes]] = []
        """Pending requests with their buffers, which must live as long."""
        self._receiving: dict[int, tuple[Any, int, bytearray]] = {}
        """By tag: request, source, buffer."""

    def send(self, rank: int, tag: int, data: bytes) -> None:
        """Begin to send; the bytes are kept until they have left."""
        self._sending = [(request, kept) for request, kept in self._sending if not request.Test()]
        request = self._comm.Isend([data, self._mpi.BYTE], dest=rank, tag=tag)
        self._sending.append((request, data))

    def take(self, tag: int) -> tuple[int, bytes] | None:
        """Source and content of a message that is complete; None when there is none yet."""
        if tag not in self._receiving:
            status = self._mpi.Status()
            message = self._comm.Improbe(self._mpi.ANY_SOURCE, tag, status)
            if message is None:
                return None
            buffer = bytearray(status.Get_count(self._mpi.BYTE))
            request = message.Irecv([buffer, self._mpi.BYTE])
            self._receiving[tag] = (request, status.Get_source(), buffer)
        request, source, buffer = self._receiving[tag]
        if not request.Test():
            return None
        del self._receiving[tag]
        return source, bytes(buffer)

    def wait_until_sent(self) -> None:
        """Return when everything has left."""
        while self._sending:
            self._sending = [(req, kept) for req, kept in self._sending if not req.Test()]
            time.sleep(RANK_PAUSE_S)
