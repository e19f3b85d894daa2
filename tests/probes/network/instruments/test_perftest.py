import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.instruments.perftest import (
    RdmaEnd,
    bandwidth_command,
    latency_command,
    parse_perftest,
)
from probes.network.ports import Failure
from tests.shared_data import SHARED_DATA, requires_shared_data

RULE = "-" * 87
BANDWIDTH = f"""\
{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
{RULE}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 2          5000           0.142947            0.048851            3.053188
Conflicting CPU frequency values detected: 1200.5 != 1251.3. CPU Frequency is not max.
 1048576    5000             97.90              97.80              0.011659
{RULE}
"""
LATENCY = f"""\
                    RDMA_Write Latency Test
{RULE}
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
Conflicting CPU frequency values detected: 3393.6 != 1500.0. CPU Frequency is not max.
 8       1000          1.77           4.72         1.88   \t    1.89    \t0.07   \t2.01 \t4.72
{RULE}
"""
GKE_END = "Failed to complete run_iter_bw function successfully"


def test_gigabits_are_decimal() -> None:
    result = parse_perftest(BANDWIDTH)
    assert result.bandwidth_gb_per_s == pytest.approx(97.80 / 8)
    assert [row.size_bytes for row in result.rows] == [2, 2**20]
    assert (result.failure, result.detail, result.latency_us) == (None, "", None)


@pytest.mark.parametrize("unit", ["MB/sec", "MiB/sec"])
def test_megabytes_are_binary(unit: str) -> None:
    # 11,659 messages of 1 MiB a second: 11,659 MiB/s = 12.2253 GB/s.
    text = BANDWIDTH.replace("Gb/sec", unit).replace("97.80", "11659.00")
    assert parse_perftest(text).bandwidth_gb_per_s == pytest.approx(12.2253, rel=1e-4)


def test_latency_is_t_typical_of_the_smallest_message() -> None:
    result = parse_perftest(LATENCY)
    assert result.latency_us == 1.88
    assert (result.failure, result.bandwidth_gb_per_s) == (None, None)


def test_latency_of_a_run_by_time_is_its_average() -> None:
    text = (
        f" #bytes        #iterations       t_avg[usec]    tps average\n 8 5000 2.5 400000\n{RULE}\n"
    )
    assert parse_perftest(text).latency_us == 2.5


@pytest.mark.parametrize("average", ["0.00", "-nan", "nan", "inf", "9.78"])
def test_a_row_without_a_figure_that_holds_is_a_failure(average: str) -> None:
    result = parse_perftest(BANDWIDTH.replace("97.80", average))
    assert (result.bandwidth_gb_per_s, result.failure) == (None, Failure.UNREADABLE)
    assert result.detail == "no figure in the row of 1048576 bytes"


def test_both_directions_together_are_no_figure() -> None:
    result = parse_perftest(BANDWIDTH.replace("RDMA_Write BW", "RDMA_Write Bidirectional BW"))
    assert (result.bandwidth_gb_per_s, result.failure) == (None, Failure.UNREADABLE)
    assert result.detail == "both directions together: measure without -b"


def test_rows_of_one_size_that_differ_are_no_figure() -> None:
    text = BANDWIDTH + " 1048576    5000             50.00              50.00   0.005960\n-----\n"
    assert parse_perftest(text).detail == "several rows of 1048576 bytes that differ"


@pytest.mark.parametrize(
    ("text", "failure", "detail"),
    [
        (
            " Did not detect devices \n Unable to find the Infiniband/RoCE device\n",
            Failure.UNREACHABLE,
            "Unable to find the Infiniband/RoCE device",
        ),
        (
            "Couldn't connect to 10.0.0.2:18515\nUnable to open file descriptor\n",
            Failure.UNREACHABLE,
            "Couldn't connect to 10.0.0.2:18515",
        ),
        (
            BANDWIDTH.removesuffix(RULE + "\n") + " Completion with error at client\n",
            Failure.UNREADABLE,
            "cut after the row of 1048576 bytes: Completion with error at client",
        ),
        ("", Failure.UNREADABLE, "no rows: no output"),
    ],
)
def test_failures_are_named(text: str, failure: Failure, detail: str) -> None:
    result = parse_perftest(text)
    assert (result.failure, result.detail) == (failure, detail)
    assert result.bandwidth_gb_per_s is None


@given(text=st.sampled_from([BANDWIDTH, LATENCY]), share=st.floats(0, 1))
def test_output_cut_anywhere_gives_the_right_figure_or_a_failure(text: str, share: float) -> None:
    whole, cut = parse_perftest(text), parse_perftest(text[: round(share * len(text))])
    if cut.failure is None:
        assert cut.bandwidth_gb_per_s == whole.bandwidth_gb_per_s
        assert cut.latency_us == whole.latency_us
    else:
        assert (cut.bandwidth_gb_per_s, cut.latency_us) == (None, None)
        assert cut.detail
    # A row that is cut in its last, unused column still has its figure.
    assert {row.figure for row in cut.rows} <= {row.figure for row in whole.rows} | {None}


@given(
    st.text(max_size=60)
    | st.text("#bytes iterations\n-0123456789.BW average[MB/sec]", max_size=300)
)
def test_any_text_is_read_or_a_failure(text: str) -> None:
    result = parse_perftest(text)
    figure = result.bandwidth_gb_per_s or result.latency_us
    assert (figure is None) == (result.failure is not None)


def test_command_lines() -> None:
    end = RdmaEnd("mlx5_3", 1, gid_index=3)
    server = "ib_write_bw -d mlx5_3 -i 1 -x 3 -p 18600 -F -s 1048576 -D 2 --report_gbits"
    assert bandwidth_command(end, 18600, 2) == server.split()
    assert bandwidth_command(end, 18600, 2, "10.0.0.2") == [*server.split(), "10.0.0.2"]
    latency = "ib_write_lat -d mlx5_0 -i 2 -p 18600 -F -s 8 -n 1000 10.0.0.2"
    assert latency_command(RdmaEnd("mlx5_0", 2), 18600, 1000, "10.0.0.2") == latency.split()
    over_ipv6 = RdmaEnd("mlx5_3", 1, 3, over_ipv6=True)
    assert "--ipv6-addr" in bandwidth_command(over_ipv6, 18600, 2)
    assert "--ipv6-addr" in latency_command(over_ipv6, 18600, 1000, "fd00::2")


@requires_shared_data
@pytest.mark.parametrize(
    ("name", "rows", "bandwidth_gb_per_s", "latency_us", "detail"),
    [
        # 23,240.68 MiB/s x 1,048,576
        ("ib_loopback_all_sizes.log", 24, 24.36961927, None, ""),
        (
            *("ib_write_bw-a-gke-a3ultra-host.txt", 16, None, None),
            f"cut after the row of 65536 bytes: {GKE_END}",
        ),
        (
            *("ib_write_bw-a-mi300-rocm-200g.txt", 23, None, None),
            "both directions together: measure without -b",
        ),
        ("ib_write_bw-dgx1-roce-100g.txt", 1, 92.40 / 8, None, ""),
        ("ib_write_lat-a-ndr200-ib.txt", 23, None, 1.87, ""),
    ],
)
def test_real_output(
    name: str, rows: int, bandwidth_gb_per_s: float | None, latency_us: float | None, detail: str
) -> None:
    result = parse_perftest((SHARED_DATA / "probes" / "perftest" / name).read_text("utf-8"))
    assert len(result.rows) == rows
    assert all(row.figure for row in result.rows)
    assert result.bandwidth_gb_per_s == pytest.approx(bandwidth_gb_per_s)
    assert result.latency_us == latency_us
    assert result.detail == detail
    assert (result.failure is None) == (detail == "")
