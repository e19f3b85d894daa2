"""Who is let in, and how messages come through."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuccl.measuring.connection import VERSION, Connection, Greeting, Listener, connect
from tuccl.measuring.errors import ConnectionLostError, MessageError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1", ("127.0.0.1",))
    yield made
    made.close()


def joining(
    listener: Listener, key: bytes
) -> tuple[threading.Thread, list[Connection], list[Exception]]:
    joined: list[Connection] = []
    failed: list[Exception] = []

    def join() -> None:
        try:
            joined.append(connect(listener.addresses, key, Greeting("worker", 3, "text")))
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
    assert listener.accept(5.0) is None
    thread.join()
    assert "cannot reach the leader" in str(failed[0])


def test_a_stranger_that_sends_too_much_is_turned_away(listener: Listener) -> None:
    with socket.create_connection(listener.addresses[0]) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert listener.accept(5.0) is None


def test_another_release_is_named_on_both_sides(listener: Listener) -> None:
    program = (
        "import sys; from tuccl.measuring import connection as c; c.VERSION = 'TuCCL 9.9'; "
        f"c.connect({listener.addresses}, bytes.fromhex('{listener.key.hex()}'), "
        "c.Greeting('worker', 3))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as other:
        with pytest.raises(MessageError, match=r"worker 3 runs TuCCL 9\.9, the leader TuCCL"):
            listener.accept(20.0)
        assert f"the leader runs {VERSION}, this host TuCCL 9.9" in other.communicate()[1]


def test_a_late_message_is_an_error(listener: Listener) -> None:
    thread, joined, _ = joining(listener, listener.key)
    accepted = listener.accept(5.0)
    thread.join()
    assert accepted is not None
    with pytest.raises(ConnectionLostError, match=r"no message within 0\.05 s"):
        accepted[0].receive(0.05)
    for end in (accepted[0], joined[0]):
        end.close()
