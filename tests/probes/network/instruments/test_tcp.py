import selectors
import socket
import time
from pathlib import Path

import pytest

from probes.network.instruments.tcp import (
    free_port,
    handshake_us,
    listening_inodes,
    listening_socket,
    port_of,
    wait_until,
)


def test_a_listener_is_seen_while_it_listens() -> None:
    with listening_socket("127.0.0.1") as listener:
        port = port_of(listener)
        inode = str(Path(f"/proc/self/fd/{listener.fileno()}").readlink())
        assert inode in [f"socket:[{each}]" for each in listening_inodes(port)]
    assert not listening_inodes(port)


def test_only_the_listening_state_and_the_local_port_count(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text(
        "  sl  local_address rem_address   st queues timer retransmits uid timeout inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n"
        "   1: 0100007F:0050 0100007F:1F91 01 0:0 0:0 0 0 0 4712 1\n"
        "   2: cut\n"
    )
    (tmp_path / "tcp6").write_text(
        "heading\n   0: 00000000000000000000000000000000:1F90 0:0 0A 0:0 0:0 0 0 0 4713 1\n"
    )
    assert listening_inodes(0x1F90, tmp_path) == {"4711", "4713"}
    assert not listening_inodes(0x50, tmp_path)
    assert not listening_inodes(0x1F91, tmp_path)


def test_a_free_port_can_be_bound() -> None:
    port = free_port("127.0.0.1")
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))


def test_an_address_of_another_host_is_refused() -> None:
    with pytest.raises(OSError, match="assign"):
        free_port("192.0.2.1")


def test_handshakes_need_no_one_to_accept() -> None:
    with listening_socket("127.0.0.1", backlog=8) as listener:
        times = [handshake_us("127.0.0.1", "127.0.0.1", port_of(listener), 1) for _ in range(5)]
    assert all(0 < time_us < 1e6 for time_us in times)


@pytest.mark.long
def test_a_late_process_still_measures_the_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            ready = super().select(timeout)
            time.sleep(0.2)
            return ready

    monkeypatch.setattr(selectors, "DefaultSelector", Late)
    with listening_socket("127.0.0.1", backlog=8) as listener:
        times = [handshake_us("127.0.0.1", "127.0.0.1", port_of(listener), 1) for _ in range(3)]
    assert min(times) < 0.1e6


def test_a_refused_connection_is_no_handshake() -> None:
    with pytest.raises(ConnectionRefusedError):
        handshake_us("127.0.0.1", "127.0.0.1", free_port("127.0.0.1"), 1)


def test_a_connection_that_is_not_answered_is_no_handshake(full_listener: int) -> None:
    with pytest.raises(TimeoutError):
        handshake_us("127.0.0.1", "127.0.0.1", full_listener, 0.1)


def test_waiting_ends() -> None:
    assert wait_until(lambda: True, 0)
    assert not wait_until(lambda: False, 0.02)
