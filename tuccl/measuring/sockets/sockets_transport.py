"""`Mesh`: TCP connections between the ranks of the stand-in engine, on one host or several.

Through rank 0 all ranks exchange their addresses, and later synchronize before each launch. Rank 0
is reached at the address that its host's name has, the others where their connection to it came
from. Two ranks connect the first time that a collective needs it, once per channel; all channels
are served at once.

A rank that connects proves in its first message with HMAC-SHA256 that it knows the group's key;
unauthenticated connections are closed while the collective goes on (`pending_connections`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import select
import socket
import struct
from collections.abc import Mapping, Sequence

from tuccl.crew.pending_connections import ACCEPTED_AT_ONCE, MOST_WAITING, PendingConnections
from tuccl.errors import ConnectionLostError, EngineBrokenError, MessageError

_LOOPBACK = "127.0.0.1"
_BACKLOG = 256
_KEY_BYTES = 32
_PROOF_BYTES = 32
_HELLO = struct.Struct(">III")
"""Purpose, rank, then port or channel; the proof comes before it."""
_MEET, _DATA = 0, 1

Answered = tuple[int, int, int, socket.socket]
"""Purpose, rank, port or channel, and the connection of an authenticated peer."""

Views = Mapping[socket.socket, memoryview]


class Mesh:
    """Connections of one rank to the others; to be closed."""

    def __init__(self) -> None:
        self.rank = 0
        self.ranks = 1
        self._listener = socket.create_server(("", 0), backlog=_BACKLOG)
        self._pending: PendingConnections[Answered] | None = None
        self._key = b""
        self._meeting: dict[int, socket.socket] = {}
        """Connections by rank: all others on rank 0, rank 0 on the others."""
        self._addresses: list[tuple[str, int]] = []
        self._channels: dict[tuple[int, int], socket.socket] = {}
        """Connections by rank and channel."""

    def invite(self) -> bytes:
        """Create on rank 0 the id by which the other ranks join."""
        self._key = secrets.token_bytes(_KEY_BYTES)
        return self._key + struct.pack(">I", self._port) + _own_host().encode()

    def join(self, rank: int, ranks: int, group_id: bytes) -> None:
        """Connect to the other ranks.

        Raises:
            EngineBrokenError: A rank cannot be reached.
        """
        self.rank, self.ranks = rank, ranks
        self._key = group_id[:_KEY_BYTES]
        # Another rank connects all of its channels at once.
        self._pending = PendingConnections(
            self._listener, lambda end: _Hello(end, self._key), 2 * MOST_WAITING
        )
        if rank:
            self._meeting[0] = self._connect(_address_in(group_id), _MEET, self._port)
            self._addresses = [(host, port) for host, port in json.loads(self._receive(0))]
            return
        addresses = {0: _address_in(group_id)}
        while len(addresses) < ranks:
            purpose, peer, peer_port, end = self._answer()
            if purpose == _MEET:
                self._meeting[peer] = end
                addresses[peer] = (end.getpeername()[0], peer_port)
        self._addresses = [addresses[peer] for peer in range(ranks)]
        for peer in range(1, ranks):
            self._send(peer, json.dumps(self._addresses).encode())

    def meet(self) -> None:
        """Return when all ranks have called this."""
        self.share(b"")

    def share(self, content: bytes) -> list[bytes]:
        """Return the contents of all ranks, which call this at once, in the order of the ranks."""
        if self.rank:
            self._send(0, content)
            return [bytes.fromhex(own) for own in json.loads(self._receive(0))]
        contents = [content, *(self._receive(peer) for peer in range(1, self.ranks))]
        for peer in range(1, self.ranks):
            self._send(peer, json.dumps([own.hex() for own in contents]).encode())
        return contents

    def split(self, colour: int, ranks: int, rank: int) -> Mesh:
        """Return the connections of this rank to those of its colour.

        Raises:
            EngineBrokenError: A rank cannot be reached.
        """
        made = Mesh()
        shared = self.share(bytes([colour]) + (b"" if rank else made.invite()))
        (invited,) = [own[1:] for own in shared if own[0] == colour and len(own) > 1]
        made.join(rank, ranks, invited)
        return made

    def channel(self, rank: int, number: int) -> socket.socket:
        """Return a connection to another rank; both sides request it in the same collective."""
        while (rank, number) not in self._channels:
            if rank < self.rank:
                self._welcome()
                self._keep(rank, number, self._connect(self._addresses[rank], _DATA, number))
            else:
                self._admit(self._answer())
        return self._channels[rank, number]

    def close(self) -> None:
        """Close all connections."""
        if self._pending is not None:
            self._pending.close()
        for end in (*self._meeting.values(), *self._channels.values(), self._listener):
            end.close()

    @property
    def _port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def _welcome(self) -> None:
        """Accept the connections that fill the kernel's queue.

        A rank that connects now then need not retry a second later.
        """
        for _ in range(_BACKLOG // ACCEPTED_AT_ONCE + 1):
            if self._pending is not None and (found := self._pending.next(0.0)) is not None:
                self._admit(found)

    def _admit(self, answered: Answered) -> None:
        purpose, rank, number, end = answered
        if purpose == _DATA:
            self._keep(rank, number, end)
        else:
            end.close()

    def _keep(self, rank: int, number: int, end: socket.socket) -> None:
        end.setblocking(False)
        self._channels[rank, number] = end

    def _connect(self, address: tuple[str, int], purpose: int, number: int) -> socket.socket:
        try:
            end = socket.create_connection(address)
        except OSError as error:
            raise EngineBrokenError(f"cannot reach another rank: {error.strerror}") from error
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = _HELLO.pack(purpose, self.rank, number)
        try:
            end.sendall(_proof(self._key, hello) + hello)
        except OSError as error:
            raise EngineBrokenError(f"cannot reach another rank: {error.strerror}") from error
        return end

    def _answer(self) -> Answered:
        """Return the next peer that knows the key."""
        found = None if self._pending is None else self._pending.next(None)
        if found is None:
            raise EngineBrokenError("a rank that has not joined its group cannot be reached")
        return found

    def _send(self, rank: int, content: bytes) -> None:
        self._meeting[rank].sendall(struct.pack(">I", len(content)) + content)

    def _receive(self, rank: int) -> bytes:
        end = self._meeting[rank]
        length: int = struct.unpack(">I", self._exactly(end, 4))[0]
        return self._exactly(end, length)

    @staticmethod
    def _exactly(end: socket.socket, size: int) -> bytes:
        data = end.recv(size, socket.MSG_WAITALL)
        if len(data) != size:
            raise EngineBrokenError("another rank has gone")
        return data


class _Hello:
    """A `PendingConnection` that may be another rank of the group."""

    def __init__(self, end: socket.socket, key: bytes) -> None:
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._end = end
        self._key = key
        self._said = b""

    def fileno(self) -> int:
        """See `PendingConnection`."""
        return self._end.fileno()

    def read(self) -> Answered | None:
        """See `PendingConnection`."""
        missing = _PROOF_BYTES + _HELLO.size - len(self._said)
        try:
            # No more than that: what follows may be data of a collective.
            data = self._end.recv(missing)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConnectionLostError(f"connection lost: {error.strerror}") from error
        if not data:
            raise ConnectionLostError("the connection was closed")
        self._said += data
        if len(data) < missing:
            return None
        proof, hello = self._said[:_PROOF_BYTES], self._said[_PROOF_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._key, hello)):
            raise MessageError("the connection does not know the key")
        self._end.setblocking(True)
        purpose, rank, number = _HELLO.unpack(hello)
        return purpose, rank, number, self._end

    def close(self) -> None:
        """See `PendingConnection`."""
        self._end.close()


def _own_host() -> str:
    """Return the address that this host's name has; the loopback's if it is none of the host's."""
    try:
        host = socket.gethostbyname(socket.gethostname())
        socket.create_server((host, 0)).close()
    except OSError:
        return _LOOPBACK
    return host


def _address_in(group_id: bytes) -> tuple[str, int]:
    """Return the address of rank 0."""
    (port,) = struct.unpack_from(">I", group_id, _KEY_BYTES)
    return group_id[_KEY_BYTES + 4 :].decode(), port


def _proof(key: bytes, hello: bytes) -> bytes:
    return hmac.new(key, hello, hashlib.sha256).digest()


def exchange(sending: Views, receiving: Views) -> None:
    """Send and receive over non-blocking connections, all at once, until all of it is done.

    Raises:
        EngineBrokenError: Another rank has gone.
    """
    to_send = {end.fileno(): (end, view) for end, view in sending.items() if len(view)}
    to_receive = {end.fileno(): (end, view) for end, view in receiving.items() if len(view)}
    poll = select.poll()
    for number in to_send.keys() | to_receive.keys():
        poll.register(number, _events(number, to_send, to_receive))
    ready: Sequence[tuple[int, int]] = [
        (number, select.POLLIN | select.POLLOUT) for number in to_send.keys() | to_receive.keys()
    ]
    while to_send or to_receive:
        for number, events in ready:
            if events & select.POLLOUT and number in to_send:
                _move(number, to_send, send=True)
            if events & ~select.POLLOUT and number in to_receive:
                _move(number, to_receive, send=False)
            if wanted := _events(number, to_send, to_receive):
                poll.modify(number, wanted)
            else:
                poll.unregister(number)
        if to_send or to_receive:
            ready = poll.poll()


_Pending = dict[int, tuple[socket.socket, memoryview]]


def _events(number: int, to_send: _Pending, to_receive: _Pending) -> int:
    reading = select.POLLIN if number in to_receive else 0
    return reading | (select.POLLOUT if number in to_send else 0)


def _move(number: int, pending: _Pending, *, send: bool) -> None:
    end, view = pending.pop(number)
    try:
        moved = end.send(view) if send else end.recv_into(view)
    except BlockingIOError:
        pending[number] = (end, view)
        return
    except OSError as error:
        raise EngineBrokenError(f"another rank has gone: {error.strerror}") from error
    if moved == 0:
        raise EngineBrokenError("another rank has gone")
    if moved < len(view):
        pending[number] = (end, view[moved:])
