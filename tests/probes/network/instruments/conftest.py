"""Stand-ins: scripts for tools, and a port that drops connections as a firewall does."""

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

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


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a shell script in place of a tool."""
    shell = shutil.which("sh")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def install(tool: str, script: str) -> None:
        (tmp_path / tool).write_text(f"#!{shell}\n{script}\n")
        (tmp_path / tool).chmod(0o755)

    return install
