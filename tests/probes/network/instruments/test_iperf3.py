import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.instruments.iperf3 import (
    iperf3_client_command,
    iperf3_server_command,
    parse_iperf3,
    streams_for,
)
from probes.network.ports import Failure

REPORT = json.dumps(
    {
        "start": {"version": "iperf 3.12", "connected": []},
        "intervals": [{"sum": {"bits_per_second": 1.0}}],
        "end": {
            "sum_sent": {"bits_per_second": 95.9e9},
            "sum_received": {"bytes": 23_775_000_000, "bits_per_second": 95.1e9},
        },
    },
    indent=1,
)


def test_the_figure_is_what_arrived_in_all_streams() -> None:
    result = parse_iperf3(REPORT)
    assert result.value == pytest.approx(95.1 / 8)
    assert (result.failure, result.detail) == (None, "")


def test_warnings_around_the_report_are_skipped() -> None:
    text = f"warning: optimistically setting -t\n{REPORT}\niperf3: interrupted\n"
    assert parse_iperf3(text).value == pytest.approx(95.1 / 8)


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        ("the server is busy running a test. try again later", Failure.FILTERED),
        ("unable to connect to server: Connection refused", Failure.FILTERED),
        ("unable to connect to server: No route to host", Failure.UNREACHABLE),
        ("unable to connect to server: Connection timed out", Failure.TIMEOUT),
        ("control socket has closed unexpectedly", Failure.UNREADABLE),
    ],
)
def test_an_error_is_named_in_iperfs_own_words(message: str, failure: Failure) -> None:
    plain = f"iperf3: error - {message}"
    for text, detail in (
        (json.dumps({"start": {}, "end": {}, "error": message}), message),
        (f"{plain}\n", plain),
    ):
        result = parse_iperf3(text)
        assert (result.value, result.failure, result.detail) == (None, failure, detail)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (REPORT[:-40], "the JSON is cut"),
        ('{"end": {}}', "no figure in end.sum_received"),
        ("[]", "no figure in the report"),
        ("", "no output"),
        (REPORT.replace("95100000000.0", "0.0"), "no figure in end.sum_received.bits_per_second"),
        (REPORT.replace("95100000000.0", "NaN"), "no figure in end.sum_received.bits_per_second"),
    ],
)
def test_a_report_without_a_figure_is_unreadable(text: str, detail: str) -> None:
    result = parse_iperf3(text)
    assert (result.value, result.failure, result.detail) == (None, Failure.UNREADABLE, detail)


@given(st.integers(0, len(REPORT) - 1))
def test_a_report_cut_anywhere_is_a_failure(end: int) -> None:
    result = parse_iperf3(REPORT[:end])
    assert (result.value, result.failure) == (None, Failure.UNREADABLE)


@pytest.mark.parametrize(
    ("line_rate_gb_per_s", "streams"), [(0, 4), (0.125, 4), (12.5, 4), (25, 8), (50, 16), (100, 16)]
)
def test_fast_links_get_more_streams(line_rate_gb_per_s: float, streams: int) -> None:
    assert streams_for(line_rate_gb_per_s) == streams


def test_command_lines() -> None:
    server = "iperf3 -s -1 -B 10.0.0.2 -p 5301"
    assert iperf3_server_command("10.0.0.2", 5301) == server.split()
    client = "iperf3 -J -c 10.0.0.2 -p 5301 -B 10.0.0.1 --connect-timeout 2000 -P 8 -t 2 -O 1"
    assert iperf3_client_command("10.0.0.1", "10.0.0.2", 5301, 8, 2, 1) == client.split()
