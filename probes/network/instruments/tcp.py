"""TCP without a tool: free ports, listening sockets, and the round trip of a handshake."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

_LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp."""
_RTT_OFFSET = 68
"""Offset of tcpi_rtt (us, 4 bytes) in Linux's struct tcp_info."""


def listening_socket(address: str, backlog: int = 0) -> socket.socket:
    """Return a socket that listens at a free port of `address`; the kernel answers by itself.

    Raises:
        OSError: the address is not one of this host.
    """
    found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, kind, protocol, _, socket_address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.bind(socket_address)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def free_port(address: str) -> int:
    """Return a port of `address` at which no socket listens now.

    Raises:
        OSError: as `listening_socket`.
    """
    with listening_socket(address) as listener:
        return port_of(listener)


def port_of(listener: socket.socket) -> int:
    """The port that a socket is bound to."""
    return int(listener.getsockname()[1])


def listening_inodes(port: int, tables: Path = Path("/proc/net")) -> frozenset[str]:
    """Return inodes of this network namespace's sockets that listen at a TCP port of any address.

    They are read from the kernel's tables, because a connection would end a server for one client.
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
    """Poll the condition every 5 ms; return False at the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def handshake_us(source: str, target: str, port: int, timeout_s: float) -> float:
    """Return the time to connect to `target`, which is one round trip.

    The kernel's clock measures it, since this process may have to wait for a processor.

    Raises:
        OSError: refused, unreachable, or timed out (TimeoutError).
    """
    found = socket.getaddrinfo(target, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, kind, protocol, _, target_address = found[0]
    source_address = socket.getaddrinfo(source, 0, family, kind, flags=socket.AI_NUMERICHOST)[0][4]
    with socket.socket(family, kind, protocol) as client, selectors.DefaultSelector() as selector:
        client.bind(source_address)
        client.setblocking(False)
        selector.register(client, selectors.EVENT_WRITE)
        start = time.perf_counter()
        client.connect_ex(target_address)
        ready = selector.select(timeout_s)
        end = time.perf_counter()
        if not ready:
            raise TimeoutError(f"connect to {target} port {port} timed out")
        problem = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, f"connect to {target} port {port}")
        client.getpeername()
        info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_OFFSET + 4)
    (kernel_us,) = struct.unpack_from("=I", info, _RTT_OFFSET)
    # The kernel has no value if the first packet was sent again.
    return float(kernel_us) or (end - start) * 1e6
