"""Unauthenticated connections to the stand-in's ranks are closed, and delay no collective."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from lookup_tables.collective import Collective
from tests.tuccl.measuring.workers.worker_fixtures import OpenBackend
from tuccl.crew.pending_connections import HANDSHAKE_S
from tuccl.measuring.sockets.sockets_transport import Mesh, exchange
from tuccl.measuring.workers.seating import whole_shape
from tuccl.search.trials.config import Config, Task

GARBAGE = (b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 44, b"\0" * 4096)


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    clients: list[socket.socket] = []
    yield clients
    for client in clients:
        client.close()


def visit(port: int, crowd: list[socket.socket]) -> None:
    """Connect once for each kind of garbage."""
    for said in GARBAGE:
        client = socket.create_connection(("127.0.0.1", port), timeout=5.0)
        crowd.append(client)
        client.sendall(said)


def ports_of(pids: tuple[int, ...]) -> list[int]:
    """Return the ports on which processes listen."""
    found = []
    for pid in pids:
        with suppress(psutil.Error):
            connections = psutil.Process(pid).net_connections("tcp4")
            found += [
                connection.laddr.port
                for connection in connections
                if connection.status == psutil.CONN_LISTEN
            ]
    return found


def test_ranks_connect_among_unauthenticated_connections(crowd: list[socket.socket]) -> None:
    leader, peer = Mesh(), Mesh()
    group_id = leader.invite()
    for mesh in (leader, peer):
        visit(mesh._port, crowd)
    joining = threading.Thread(target=peer.join, args=(1, 2, group_id))
    began = time.monotonic()
    joining.start()
    leader.join(0, 2, group_id)
    joining.join()
    for mesh in (leader, peer):
        visit(mesh._port, crowd)
    end = peer.channel(0, 3)
    arrived = memoryview(bytearray(4))
    answering = leader.channel(1, 3)
    exchange({end: memoryview(b"data")}, {})
    exchange({}, {answering: arrived})
    assert bytes(arrived) == b"data"
    assert time.monotonic() - began < HANDSHAKE_S, "no visitor's deadline was waited for"
    leader.close()
    peer.close()


@pytest.mark.long
def test_a_rank_that_connects_to_another_empties_its_own_queue_first() -> None:
    leader, peer = Mesh(), Mesh()
    group_id = leader.invite()
    joining = threading.Thread(target=peer.join, args=(1, 2, group_id))
    joining.start()
    leader.join(0, 2, group_id)
    joining.join()
    crowd: list[socket.socket] = []
    with suppress(OSError):
        while len(crowd) < 400:  # Until the queue of the kernel is full.
            crowd.append(socket.create_connection(("127.0.0.1", peer._port), timeout=0.2))
    assert len(crowd) < 400
    peer.channel(0, 0)
    leader.channel(1, 0)
    began = time.monotonic()
    socket.create_connection(("127.0.0.1", peer._port), timeout=5.0).close()
    assert time.monotonic() - began < 0.9, "a full queue costs a second until the next attempt"
    for client in crowd:
        client.close()
    for each in (leader, peer):
        each.close()


def test_a_peer_with_another_key_is_no_rank(crowd: list[socket.socket]) -> None:
    leader, peer, client = Mesh(), Mesh(), Mesh()
    group_id = leader.invite()
    client.rank = 1
    client._key = b"another group's"
    crowd.append(client._connect(("127.0.0.1", leader._port), 0, 9))
    joining = threading.Thread(target=peer.join, args=(1, 2, group_id))
    joining.start()
    leader.join(0, 2, group_id)
    joining.join()
    assert leader._addresses == peer._addresses
    assert [port for _, port in peer._addresses] == [leader._port, peer._port]
    for mesh in (leader, peer, client):
        mesh.close()


def test_the_key_of_a_group_is_never_sent() -> None:
    mesh = Mesh()
    key = mesh.invite()[:32]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = mesh._connect(listener.getsockname(), 0, 1)
        heard, _ = listener.accept()
        said = heard.recv(4096)
    assert len(said) > len(key)
    assert key not in said
    for each in (end, heard):
        each.close()
    mesh.close()


@pytest.mark.long
def test_strangers_fail_no_configuration(
    open_backend: OpenBackend, crowd: list[socket.socket]
) -> None:
    backend, places = open_backend(3, least_deadline_s=3.0)
    shape = whole_shape(places.places)
    over = threading.Event()

    def come() -> None:
        while not over.wait(0.02):
            for port in (places.listener.addresses[0][1], *ports_of(places.pids)):
                with suppress(OSError):
                    visit(port, crowd)
            while len(crowd) > 400:
                crowd.pop(0).close()

    coming = threading.Thread(target=come)
    coming.start()
    try:
        for number, algorithm in enumerate(("ring", "tree", "ring"), 1):
            config = Config(algorithm, "LL", 2 * number, buffer_bytes=number << 20)
            task = Task(Collective.ALL_REDUCE, 64 << 10, shape)
            assert len(backend.measure(task, config, 0, 1).samples_us) == 1
    finally:
        over.set()
        coming.join()
    assert crowd
    assert backend.incidents == []
