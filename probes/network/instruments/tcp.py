"""TCP without a tool: free ports, who listens, and the round trip that a handshake takes."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

_LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp."""
_RTT_AT = 68
"""Of tcpi_rtt (us, 4 bytes) in Linux's struct tcp_info."""


def listening_socket(address: str, backlog: int = 0) -> socket.socket:
    """A socket that listens at a free port of `address`; the kernel answers without a server.

    Raises:
        OSError: the address is not one of this host.
    """
    found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, kind, protocol, _, where = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.bind(where)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def free_port(address: str) -> int:
    """A port of `address` that nobody listens at now.

    Raises:
        OSError: as `listening_socket`.
    """
    with listening_socket(address) as listener:
        return port_of(listener)


def port_of(listener: socket.socket) -> int:
    """The port that a socket is bound to."""
    return int(listener.getsockname()[1])


def listening_inodes(port: int, tables: Path = Path("/proc/net")) -> frozenset[str]:
    """Sockets of this network namespace that listen at a TCP port of any address, by inode.

    Looked up in the kernel's tables, because a connection would use up a server for one client.
    """
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (tables / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS and fields[1].endswith(f":{port:04X}"):
                inodes.add(fields[9])
    return frozenset(inodes)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Ask every few milliseconds; False when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def handshake_us(source: str, target: str, port: int, timeout_s: float) -> float:
    """How long a connection to `target` takes to be made: one round trip.

    By the kernel's clock, since this process may have to wait for a processor when it is over.

    Raises:
        OSError: refused, unreachable, or not made in time (TimeoutError).
    """
    found = socket.getaddrinfo(target, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, kind, protocol, _, where = found[0]
    near = socket.getaddrinfo(source, 0, family, kind, flags=socket.AI_NUMERICHOST)[0][4]
    with socket.socket(family, kind, protocol) as client, selectors.DefaultSelector() as selector:
        client.bind(near)
        client.setblocking(False)
        selector.register(client, selectors.EVENT_WRITE)
        start = time.perf_counter()
        client.connect_ex(where)
        ready = selector.select(timeout_s)
        end = time.perf_counter()
        if not ready:
            raise TimeoutError(f"connect to {target} port {port} timed out")
        problem = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, f"connect to {target} port {port}")
        client.getpeername()
        info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_AT + 4)
    (by_kernel_us,) = struct.unpack_from("=I", info, _RTT_AT)
    # None is taken when the first packet was sent again.
    return float(by_kernel_us) or (end - start) * 1e6
