from pathlib import Path

import pytest

from probes.network.instruments.tools import (
    MAX_WORDS,
    MEASURING,
    Tool,
    failure_in_words,
    install_hint,
    last_words,
    missing_tools,
    one_line,
)
from probes.network.ports import Failure


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / Tool.IPERF3).touch(0o755)
    assert missing_tools(MEASURING) == ("ping",)
    assert missing_tools() == ("ping", "ib_write_bw", "ib_write_lat")


@pytest.mark.parametrize("tool", Tool)
def test_every_tool_has_a_package(tool: Tool) -> None:
    assert install_hint(tool).startswith("apt-get install ")


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("ping: socket: Operation not permitted", Failure.TOOL_MISSING),
        ("ping: sendmsg: Operation not permitted", Failure.FILTERED),
        ("connect: Connection refused", Failure.FILTERED),
        ("No route to host", Failure.UNREACHABLE),
        ("IB device mlx5_9 not found", Failure.UNREACHABLE),
        ("Failed status 12: wr_id 0 syndrom 0x81", Failure.UNREACHABLE),
        ("Failed to modify QP 298 to RTR", Failure.UNREACHABLE),
        ("ib_write_bw: unrecognized option '--ipv6-addr'", Failure.UNREADABLE),
        ("connect: Connection timed out", Failure.TIMEOUT),
    ],
)
def test_meaning(text: str, failure: Failure) -> None:
    assert failure_in_words(f"first line\n{text}\nlast line") == (failure, text)


def test_words_are_one_printable_line() -> None:
    assert one_line("a\tb\n\x1b[31mc\x00") == "a b [31mc"
    assert len(one_line("x" * 1000)) == MAX_WORDS


def test_last_words_are_no_rules() -> None:
    assert last_words("said\n-----\n\n^C\n") == "said"
    assert last_words("\n") == "no output"
