"""`tuccl report --follow`: the page of a run that goes on, served to browsers on this host alone.

The run may be measuring on this host, so the page is made again only if the run has gone on, not
before some seconds have passed, and many times what making it took.

The server listens on 127.0.0.1 and answers requests that name this host: a foreign page whose name
was made to lead here (DNS rebinding) names its own. No answer lets another page read or frame it.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from tuccl.errors import TucclError, UsageError, WorkspaceError
from tuccl.views.page.page import PLOTLY_ADDRESS, so_far_page, table_report
from tuccl.views.page.place import read_place
from tuccl.views.page.sketches import read_sketches
from tuccl.views.page.so_far import read_so_far
from tuccl.workspace.runs import Run, Workspace

LEAST_S = 5.0
"""Least seconds between two pages."""
_TIMES_ITS_COST = 20.0
"""Least time between two pages, in times of making one."""
ADDRESS = "127.0.0.1"
_THIS_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
"""This host in requests, on any port: an ssh tunnel has its own."""
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class ServedPage:
    """A page, and the tag that identifies its state."""

    tag: str
    content: bytes


class FollowedPage:
    """Makes the page when it is asked for."""

    def __init__(
        self, place: Path, name: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make the first page.

        Args:
            place: A workspace.
            name: Name of a run; without one the run that was worked on last is followed,
                whichever that is by then.
            clock: Seconds of a clock that only moves on.

        Raises:
            UsageError: The workspace has no such run.
            WorkspaceError: The run has a damaged file.
        """
        self._place = place
        self._name = name
        self._clock = clock
        self._making = threading.Lock()
        self._state = ""
        self._next_s = -1.0
        self._served = self.now()

    def now(self) -> ServedPage:
        """Return the page of the run as it is, or was a few seconds ago.

        Raises:
            UsageError: The run is gone.
            WorkspaceError: The run has a damaged file.
        """
        with self._making:
            began_s = self._clock()
            run = run_to_follow(self._place, self._name)
            state = _state_text(run)
            if state != self._state and began_s >= self._next_s:
                content = self._page(run).encode()
                self._served = ServedPage(f'"{sha256(content).hexdigest()[:32]}"', content)
                self._state = state
                took_s = self._clock() - began_s
                self._next_s = began_s + max(LEAST_S, _TIMES_ITS_COST * took_s)
            return self._served

    def _page(self, run: Run) -> str:
        record = run.record()
        made_at = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        if record is not None and record.complete:
            return table_report(read_place(self._place, run.root.name), made_at, "")[1]
        log = run.measurements
        measured_at = datetime.fromtimestamp(log.stat().st_mtime, tz=UTC) if log.exists() else None
        found, sketches = read_so_far(run, self._place), read_sketches(run)
        return so_far_page(found, sketches, made_at, measured_at)


def run_to_follow(place: Path, name: str | None) -> Run:
    """Return the named run of a workspace, or the one that was worked on last.

    Raises:
        UsageError: The workspace has no such run.
    """
    if name is not None:
        return Workspace(place).named(name)
    runs = [run for run in Workspace(place).runs() if _times_ns(run)]
    if not runs:
        raise UsageError(f"workspace {place} has no run to follow; start `tuccl init` there first")
    return max(runs, key=lambda run: max(_times_ns(run)))


def _times_ns(run: Run) -> list[int]:
    """Return when the files of a run were written; a run that has just begun may have none."""
    files = (run.root / "run.json", run.topology, run.measurements)
    return [path.stat().st_mtime_ns for path in files if path.exists()]


def _state_text(run: Run) -> str:
    """Return a text that changes when the run has gone on."""
    try:
        size = run.measurements.stat().st_size
    except FileNotFoundError:
        size = 0
    except OSError as error:
        raise WorkspaceError(f"cannot read {run.measurements}: {error.strerror}") from error
    return f"{run.root.name} {size} {_times_ns(run)}"


class FollowServer(ThreadingHTTPServer):
    """Serves one page and its script for charts."""

    daemon_threads = True

    def __init__(self, page: FollowedPage, plotly: str, port: int) -> None:
        """Listen.

        Args:
            page: The page.
            plotly: The script that draws charts.
            port: Port; 0: a free one.

        Raises:
            UsageError: The port is taken or not allowed.
        """
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise UsageError(f"--port {port}: {error.strerror}; name another, or none") from error
        self.page = page
        self.plotly = ServedPage('"plotly"', plotly.encode())

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that closed early, as a browser does whose page is left."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        """Address for a browser."""
        return f"http://{ADDRESS}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: FollowServer
    protocol_version = "HTTP/1.1"
    server_version = "TuCCL"
    sys_version = ""
    timeout = 60.0
    _types: ClassVar[dict[str, str]] = {
        "/": "text/html; charset=utf-8",
        PLOTLY_ADDRESS: "text/javascript; charset=utf-8",
    }

    def do_GET(self) -> None:
        """Answer with the content."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not _THIS_HOST.fullmatch(hosts[0]):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, f"this server is {self.server.address}")
        elif self.path not in self._types:
            self._refuse(HTTPStatus.NOT_FOUND, f"the page is {self.server.address}")
        else:
            self._answer()

    do_HEAD = do_GET  # noqa: N815 - as above

    def _answer(self) -> None:
        try:
            found = self.server.plotly if self.path == PLOTLY_ADDRESS else self.server.page.now()
        except TucclError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        if self.headers.get("If-None-Match") == found.tag:
            self._send(HTTPStatus.NOT_MODIFIED, {"ETag": found.tag}, b"")
            return
        headers = {"ETag": found.tag, "Content-Type": self._types[self.path]}
        self._send(HTTPStatus.OK, headers, found.content)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        self._send(status, headers, f"{text}\n".encode())

    def _send(self, status: HTTPStatus, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in (_HEADERS | headers).items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name there
        """Say nothing of single requests."""
