"""Authentication of connections, and messages over them."""

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tuccl.crew import pending_connections
from tuccl.crew.connection import VERSION, Connection, Greeting, Listener, connect
from tuccl.errors import ConnectionLostError, MessageError

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1", ("127.0.0.1",))
    yield made
    made.close()


def idle(listener: Listener, said: bytes) -> socket.socket:
    client = socket.create_connection(listener.addresses[0])
    client.sendall(said)
    return client


def close(*ends: Connection | socket.socket) -> None:
    for end in ends:
        end.close()


def was_closed(client: socket.socket) -> bool:
    """Return whether the listener closed a connection, over which it sends a nonce at most."""
    client.setblocking(False)
    try:
        while client.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def joining(
    listener: Listener, key: bytes, *first: tuple[str, int]
) -> tuple[threading.Thread, list[Connection], list[Exception]]:
    joined: list[Connection] = []
    failed: list[Exception] = []

    def join() -> None:
        try:
            joined.append(
                connect((*first, *listener.addresses), key, Greeting("worker", 3, "text"))
            )
        except (ConnectionLostError, MessageError) as error:
            failed.append(error)

    thread = threading.Thread(target=join)
    thread.start()
    return thread, joined, failed


def test_messages_of_any_size_arrive_whole_and_in_order(listener: Listener) -> None:
    thread, joined, _ = joining(listener, listener.key)
    accepted = listener.accept(5.0)
    thread.join()
    assert accepted is not None
    leader, greeting = accepted
    assert greeting == Greeting("worker", 3, "text")
    contents = [b"", b"x", b"y" * 300_000, json.dumps({"a": 1}).encode()]

    def send() -> None:
        for content in contents:
            joined[0].send(content)

    sender = threading.Thread(target=send)
    sender.start()
    assert [leader.receive(5.0) for _ in contents] == contents
    sender.join()
    joined[0].close()
    with pytest.raises(ConnectionLostError, match="closed"):
        leader.receive(5.0)
    leader.close()


def test_who_does_not_know_the_key_is_turned_away(listener: Listener) -> None:
    thread, _, failed = joining(listener, b"another run's")
    while thread.is_alive():
        assert listener.accept(0.1) is None
    assert "cannot reach the leader" in str(failed[0])


def test_a_peer_waits_for_who_asks_for_it(listener: Listener) -> None:
    thread, joined, _ = joining(listener, listener.key)
    assert listener.accept(3.0, lambda greeting: greeting.number != 3) is None
    accepted = listener.accept(0.0)
    assert accepted is not None
    assert accepted[1].number == 3
    thread.join()
    for end in (accepted[0], *joined):
        end.close()


def test_a_client_that_sends_too_much_is_turned_away(listener: Listener) -> None:
    with socket.create_connection(listener.addresses[0]) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert listener.accept(0.3) is None
        assert was_closed(client)


@pytest.mark.parametrize("said", [b"", b"\0", b"\0\0\0\x80" + b"x" * 128, b"\xff" * 50])
@pytest.mark.parametrize("clients", [12, 400])
def test_clients_keep_no_worker_waiting(listener: Listener, clients: int, said: bytes) -> None:
    crowd = [idle(listener, said) for _ in range(min(clients, 100))]
    thread, joined, failed = joining(listener, listener.key)
    more = threading.Thread(
        target=lambda: crowd.extend(idle(listener, said) for _ in range(clients - len(crowd)))
    )
    more.start()
    began = time.monotonic()
    accepted = listener.accept(10.0)
    took_s = time.monotonic() - began
    while more.is_alive():  # The kernel holds only so many that nobody accepts.
        listener.accept(0.01)
    thread.join()
    assert not failed
    assert accepted is not None
    assert accepted[1] == Greeting("worker", 3, "text")
    assert took_s < 4.0, "less than the deadline of one client"
    close(accepted[0], *joined, *crowd)


def test_of_too_many_clients_the_oldest_is_closed() -> None:
    listener = Listener("127.0.0.1", ("127.0.0.1",), most_waiting=3)
    crowd = []
    for _ in range(5):
        crowd.append(idle(listener, b""))
        assert listener.accept(0.01) is None
    assert [was_closed(client) for client in crowd] == [True, True, False, False, False]
    listener.close()
    assert all(map(was_closed, crowd))
    for client in crowd:
        client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_closed_at_its_deadline(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_connections, "HANDSHAKE_S", 0.4)
    client = idle(listener, b"\0\0\0\x80")
    began = time.monotonic()
    while not was_closed(client):
        with suppress(OSError):
            client.send(b"x")
        assert listener.accept(0.05) is None
        assert time.monotonic() - began < 20.0, "it would stay for good"
    assert time.monotonic() - began >= 0.4
    client.close()


def test_a_worker_that_is_closed_in_a_crowd_knocks_again(listener: Listener) -> None:
    thread, joined, failed = joining(listener, listener.key)
    select.select([listener._socket], [], [], 5.0)
    listener._socket.accept()[0].close()
    accepted = listener.accept(5.0)
    thread.join()
    assert not failed
    assert accepted is not None
    close(accepted[0], *joined)


def test_another_service_at_an_address_of_the_leader_is_passed_over(listener: Listener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as peer:
        peer_ends: list[socket.socket] = []

        def open_pending() -> None:
            peer_ends.append(peer.accept()[0])
            peer_ends[0].sendall(b"SSH-2.0-any\r\n")

        greeter = threading.Thread(target=open_pending)
        greeter.start()
        thread, joined, failed = joining(listener, listener.key, peer.getsockname()[:2])
        accepted = listener.accept(5.0)
        thread.join()
        greeter.join()
    assert not failed
    assert accepted is not None
    close(accepted[0], *joined, *peer_ends)


def test_another_release_is_named_on_both_sides(listener: Listener) -> None:
    program = (
        "import sys; from tuccl.crew import connection as c; c.VERSION = 'TuCCL 9.9'; "
        f"c.connect({listener.addresses}, bytes.fromhex('{listener.key.hex()}'), "
        "c.Greeting('worker', 3))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as peer:
        with pytest.raises(MessageError, match=r"worker 3 runs TuCCL 9\.9, the leader TuCCL"):
            listener.accept(20.0)
        assert f"the leader runs {VERSION}, this host TuCCL 9.9" in peer.communicate()[1]


def test_a_late_message_is_an_error(listener: Listener) -> None:
    thread, joined, _ = joining(listener, listener.key)
    accepted = listener.accept(5.0)
    thread.join()
    assert accepted is not None
    with pytest.raises(ConnectionLostError, match=r"no message within 0\.05 s"):
        accepted[0].receive(0.05)
    for end in (accepted[0], joined[0]):
        end.close()


def test_a_host_that_falls_silent_is_lost_within_90_s(listener: Listener) -> None:
    thread, joined, _ = joining(listener, listener.key)
    accepted = listener.accept(5.0)
    thread.join()
    assert accepted is not None
    for end in (accepted[0], joined[0]):
        with socket.socket(fileno=os.dup(end.fileno())) as tcp:
            idle_s, interval_s, count = (
                tcp.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
        assert idle_s + interval_s * count <= 90
        end.close()
