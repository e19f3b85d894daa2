"""Runs of `tuccl` whose modules are loaded already, which is most of what a short run takes.

A process with the modules of the installed package forks one child for each run. The child has the
arguments, directory, environment and streams of its run, and ends as the command ends.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

MOST_BYTES = 1 << 17
"""Most bytes of a request, nearly all of which is its environment."""


class ReadyCommand:
    """The process that forks, as its client sees it."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it; what Python and the loader read at their start is the same for all its runs."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -P: the package is the installed one, as for users, and not that of this checkout.
            command = [sys.executable, "-P", __file__, str(theirs.fileno())]
            # Python sets streams up by what they are at its start, and those of runs are pipes.
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

    def run(
        self,
        folder: Path,
        command: Sequence[str],
        given: str = "",
        limit_s: float = 300,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run`, of a command whose first word is the path of `tuccl`."""
        variables = dict(os.environ if environment is None else environment)
        request = {"command": command, "folder": str(folder), "environment": variables}
        stdin, to_child = os.pipe()
        from_child, streams = zip(os.pipe(), os.pipe(), strict=True)
        socket.send_fds(self._requests, [json.dumps(request).encode()], [stdin, *streams])
        for descriptor in (stdin, *streams):
            os.close(descriptor)
        with ThreadPoolExecutor(3) as pool:
            said = [pool.submit(_read, os.fdopen(end, encoding="utf-8")) for end in from_child]
            pool.submit(_write, os.fdopen(to_child, "w", encoding="utf-8"), given)
            pid = self._answer(limit_s)
            try:
                code = self._answer(limit_s)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._answer(limit_s)
                raise
        out, complaints = (stream.result() for stream in said)
        return subprocess.CompletedProcess(list(command), code, out, complaints)

    def pass_on(self, request: bytes, streams: Sequence[int], limit_s: float = 300) -> int:
        """Runs a request that has streams of its own; returns the exit code."""
        socket.send_fds(self._requests, [request], list(streams))
        self._answer(limit_s)
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> int:
        self._requests.settimeout(limit_s)
        return int(json.loads(self._requests.recv(MOST_BYTES)))

    def close(self) -> None:
        """Ends the process."""
        self._requests.close()
        self._process.communicate()


class ReadyCommands:
    """Ready commands by those variables that Python and the loader read at their start."""

    def __init__(self) -> None:
        self._found: dict[tuple[tuple[str, str], ...], ReadyCommand | None] = {}

    def of(self, environment: Mapping[str, str]) -> ReadyCommand | None:
        """The command for an environment; None: it is the first like it, and may be the last."""
        at_start = tuple(
            (name, text)
            for name, text in sorted(environment.items())
            if name.startswith(("LD_", "PYTHON"))
        )
        if at_start not in self._found:
            self._found[at_start] = None
        elif self._found[at_start] is None:
            self._found[at_start] = ReadyCommand(environment)
        return self._found[at_start]

    def close(self) -> None:
        """Ends the processes."""
        for ready in self._found.values():
            if ready is not None:
                ready.close()


def _read(stream: IO[str]) -> str:
    with stream:
        return stream.read()


def _write(stream: IO[str], text: str) -> None:
    try:
        with stream:
            stream.write(text)
    except BrokenPipeError:  # The command reads nothing.
        pass


def load_all() -> None:
    """Whatever a command imports when it runs."""
    import importlib  # noqa: PLC0415
    import pkgutil  # noqa: PLC0415

    # pyarrow imports pandas when it makes its first table.
    import pandas  # noqa: F401, ICN001, PLC0415
    import pyarrow.parquet  # noqa: F401, PLC0415

    import tuccl.cli  # noqa: PLC0415
    import tuccl.views  # noqa: PLC0415

    for package in (tuccl.cli, tuccl.views):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def _serve(requests: socket.socket) -> bool:
    """Forks for each request; True in a child, which is to run the command."""
    while True:
        content, streams, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not content:
            return False
        child = os.fork()
        if child == 0:
            requests.close()
            for wanted, descriptor in enumerate(streams):
                os.dup2(descriptor, wanted)
                os.close(descriptor)
            request = json.loads(content)
            os.environ.clear()
            os.environ.update(request["environment"])
            os.chdir(request["folder"])
            sys.argv = request["command"]
            return True
        for descriptor in streams:
            os.close(descriptor)
        requests.send(json.dumps(child).encode())
        _, status = os.waitpid(child, 0)
        requests.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    load_all()
    # A child that collects or ends would otherwise touch, and so copy, the pages of all modules.
    gc.collect()
    gc.freeze()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        from tuccl.__main__ import main

        main()
