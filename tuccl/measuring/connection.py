"""Messages of bytes over TCP between processes that share a key: `Connection`, `Listener`.

A message is its length (4 bytes, big endian) and its content. Before the first one both sides prove
that they know the key of this run (HMAC-SHA256 of the other's nonce) and say which release they
are, so that a stranger on the port, or a host with other software, is turned away by name.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tuccl import __version__
from tuccl.measuring.errors import ConnectionLostError, MessageError

VERSION = f"TuCCL {__version__}, measuring 1"
_LENGTH = struct.Struct(">I")
_MAX_BYTES = 16 << 20
_NONCE_BYTES = 32
_HANDSHAKE_S = 5.0
_GREETING_BYTES = 4096
"""Most that somebody who has not proved anything may send."""

Address = tuple[str, int]


class Connection:
    """One end; close it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._received = bytearray()
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that is switched off says no farewell.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    @property
    def peer(self) -> Address:
        """Of the other side."""
        host, port = self._socket.getpeername()[:2]
        return host, port

    def send(self, content: bytes) -> None:
        """Send one message.

        Raises:
            ConnectionLostError: The other side has gone.
        """
        try:
            self._socket.sendall(_LENGTH.pack(len(content)) + content)
        except OSError as error:
            raise ConnectionLostError(f"cannot send: {error.strerror or error}") from error

    def receive(self, timeout_s: float | None = None, most_bytes: int = _MAX_BYTES) -> bytes:
        """The next message.

        Args:
            timeout_s: How long to wait; None for ever.
            most_bytes: That it may have.

        Raises:
            ConnectionLostError: The other side has gone, or is late.
            MessageError: It sends what is no message.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (content := self._take(most_bytes)) is None:
            left = None if deadline is None else max(deadline - time.monotonic(), 1e-3)
            self._socket.settimeout(left)
            try:
                self._read()
            except TimeoutError as error:
                raise ConnectionLostError(f"no message within {timeout_s:g} s") from error
            finally:
                self._socket.settimeout(None)
        return content

    def read_ready(self) -> bytes | None:
        """After `select` says that there is something: a message if it is whole by now.

        Raises:
            ConnectionLostError: The other side has gone.
            MessageError: It sends what is no message.
        """
        self._read()
        return self._take(_MAX_BYTES)

    def close(self) -> None:
        """Tell the other side."""
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLostError(f"connection lost: {error.strerror or error}") from error
        if not data:
            raise ConnectionLostError("the connection was closed")
        self._received += data

    def _take(self, most_bytes: int) -> bytes | None:
        if len(self._received) < _LENGTH.size:
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


@dataclass(frozen=True, slots=True)
class Greeting:
    """How somebody who connects presents itself."""

    role: str
    """`worker` or `host`."""
    number: int
    text: str = ""


class Listener:
    """Where workers report to the leader; close it."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        """Listen at a free port.

        Args:
            host: To bind to; empty for all interfaces.
            addresses: Under which others may reach it, best first.
        """
        self.key = secrets.token_bytes(32)
        self._socket = socket.create_server((host, 0), backlog=128)
        port = self._socket.getsockname()[1]
        self.addresses: tuple[Address, ...] = tuple((address, port) for address in addresses)

    def accept(self, timeout_s: float) -> tuple[Connection, Greeting] | None:
        """The next one that knows the key; None when nobody came in time or who came is a stranger.

        Raises:
            MessageError: It knows the key and runs another release.
        """
        self._socket.settimeout(max(timeout_s, 1e-3))
        try:
            end, _ = self._socket.accept()
        except TimeoutError:
            return None
        end.settimeout(None)
        connection = Connection(end)
        try:
            return connection, self._greet(connection)
        except (ConnectionLostError, MessageError) as error:
            connection.close()
            if isinstance(error, _OtherReleaseError):
                raise
            return None
        except BaseException:
            connection.close()
            raise

    def _greet(self, connection: Connection) -> Greeting:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.send(nonce)
        said = connection.receive(_HANDSHAKE_S, _GREETING_BYTES)
        proof, their_nonce, body = said[:32], said[32:64], said[64:]
        if not hmac.compare_digest(proof, _proof(self.key, b"joins", nonce, said[32:])):
            raise MessageError("a stranger")
        content = json.loads(body)
        if content["version"] != VERSION:
            connection.send(_proof(self.key, b"refuses", their_nonce, b"") + VERSION.encode())
            raise _OtherReleaseError(
                f"{content['role']} {content['number']} runs {content['version']}, the leader "
                f"{VERSION}: install the same release on both"
            )
        connection.send(_proof(self.key, b"leads", their_nonce, b""))
        return Greeting(content["role"], content["number"], content["text"])

    def close(self) -> None:
        """Nobody can report any more."""
        self._socket.close()


class _OtherReleaseError(MessageError):
    """Part of this run, and of another release."""


def connect(addresses: Sequence[Address], key: bytes, greeting: Greeting) -> Connection:
    """A connection to the leader, at the first address where it is found.

    Raises:
        ConnectionLostError: It is at none of them.
        MessageError: It is of another release.
    """
    tried = []
    for address in addresses:
        try:
            end = socket.create_connection(address, timeout=_HANDSHAKE_S)
        except OSError as error:
            tried.append(f"{address[0]}: {error.strerror or error}")
            continue
        end.settimeout(None)
        connection = Connection(end)
        try:
            _introduce(connection, key, greeting)
        except ConnectionLostError as error:
            tried.append(f"{address[0]}: {error}")
        except MessageError:
            connection.close()
            raise
        else:
            return connection
        with suppress(OSError):
            connection.close()
    where = "; ".join(tried)
    raise ConnectionLostError(f"cannot reach the leader at port {addresses[0][1]} ({where})")


def _introduce(connection: Connection, key: bytes, greeting: Greeting) -> None:
    nonce = connection.receive(_HANDSHAKE_S, _NONCE_BYTES)
    own_nonce = secrets.token_bytes(_NONCE_BYTES)
    content = {
        "version": VERSION,
        "role": greeting.role,
        "number": greeting.number,
        "text": greeting.text,
    }
    said = own_nonce + json.dumps(content).encode()
    connection.send(_proof(key, b"joins", nonce, said) + said)
    answer = connection.receive(_HANDSHAKE_S, _GREETING_BYTES)
    if hmac.compare_digest(answer[:32], _proof(key, b"refuses", own_nonce, b"")):
        theirs = answer[32:].decode(errors="replace")
        raise MessageError(f"the leader runs {theirs}, this host {VERSION}: install the same")
    if not hmac.compare_digest(answer, _proof(key, b"leads", own_nonce, b"")):
        raise ConnectionLostError("whoever listens there is not the leader of this run")


def _proof(key: bytes, purpose: bytes, nonce: bytes, content: bytes) -> bytes:
    return hmac.new(key, purpose + nonce + content, hashlib.sha256).digest()
