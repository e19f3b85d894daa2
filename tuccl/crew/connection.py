"""Messages of bytes over TCP or a pair of pipes: `Connection`, and `Listener` for those with a key.

A message is its length (4 bytes, big endian) and its content. Before the first message over TCP
both sides prove that they know the key of this run (HMAC-SHA256 of the other's nonce) and name
their release, so that other connections to the port are closed, and a host with another release is
named. All unauthenticated connections are read at once (`pending_connections`).

Over pipes, which a launcher such as ssh connects, a process first writes a mark with its release: a
login shell may have written a greeting before it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from tuccl import __version__
from tuccl.crew.pending_connections import (
    HANDSHAKE_S,
    MOST_WAITING,
    PendingConnections,
)
from tuccl.errors import ConnectionLostError, MessageError, OtherReleaseError

VERSION = f"TuCCL {__version__}, crew 1"
_LENGTH = struct.Struct(">I")
_MAX_BYTES = 64 << 20
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_GREETING_BYTES = 1 << 16
"""Most bytes that an unauthenticated connection may send."""
_MARK, _MARK_END = b"\0TuCCL\0", b"\0\n"
"""Around the release that a process writes to a pipe before its first message."""
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 6}
"""A silent host is lost after 70 s; with the kernel's own interval and count after 11 minutes."""
_TRIES = 4
"""Tries if a process listens: other pending connections may have displaced this one."""
_PAUSE_S = 0.25

Address = tuple[str, int]


class Connection:
    """One end of a connection; to be closed."""

    def __init__(self, reader: socket.socket | IO[bytes], writer: IO[bytes] | None = None) -> None:
        """Take a socket, or the two pipes to and from a process.

        Args:
            reader: A socket, or the pipe to read from.
            writer: The pipe to write to; the socket if left out.
        """
        self._reader, self._writer = reader, writer or reader
        self._received = bytearray()
        self._awaits_mark = False
        self.is_tcp = isinstance(reader, socket.socket) and reader.family == socket.AF_INET
        if isinstance(reader, socket.socket) and self.is_tcp:
            reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A host that is switched off does not close its connections: the kernel asks after it.
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                reader.setsockopt(socket.IPPROTO_TCP, option, value)

    @classmethod
    def behind_launcher(cls, reader: IO[bytes], writer: IO[bytes]) -> Connection:
        """Return the leader's end of the pipes to a process that greets by `greet_over_pipe`."""
        made = cls(reader, writer)
        made._awaits_mark = True
        return made

    def fileno(self) -> int:
        """Return the descriptor for `poll`."""
        return self._reader.fileno()

    @property
    def peer(self) -> Address:
        """Address of the peer; of a socket."""
        if not isinstance(self._reader, socket.socket):
            raise TypeError("pipes have no address")
        host, port = self._reader.getpeername()[:2]
        return host, port

    def send(self, content: bytes) -> None:
        """Send one message.

        Raises:
            ConnectionLostError: The peer has closed the connection.
        """
        self._write(_LENGTH.pack(len(content)) + content)

    def receive(self, timeout_s: float | None = None, most_bytes: int = _MAX_BYTES) -> bytes:
        """Return the next message.

        Args:
            timeout_s: Time to wait; without limit if left out.
            most_bytes: Largest size of a message.

        Raises:
            ConnectionLostError: The peer has closed the connection, or is late.
            MessageError: The peer sent no message.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        while (content := self.take_ready(most_bytes)) is None:
            left_ms = None if deadline is None else max(deadline - time.monotonic(), 1e-3) * 1e3
            if not poll.poll(left_ms):
                raise ConnectionLostError(f"no message within {timeout_s:g} s")
            self._read()
        return content

    def read_ready(self, most_bytes: int = _MAX_BYTES) -> bytes | None:
        """Read the data that `poll` reports; return a message once it is complete.

        Args:
            most_bytes: Largest size of a message.

        Raises:
            ConnectionLostError: The peer has closed the connection.
            MessageError: The peer sent no message.
        """
        self._read()
        return self.take_ready(most_bytes)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        self._reader.close()

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._writer.fileno(), data) :]
        except (OSError, ValueError) as error:
            raise ConnectionLostError(f"cannot send: {_words(error)}") from error

    def _read(self) -> None:
        try:
            data = os.read(self._reader.fileno(), 1 << 16)
        except (OSError, ValueError) as error:
            raise ConnectionLostError(f"connection lost: {_words(error)}") from error
        if not data:
            raise ConnectionLostError("the connection was closed")
        self._received += data
        if self._awaits_mark:
            self._skip_to_mark()

    def _skip_to_mark(self) -> None:
        """Drop a login shell's greeting, and the mark once it is complete.

        Raises:
            OtherReleaseError: The peer runs another release.
        """
        begin = self._received.find(_MARK)
        if begin < 0:
            del self._received[: -len(_MARK)]
            return
        end = self._received.find(_MARK_END, begin + len(_MARK))
        if end < 0:
            return
        theirs = self._received[begin + len(_MARK) : end].decode(errors="replace")
        del self._received[: end + len(_MARK_END)]
        self._awaits_mark = False
        if theirs != VERSION:
            raise OtherReleaseError(
                f"it runs {theirs:.60}, this side {VERSION}: install the same release on both"
            )

    def take_ready(self, most_bytes: int = _MAX_BYTES) -> bytes | None:
        """Return a further message that has been read; None if none is complete."""
        if self._awaits_mark or len(self._received) < _LENGTH.size:
            return None
        length: int = _LENGTH.unpack_from(self._received)[0]
        if length > most_bytes:
            raise MessageError(f"a message of {length:,} bytes is none of TuCCL's")
        end = _LENGTH.size + length
        if len(self._received) < end:
            return None
        content = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return content


def greet_over_pipe(connection: Connection) -> None:
    """Write the mark after which messages begin."""
    connection._write(_MARK + VERSION.encode() + _MARK_END)


def _words(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


@dataclass(frozen=True, slots=True)
class Greeting:
    """The role and number that a connecting process sends."""

    role: str
    """`worker` or `host`."""
    number: int
    text: str = ""


class Listener:
    """The leader's socket for workers; to be closed."""

    def __init__(
        self,
        host: str,
        addresses: Sequence[str],
        most_waiting: int = MOST_WAITING,
        port: int = 0,
        key: bytes = b"",
    ) -> None:
        """Listen.

        Args:
            host: Address to bind to; empty: all interfaces.
            addresses: Addresses for other processes, best first.
            most_waiting: Largest number of pending connections; beyond it the oldest is closed.
            port: Where to listen; 0: at a free port.
            key: Key of the run; empty: a new one.

        Raises:
            OSError: The port is in use.
        """
        self.key = key or secrets.token_bytes(32)
        self._socket = socket.create_server((host, port), backlog=most_waiting)
        self._pending = PendingConnections(
            self._socket, lambda end: _Joining(Connection(end), self.key), most_waiting
        )
        self._others: list[tuple[Connection, Greeting]] = []
        """Peers that nobody has asked for yet."""
        port = self._socket.getsockname()[1]
        self.addresses: tuple[Address, ...] = tuple((address, port) for address in addresses)

    def accept(
        self, timeout_s: float, wanted: Callable[[Greeting], bool] = lambda _: True
    ) -> tuple[Connection, Greeting] | None:
        """Return the next peer that knows the key; None if there is none in time.

        Args:
            timeout_s: Time to wait for a peer.
            wanted: Whether the caller waits for a peer; others are kept for who asks for them.

        Raises:
            MessageError: The peer knows the key and runs another release.
        """
        for number, (_, greeting) in enumerate(self._others):
            if wanted(greeting):
                return self._others.pop(number)
        found = self._pending.next(timeout_s)
        if found is None or wanted(found[1]):
            return found
        self._others.append(found)
        return None

    def close(self) -> None:
        """Stop listening, and close all connections that nobody has taken."""
        for connection, _ in self._others:
            connection.close()
        self._pending.close()
        self._socket.close()


class _Joining:
    """A `PendingConnection` that may be a worker or a host of this run."""

    def __init__(self, connection: Connection, key: bytes) -> None:
        self._connection = connection
        self._key = key
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.send(self._nonce)

    def fileno(self) -> int:
        """See `PendingConnection`."""
        return self._connection.fileno()

    def read(self) -> tuple[Connection, Greeting] | None:
        """See `PendingConnection`."""
        said = self._connection.read_ready(_GREETING_BYTES)
        return None if said is None else (self._connection, self._answered(said))

    def close(self) -> None:
        """See `PendingConnection`."""
        self._connection.close()

    def _answered(self, said: bytes) -> Greeting:
        proof, greeting = said[:_PROOF_BYTES], said[_PROOF_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._key, b"joins", self._nonce, greeting)):
            raise MessageError("the connection does not know the key")
        their_nonce, content = greeting[:_NONCE_BYTES], json.loads(greeting[_NONCE_BYTES:])
        if content["version"] != VERSION:
            refusal = _proof(self._key, b"refuses", their_nonce, b"")
            self._connection.send(refusal + VERSION.encode())
            raise OtherReleaseError(
                f"{content['role']} {content['number']} runs {content['version']}, the leader "
                f"{VERSION}: install the same release on both",
                content["number"],
            )
        self._connection.send(_proof(self._key, b"leads", their_nonce, b""))
        return Greeting(content["role"], content["number"], content["text"])


def connect(addresses: Sequence[Address], key: bytes, greeting: Greeting) -> Connection:
    """Connect to the leader, at the first address that answers.

    Tries again a few times if a process listens and closes the connection.

    Raises:
        ConnectionLostError: The leader answers at no address.
        MessageError: The leader runs another release.
    """
    tried: dict[Address, str] = {}
    left = list(addresses)
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S * number)
        for address in tuple(left):
            try:
                end = socket.create_connection(address, timeout=HANDSHAKE_S)
            except OSError as error:
                tried[address] = error.strerror or str(error)
                left.remove(address)
                continue
            end.settimeout(None)
            connection = Connection(end)
            try:
                _introduce(connection, key, greeting)
            except BaseException as error:
                connection.close()
                can_retry = isinstance(error, (ConnectionLostError, MessageError))
                if not can_retry or isinstance(error, OtherReleaseError):
                    raise
                tried[address] = str(error)
            else:
                return connection
    where = "; ".join(f"{address[0]}: {why}" for address, why in tried.items())
    raise ConnectionLostError(f"cannot reach the leader at port {addresses[0][1]} ({where})")


def _introduce(connection: Connection, key: bytes, greeting: Greeting) -> None:
    nonce = connection.receive(HANDSHAKE_S, _NONCE_BYTES)
    if len(nonce) != _NONCE_BYTES:
        raise MessageError("the process that listens there is not the leader of this run")
    own_nonce = secrets.token_bytes(_NONCE_BYTES)
    content = {
        "version": VERSION,
        "role": greeting.role,
        "number": greeting.number,
        "text": greeting.text,
    }
    said = own_nonce + json.dumps(content).encode()
    connection.send(_proof(key, b"joins", nonce, said) + said)
    answer = connection.receive(HANDSHAKE_S, _GREETING_BYTES)
    if hmac.compare_digest(answer[:_PROOF_BYTES], _proof(key, b"refuses", own_nonce, b"")):
        theirs = answer[_PROOF_BYTES:].decode(errors="replace")
        raise OtherReleaseError(f"the leader runs {theirs}, this host {VERSION}: install the same")
    if not hmac.compare_digest(answer, _proof(key, b"leads", own_nonce, b"")):
        raise ConnectionLostError("the process that listens there is not the leader of this run")


def _proof(key: bytes, purpose: bytes, nonce: bytes, content: bytes) -> bytes:
    return hmac.new(key, purpose + nonce + content, hashlib.sha256).digest()
