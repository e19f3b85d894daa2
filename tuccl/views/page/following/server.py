"""The server of a followed page, for browsers on this host alone.

It listens on 127.0.0.1 and answers requests that name this host: a foreign page whose name was made
to lead here (DNS rebinding) names its own. No answer allows another page to read or frame it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from tuccl.errors import TucclError, UsageError
from tuccl.views.page.following.followed_page import FollowedPage, Served
from tuccl.views.page.page import PLOTLY_ADDRESS

ADDRESS = "127.0.0.1"
_NAMES = frozenset({ADDRESS, "localhost"})
"""Names of this host in requests, on any port: an ssh tunnel has its own."""
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


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
            OSError: The port is taken or not allowed.
        """
        super().__init__((ADDRESS, port), _Handler)
        self.page = page
        self.plotly = Served('"plotly"', plotly.encode())

    @property
    def address(self) -> str:
        """Address for a browser."""
        return f"http://{ADDRESS}:{self.server_port}/"


@contextmanager
def follow_server(page: FollowedPage, plotly: str, port: int) -> Iterator[FollowServer]:
    """Open a server that listens; arguments as for `FollowServer`.

    Raises:
        UsageError: The port is taken or not allowed.
    """
    try:
        server = FollowServer(page, plotly, port)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; name another, or none") from error
    with server:
        yield server


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
        name, _, _ = self.headers.get("Host", "").partition(":")
        if name not in _NAMES:
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
