"""The collectives of the stand-in engine: ring and tree over a `Mesh`, in NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.errors import EngineBrokenError
from tuccl.measuring.sockets.sockets_transport import Mesh, exchange

Array = NDArray[Any]
_LEAST_BYTES_PER_CHANNEL = 1024
_FLAG = 0x7C
_LINES = {NcclProtocol.LL: (8, 4), NcclProtocol.LL128: (128, 120)}
"""Bytes of a line on the wire, and bytes of data in it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of a call."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    nchannels: int


@dataclass(frozen=True, slots=True)
class Collectives:
    """One rank's side of the collectives; all ranks call the same one with the same choice."""

    mesh: Mesh
    """Connections to all ranks, already joined."""
    slot_bytes: int
    """Size of a transfer under Simple."""

    def ring(self, data: Array, choice: Choice) -> None:
        """Sum over all ranks, in place."""
        parts = np.array_split(data, self.mesh.ranks)
        self.scatter(parts, choice)
        self.gather(parts, choice)

    def scatter(self, parts: list[Array], choice: Choice) -> None:
        """Sum parts along the ring; each rank ends with its own part complete."""
        rank, ranks = self.mesh.rank, self.mesh.ranks
        for step in range(ranks - 1):
            incoming = parts[(rank - step - 2) % ranks]
            received = np.empty_like(incoming)
            outgoing = parts[(rank - step - 1) % ranks]
            self._shift(outgoing, received, choice)
            incoming += received

    def gather(self, parts: list[Array], choice: Choice) -> None:
        """Forward parts along the ring until all ranks have all parts."""
        rank, ranks = self.mesh.rank, self.mesh.ranks
        for step in range(ranks - 1):
            outgoing, incoming = parts[(rank - step) % ranks], parts[(rank - step - 1) % ranks]
            self._shift(outgoing, incoming, choice)

    def _shift(self, outgoing: Array, incoming: Array, choice: Choice) -> None:
        rank, ranks = self.mesh.rank, self.mesh.ranks
        sent, received = {(rank + 1) % ranks: outgoing}, {(rank - 1) % ranks: incoming}
        self._transfer(sent, received, choice)

    def tree(self, data: Array, choice: Choice) -> None:
        """Sum over all ranks, in place: up a binary tree, then down it."""
        rank = self.mesh.rank
        children = [c for c in (2 * rank + 1, 2 * rank + 2) if c < self.mesh.ranks]
        parent = [(rank - 1) // 2] if rank else []
        received = {child: np.empty_like(data) for child in children}
        self._transfer({}, received, choice)
        for summand in received.values():
            data += summand
        self._transfer(dict.fromkeys(parent, data), {}, choice)
        self._transfer({}, dict.fromkeys(parent, data), choice)
        self._transfer(dict.fromkeys(children, data), {}, choice)

    def _transfer(
        self, outgoing: Mapping[int, Array], incoming: Mapping[int, Array], choice: Choice
    ) -> None:
        """Send to some ranks and receive from others at once."""
        if choice.protocol is NcclProtocol.SIMPLE:
            self._transfer_on_request(outgoing, incoming, choice)
            return
        line, data = _LINES[choice.protocol]
        packed = {rank: _packed(array, line, data) for rank, array in outgoing.items()}
        unpacked = {
            rank: np.empty((ceil(array.nbytes / data), line), np.uint8)
            for rank, array in incoming.items()
        }
        exchange(self._views(packed, choice), self._views(unpacked, choice))
        for rank, array in incoming.items():
            _unpack(unpacked[rank], array, data)

    def _transfer_on_request(
        self, outgoing: Mapping[int, Array], incoming: Mapping[int, Array], choice: Choice
    ) -> None:
        sending, receiving = self._views(outgoing, choice), self._views(incoming, choice)
        most = max((len(view) for view in (*sending.values(), *receiving.values())), default=0)
        for start in range(0, most, self.slot_bytes):
            end = start + self.slot_bytes
            out = {s: view[start:end] for s, view in sending.items() if len(view) > start}
            into = {s: view[start:end] for s, view in receiving.items() if len(view) > start}
            requests = {connection: memoryview(bytearray(1)) for connection in out}
            exchange(dict.fromkeys(into, memoryview(b"?")), requests)
            exchange(out, into)

    def _views(self, arrays: Mapping[int, Array], choice: Choice) -> dict[Any, memoryview]:
        """Return the bytes by connection: the share of each channel of each rank."""
        views = {}
        for rank, array in arrays.items():
            content = array.reshape(-1).view(np.uint8).data
            used = min(choice.nchannels, max(1, ceil(len(content) / _LEAST_BYTES_PER_CHANNEL)))
            share = ceil(len(content) / used)
            for number in range(used):
                part = content[number * share : (number + 1) * share]
                views[self.mesh.channel(rank, number)] = part
        return views


def _packed(array: Array, line: int, data: int) -> Array:
    """Return lines of data followed by flags."""
    lines = np.full((ceil(array.nbytes / data), line), _FLAG, np.uint8)
    content = array.reshape(-1).view(np.uint8)
    whole = len(content) // data
    lines[:whole, :data] = content[: whole * data].reshape(whole, data)
    lines[whole:, : len(content) - whole * data] = content[whole * data :]
    return lines


def _unpack(lines: Array, array: Array, data: int) -> None:
    if np.any(lines[:, data:] != _FLAG):
        raise EngineBrokenError("a line arrived without its flags")
    array.reshape(-1).view(np.uint8)[:] = lines[:, :data].reshape(-1)[: array.nbytes]
