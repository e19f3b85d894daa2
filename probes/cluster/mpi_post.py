"""Messages between MPI ranks that never block: `Post`."""

from __future__ import annotations

import importlib
import time
from typing import Any

RANK_PAUSE_S = 0.01
"""Polling interval of a waiting rank, which leaves the cores to the measurement."""


class Post:
    """Messages of bytes, sent and received without ever blocking."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._mpi = importlib.import_module("mpi4py.MPI")
        self._sending: list[tuple[Any, bytes]] = []
        """Pending requests with their buffers, which must stay alive."""
        self._receiving: dict[int, tuple[Any, int, bytearray]] = {}
        """Request, source and buffer, by tag."""

    def send(self, rank: int, tag: int, data: bytes) -> None:
        """Start to send; the bytes are kept until they are sent."""
        self._sending = [(request, kept) for request, kept in self._sending if not request.Test()]
        request = self._comm.Isend([data, self._mpi.BYTE], dest=rank, tag=tag)
        self._sending.append((request, data))

    def take(self, tag: int) -> tuple[int, bytes] | None:
        """Return source and content of a complete message; None if there is none yet."""
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
        """Return when all messages are sent."""
        while self._sending:
            self._sending = [(req, kept) for req, kept in self._sending if not req.Test()]
            time.sleep(RANK_PAUSE_S)
