"""A port that drops connections, as a firewall does, without a firewall."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from probes.network.instruments.tcp import listening_socket, port_of


@pytest.fixture
def full_listener() -> Iterator[int]:
    """A port of 127.0.0.1 whose queue is full: the kernel ignores further connections."""
    with ExitStack() as held:
        listener = held.enter_context(listening_socket("127.0.0.1", backlog=0))
        port = port_of(listener)
        for _ in range(4):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        yield port
