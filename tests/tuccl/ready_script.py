"""A script `tuccl` for shells that is run by a `ReadyCommand`, so that it starts at once."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from threading import Thread

from tests.tuccl.ready_command import MOST_BYTES, ReadyCommand

_SCRIPT = """\
#!{python} -IS
import json, os, socket, sys
request = {{"command": [{command!r}, *sys.argv[1:]], "folder": os.getcwd(),
           "environment": dict(os.environ)}}
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(bytes.fromhex({address!r}))
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    sys.exit(int(server.recv(16)))
"""


class ReadyScript:
    """A directory for PATH with the script, and the thread that serves it, one run at a time."""

    def __init__(self, ready: ReadyCommand, directory: Path, command: str) -> None:
        self._ready = ready
        # An address without a file: paths of tests are longer than a socket's may be.
        address = b"\0" + os.urandom(16)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(address)
        self._server.listen()
        self.directory = directory
        directory.mkdir()
        script = directory / "tuccl"
        text = _SCRIPT.format(python=sys.executable, command=command, address=address.hex())
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # Closed.
                return
            with client:
                request, streams, _, _ = socket.recv_fds(client, MOST_BYTES, 3)
                code = self._ready.pass_on(request, streams)
                for stream in streams:
                    os.close(stream)
                client.send(str(code).encode())

    def close(self) -> None:
        """Ends the thread."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
