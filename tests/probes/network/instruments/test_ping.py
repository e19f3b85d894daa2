from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.instruments.ping import MIN_REPLIES, parse_ping, ping_command
from probes.network.ports import Failure
from tests.shared_data import SHARED_DATA, requires_shared_data

IPUTILS = """\
PING 10.0.0.2 (10.0.0.2) from 10.0.0.1 : 56(84) bytes of data.
64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.500 ms
64 bytes from 10.0.0.2: icmp_seq=2 ttl=64 time=0.100 ms
64 bytes from 10.0.0.2: icmp_seq=3 ttl=64 time=0.120 ms

--- 10.0.0.2 ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 40ms
rtt min/avg/max/mdev = 0.100/0.240/0.500/0.184 ms
"""
BUSYBOX = """\
PING 10.0.0.2 (10.0.0.2): 56 data bytes
64 bytes from 10.0.0.2: seq=0 ttl=64 time=0.500 ms
64 bytes from 10.0.0.2: seq=1 ttl=64 time=0.100 ms
64 bytes from 10.0.0.2: seq=2 ttl=64 time=0.120 ms

--- 10.0.0.2 ping statistics ---
3 packets transmitted, 3 packets received, 0% packet loss
round-trip min/avg/max = 0.100/0.240/0.500 ms
"""


def _lost(line: str, sent: int = 3) -> str:
    return (
        f"PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n{line}\n"
        f"--- 10.0.0.2 ping statistics ---\n"
        f"{sent} packets transmitted, 0 received, 100% packet loss, time 40ms\n"
    )


@pytest.mark.parametrize("text", [IPUTILS, BUSYBOX])
def test_the_latency_is_half_the_median_round_trip(text: str) -> None:
    result = parse_ping(text)
    assert result.value == pytest.approx(60)  # the median of 500, 100 and 120 is 120
    assert (result.failure, result.detail) == (None, "")
    assert result.samples == pytest.approx((250, 50, 60))


def test_old_iputils_call_the_number_icmp_req() -> None:
    assert parse_ping(IPUTILS.replace("icmp_seq", "icmp_req")).value == pytest.approx(60)


def test_replies_of_ipv6_and_with_host_names_count() -> None:
    text = IPUTILS.replace("from 10.0.0.2", "from node2.cluster (fe80::2%eth0)")
    assert parse_ping(text).value == pytest.approx(60)


def test_duplicates_count_once() -> None:
    duplicate = "64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=9.00 ms (DUP!)\n"
    text = IPUTILS.replace("\n\n---", "\n" + duplicate + "\n---").replace(
        "3 received,", "3 received, +1 duplicates,"
    )
    assert parse_ping(text).samples == pytest.approx((250, 50, 60))


def test_a_damaged_reply_leaves_the_figure_to_the_average() -> None:
    result = parse_ping(IPUTILS.replace("time=0.120 ms", "time=0.120 ms (BAD CHECKSUM!)"))
    assert result.value == pytest.approx(120)
    assert result.detail == "from ping's average, replies are not all there"


def test_lost_packets_are_reported() -> None:
    result = parse_ping(IPUTILS.replace("3 packets transmitted", "5 packets transmitted"))
    assert result.value == pytest.approx(60)
    assert result.detail == "2 of 5 packets lost"


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("From 10.0.0.1 icmp_seq=1 Destination Host Unreachable", Failure.UNREACHABLE),
        ("From 10.0.0.9 icmp_seq=1 Packet filtered", Failure.FILTERED),
        ("From 10.0.0.9 icmp_seq=1 Destination Host Prohibited", Failure.FILTERED),
        ("From 10.0.0.2 icmp_seq=1 Destination Port Unreachable", Failure.FILTERED),
        ("ping: sendmsg: Operation not permitted", Failure.FILTERED),
        ("ping: connect: Network is unreachable", Failure.UNREACHABLE),
        ("ping: socket: Operation not permitted", Failure.TOOL_MISSING),
    ],
)
def test_a_failure_is_named_in_pings_own_words(line: str, failure: Failure) -> None:
    for text in (f"{line}\n", _lost(line)):
        result = parse_ping(text)
        assert (result.value, result.failure, result.detail) == (None, failure, line)


@pytest.mark.parametrize(
    ("text", "failure", "words"),
    [
        (_lost(""), Failure.UNREACHABLE, "no reply to 3 packets, 100% packet loss"),
        ("", Failure.UNREADABLE, "no output"),
        ("Usage\n  ping [options] <dest>\n", Failure.UNREADABLE, "ping [options] <dest>"),
        (IPUTILS[:150], Failure.UNREADABLE, "cut after 1 replies"),
    ],
)
def test_output_without_replies_or_cut(text: str, failure: Failure, words: str) -> None:
    result = parse_ping(text)
    assert (result.value, result.failure, result.detail) == (None, failure, words)


def test_times_of_zero_are_no_figure() -> None:
    text = IPUTILS.replace("time=0.500", "time=0.000").replace("time=0.1", "time=-0.1")
    result = parse_ping(text.replace("0.100/0.240/0.500", "0.000/0.000/0.000"))
    assert (result.value, result.failure) == (None, Failure.UNREADABLE)


@given(
    times=st.lists(st.integers(1, 10**6), min_size=1, max_size=8),
    share=st.floats(0, 1),
)
def test_output_cut_anywhere_gives_a_median_of_whole_replies_or_a_failure(
    times: list[int], share: float
) -> None:
    replies = "".join(
        f"64 bytes from 10.0.0.2: icmp_seq={i} ttl=64 time={time / 1000} ms\n"
        for i, time in enumerate(times, 1)
    )
    text = (
        f"PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n{replies}\n"
        f"--- 10.0.0.2 ping statistics ---\n"
        f"{len(times)} packets transmitted, {len(times)} received, 0% packet loss, time 40ms\n"
        f"rtt min/avg/max/mdev = 0.100/{sum(times) / len(times) / 1000:.3f}/0.500/0.184 ms\n"
    )
    result = parse_ping(text[: round(share * len(text))])
    counts = [n for n in range(1, len(times) + 1) if n >= MIN_REPLIES or n == len(times)]
    right = [median(times[:n]) / 2 for n in counts]
    if result.value is None:
        assert result.failure is Failure.UNREADABLE
        assert result.detail
    else:
        assert result.failure is None
        assert min(abs(result.value - value) for value in right) < 1e-6 * max(right)


def test_command_line() -> None:
    assert ping_command("10.0.0.1", "10.0.0.2", 20, 0.01, 3) == [
        *("ping", "-n", "-c", "20", "-i", "0.01", "-W", "1", "-w", "3"),
        *("-I", "10.0.0.1", "10.0.0.2"),
    ]


@requires_shared_data
@pytest.mark.parametrize(
    ("name", "latency_us", "detail"),
    [
        ("ping-lan-2pkt.txt", 51.5, ""),
        ("ping-veth-gap.txt", 42.0, "from ping's average, replies are not all there"),
        ("ping-wan.txt", 13939.0, "from ping's average, replies are not all there"),
    ],
)
def test_real_output(name: str, latency_us: float, detail: str) -> None:
    result = parse_ping((SHARED_DATA / "probes" / "ping" / name).read_text("utf-8"))
    assert result.value == pytest.approx(latency_us)
    assert (result.failure, result.detail) == (None, detail)


def test_numbers_of_thousands_of_digits_are_no_counts() -> None:
    digits = "1" * 5000
    ping = parse_ping(f"{digits} packets transmitted, {digits} received\n")
    assert (ping.value, ping.failure) == (None, Failure.UNREADABLE)
