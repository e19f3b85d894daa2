"""`tuccl report --follow`: what is served, to whom, and when it is made again."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.views.page.reported import seen
from tests.tuccl.views.page.unfinished import go_on, unfinish
from tuccl.errors import ExitCode, UsageError
from tuccl.views.page.follow import (
    LEAST_S,
    FollowedPage,
    FollowServer,
    run_to_follow,
)
from tuccl.views.page.page import PLOTLY_ADDRESS
from tuccl.workspace.runs import Workspace

DRAWS = "Plotly = {};"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def served(
    page: FollowedPage, plotly: str = DRAWS, kind: type[FollowServer] = FollowServer
) -> Iterator[FollowServer]:
    with kind(page, plotly, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(
    server: FollowServer,
    path: str = "/",
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def test_a_run_that_goes_on_is_served_again_when_its_log_has_grown(tuned: TunedWorkspace) -> None:
    run, clock = unfinish(tuned.root, 2), Clock()
    with served(FollowedPage(tuned.root, None, clock)) as server:
        first, page = asked(server)
        assert first.status == 200
        texts = " ".join(seen(page).texts)
        assert "Stock NCCL has not been timed yet." in texts
        assert "The machine" in texts
        tag = {"If-None-Match": first.headers["ETag"]}
        clock.now_s += 2.0 * LEAST_S
        assert asked(server, headers=tag)[0].status == 304, "nothing has changed"
        go_on(tuned.root, run, 400)
        again, page = asked(server, headers=tag)
        assert again.status == 200
        texts = " ".join(seen(page).texts)
        assert "the geometric mean over 6 keys. Nothing is decided yet" in texts
        assert "How the search went" in texts
        assert "machine time and 398 measurements" in texts
        tag = {"If-None-Match": again.headers["ETag"]}
        go_on(tuned.root, run, 800)
        assert asked(server, headers=tag)[0].status == 304, "too soon"
        clock.now_s += LEAST_S
        assert asked(server, headers=tag)[0].status == 200


def test_a_finished_run_has_the_page_of_its_table(tuned: TunedWorkspace) -> None:
    page = FollowedPage(tuned.root, None).now().content.decode()
    found = seen(page)
    assert "What a job gains" in " ".join(found.texts)
    policy = next(
        meta["content"]
        for meta in found.named("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "connect-src 'self'" in policy
    assert re.search(r"script-src 'sha256-\S+' 'self';", policy)
    (fetched,) = [script["src"] for script in found.named("script") if "src" in script]
    assert fetched == PLOTLY_ADDRESS


def test_only_requests_that_name_this_host_are_answered(tuned: TunedWorkspace) -> None:
    with served(FollowedPage(tuned.root, None)) as server:
        for host in ("127.0.0.1", f"localhost:{server.server_port}", "localhost:9000"):
            answer, _ = asked(server, PLOTLY_ADDRESS, {"Host": host})
            assert answer.status == 200, host
        for host in (
            "rebound.example",
            f"rebound.example:{server.server_port}",
            "",
            "[::1]",
            "localhost:a@rebound.example",
            "a@localhost",
            "localhost:",
            "localhost, b",
        ):
            answer, text = asked(server, "/", {"Host": host})
            assert answer.status == 421, host
            assert text == f"this server is {server.address}\n"
        assert server.server_address[0] == "127.0.0.1"
        answer, text = asked(server, PLOTLY_ADDRESS)
        assert text == DRAWS
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert asked(server, "/../run.json")[0].status == 404
        assert asked(server, method="POST")[0].status == 501
        head, nothing = asked(server, method="HEAD")
        assert (head.status, nothing) == (200, "")
        assert int(head.headers["Content-Length"]) > 10_000


def test_a_request_that_names_two_hosts_or_none_is_refused(tuned: TunedWorkspace) -> None:
    with served(FollowedPage(tuned.root, None)) as server:
        for hosts in (b"", b"Host: localhost\r\nHost: localhost\r\n"):
            with socket.create_connection(("127.0.0.1", server.server_port), 30) as client:
                client.sendall(b"GET / HTTP/1.1\r\n" + hosts + b"\r\n")
                assert client.recv(64).startswith(b"HTTP/1.1 421 ")


def test_a_client_that_closes_early_leaves_no_traceback(
    tuned: TunedWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    done = threading.Event()

    class Watched(FollowServer):
        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            done.set()

    page = FollowedPage(tuned.root, None)
    with served(page, "x" * 10_000_000, Watched) as server:
        with socket.create_connection(("127.0.0.1", server.server_port), 30) as client:
            client.sendall(f"GET {PLOTLY_ADDRESS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(64)
        assert done.wait(30)
    assert capfd.readouterr().err == ""


def test_a_run_that_is_damaged_meanwhile_is_told_and_not_the_end(tuned: TunedWorkspace) -> None:
    run = unfinish(tuned.root, 20)
    whole, clock = (run.root / "run.json").read_bytes(), Clock()
    with served(FollowedPage(tuned.root, None, clock)) as server:
        clock.now_s += LEAST_S
        (run.root / "run.json").write_bytes(b"{")
        answer, text = asked(server)
        assert answer.status == 503
        assert "run.json is damaged" in text
        (run.root / "run.json").write_bytes(whole)
        assert asked(server)[0].status == 200


def test_the_run_that_was_worked_on_last_is_followed(tuned: TunedWorkspace) -> None:
    (finished,) = Workspace(tuned.root).runs()
    later = Workspace(tuned.root).run("0" * 16)
    later.root.mkdir()
    assert run_to_follow(tuned.root, None).root == finished.root, "the other has no file yet"
    later.measurements.write_bytes(b"")
    assert run_to_follow(tuned.root, None).root == later.root
    assert run_to_follow(tuned.root, finished.root.name).root == finished.root
    with pytest.raises(UsageError, match="has no run 'abc'; its runs: 0000000000000000, "):
        run_to_follow(tuned.root, "abc")
    with pytest.raises(UsageError, match="has no run to follow; start `tuccl init` there first"):
        run_to_follow(tuned.root / "runs", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--follow", "empty"), "workspace empty has no run to follow"),
        (("--follow", "empty", "--json"), "leave out --json"),
        (("--follow", "empty", "--output", "page.html"), "leave out --output"),
        (("--follow", "empty", "full"), "leave out full"),
        (("--follow", "empty", "--port", "0"), "--port 0 is out of range: use 1 to 65535"),
        (("empty", "--port", "8000"), "--port is for --follow"),
    ],
)
def test_a_refusal_is_one_line(
    run_inside: Run, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    done = run_inside("report", *words)
    assert (done.returncode, done.stdout) == (ExitCode.BAD_INPUT, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_a_port_that_is_taken_is_one_line(run_inside: Run, tuned: TunedWorkspace) -> None:
    with FollowServer(FollowedPage(tuned.root, None), DRAWS, 0) as server:
        port = str(server.server_port)
        done = run_inside("report", "--follow", "--port", port)
    assert (done.returncode, done.stdout) == (ExitCode.BAD_INPUT, "")
    assert done.stderr == (f"tuccl: --port {port}: Address already in use; name another, or none\n")


@pytest.mark.long
def test_it_says_its_address_and_ends_with_ctrl_c(tuned: TunedWorkspace, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tuccl", "report", "--follow", str(tuned.root)]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        match = re.fullmatch(
            r"http://127\.0\.0\.1:(\d+)/ shows the run in browsers on this host; "
            r"Ctrl-C ends it\n",
            said,
        )
        assert match is not None, said
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=30)
        connection.request("GET", "/")
        assert connection.getresponse().read().startswith(b"<!DOCTYPE html>")
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=30)
        connection.close()
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert rest == "tuccl: interrupted\n"
