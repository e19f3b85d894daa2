"""Outputs of nccl-tests in the forms that its releases print."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import InputFileError
from tuccl.measuring.calibration.nccl_tests import NcclTestsRun, parse_nccl_tests

TODAY = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 4 minBytes 1024 maxBytes 4194304 step: 64(factor) warmup iters: 5 iters: 20 graph: 0
#
#  Rank  0 Group  0 Pid   10 on hosta device  0 [0000:41:00] GPU
#  Rank  1 Group  0 Pid   10 on hosta device  1 [0000:44:00] GPU
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     9.00    0.00    0.00      0     9.00    0.00    0.00      0
        1024           256     float     sum      -1    20.00    0.05    0.05      0    19.00    0.05    0.05      0
     4194304       1048576     float     sum      -1    40.00  104.86  104.86      0    41.00  102.30  102.30      0
# Out of bounds values : 0 OK
"""  # noqa: E501 - as it is printed
OLD_BROADCAST = """\
#       size         count    type    root     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float       0    16.00    0.06    0.06    N/A
     4194304       1048576     float       0      200   20.97   20.97    N/A
"""  # noqa: E501 - as it is printed


def parsed(text: str) -> NcclTestsRun:
    return parse_nccl_tests(text, "output.txt")


def test_todays_output_says_all_that_the_model_needs() -> None:
    run = parsed(TODAY)
    assert run.operation is Collective.ALL_REDUCE
    assert (run.ranks, run.launches, run.left_out) == (2, 4, 0)
    assert run.times_us == ((1024, 20.0), (4194304, 40.0)), "out of place, without the size of 0"
    assert run.factor == pytest.approx(1.0)


def test_broadcast_of_old_has_a_root_and_no_redop_and_whole_times() -> None:
    run = parsed(OLD_BROADCAST)
    assert run.times_us == ((1024, 16.0), (4194304, 200.0))
    assert (run.operation, run.ranks, run.launches) == (None, None, 1)


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:"])
def test_ranks_that_mpi_puts_before_lines_change_nothing(prefix: str) -> None:
    assert parsed("".join(prefix + line for line in TODAY.splitlines(keepends=True))) == parsed(
        TODAY
    )


def in_json(**changed: object) -> str:
    """TODAY as `-J` writes it."""
    results = [
        {
            "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": -1,
            "out_of_place": {"time": time_us, "alg_bw": algbw, "bus_bw": algbw, "nwrong": 0.0},
            "in_place": {"time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0.0},
        }
        for size, time_us, algbw in ((0, 9.0, 0.0), (1024, 20.0, 0.05), (4194304, 40.0, 104.86))
    ]  # fmt: skip
    devices = [{"rank": rank, "group": 0, "pid": 10, "hostname": "hosta"} for rank in range(2)]
    config = {"nthreads": 1, "ngpus": 4, "graph": 0}
    args = ["./build/all_reduce_perf", "-g", "4", "-J", "o.json"]
    whole = {"version": 1, "args": args, "config": config, "devices": devices, "results": results}
    return json.dumps(whole | changed, indent=1)


def test_the_json_of_a_run_says_what_its_table_says() -> None:
    assert parsed(in_json()) == parsed(TODAY)
    labelled = "".join(f" 0: {line}" for line in in_json().splitlines(keepends=True))
    assert parsed(labelled) == parsed(TODAY)
    assert parsed(in_json(config={"nthreads": 1, "ngpus": 4, "graph": 3})).launches == 0
    for text, message in (
        (in_json()[:-40], "no JSON of nccl-tests: .*; name what -J wrote, or the printed table"),
        (in_json(results=[]), "no row of a measured size"),
        (in_json(results={}), "no JSON of nccl-tests: results: "),
        (in_json(args=["sendrecv_perf"]), "sendrecv is not an operation"),
    ):
        with pytest.raises(InputFileError, match=f"^output.txt: {message}"):
            parsed(text)


def split(groups: str, hosts: str) -> str:
    """TODAY with a rank for each letter, of this group and on this host."""
    listed = "".join(
        f"#  Rank {rank:2d} Group {group:>2} Pid   1{rank} on host{host} device  0 [0x41] GPU\n"
        for rank, (group, host) in enumerate(zip(groups, hosts, strict=True))
    )
    return re.sub(r"(#  Rank .*\n)+", listed, TODAY)


def test_groups_side_by_side_are_communicators_of_their_own() -> None:
    assert parsed(split("0000", "aabb")).ranks == 4
    assert parsed(split("0011", "aabb")).ranks == 2
    assert parsed(split("0011", "aaaa")).ranks == 2
    for groups, hosts, message in (
        ("0001", "aabb", "2 groups (NCCL_TESTS_SPLIT) are of 1 to 3 ranks; measure one"),
        ("0101", "aabb", "2 groups (NCCL_TESTS_SPLIT) share their hosts; measure one"),
    ):
        with pytest.raises(InputFileError, match=re.escape(message)):
            parsed(split(groups, hosts))


def test_alltoall_prints_nothing_under_redop() -> None:
    text = TODAY.replace("     sum      -1", "               ").replace(
        "   redop    root", "   redop        "
    )
    assert parsed(text).times_us == ((1024, 20.0), (4194304, 40.0))


def test_rows_that_other_output_ran_into_are_left_out_and_counted() -> None:
    text = TODAY.replace("  40.00  104.86", "  4[1,3]<stderr>0.00  104.86")
    assert parsed(text).times_us == ((1024, 20.0),)
    assert parsed(text).left_out == 1
    swallowed = TODAY.replace("    40.00  104.86", "    14.00  104.86")
    assert parsed(swallowed).left_out == 1, "4 MiB in 14 us are not 104.86 GB/s"


def test_sizes_measured_several_times_count_once_with_their_median() -> None:
    times = (20.0, 24.0, 22.0)
    text = "".join(TODAY.replace("    20.00    0.05", f"    {time:.2f}    0.05") for time in times)
    assert dict(parsed(text).times_us)[1024] == 22.0


def test_graphs_launch_without_the_host() -> None:
    assert parsed(TODAY.replace("graph: 0", "graph: 20")).launches == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no table of nccl-tests"),
        ("hello\n12 13 14 15.0\n", "rows but no header"),
        (TODAY.replace("       size  ", "             "), "no column 'size'"),
        (TODAY.replace("    type", "        "), "no column 'type'"),
        ("\n".join(TODAY.splitlines()[:9]), "no row of a measured size"),
        (TODAY.replace("all_reduce", "sendrecv"), "sendrecv is not an operation"),
        (TODAY + TODAY.replace("all_reduce", "all_gather"), "all_gather and all_reduce in one"),
        (TODAY + TODAY.replace("104.86  104.86", "104.86  157.29"), "different numbers of ranks"),
        (TODAY + TODAY.replace("#  Rank  1", "#  Rank  2 Pid 1\n#  Rank  1"), "on 2 and on 3 "),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputFileError, match=f"^output.txt: .*{message}") as caught:
        parsed(text)
    assert "\n" not in str(caught.value)


@pytest.mark.long
@given(st.text(max_size=200), st.integers(0, len(TODAY)))
def test_whatever_runs_into_an_output_it_is_read_or_refused(junk: str, position: int) -> None:
    try:
        run = parsed(TODAY[:position] + junk + TODAY[position:])
    except InputFileError:
        return
    assert all(size > 0 and 0 < time < float("inf") for size, time in run.times_us)


@given(st.integers(1 << 23, (1 << 64) - 1))
def test_sizes_as_wide_as_nccl_tests_prints_are_read(size_bytes: int) -> None:
    time_us = size_bytes / 100e3
    row = f"{size_bytes:12} {size_bytes // 4} float sum -1 {time_us:.2f} 100.00 100.00 0"
    read_bytes, read_us = parsed(TODAY + row + "\n").times_us[-1]
    assert (read_bytes, read_us) == (size_bytes, float(f"{time_us:.2f}"))


def test_times_that_are_no_numbers_are_left_out() -> None:
    for word in ("nan", "inf", "-40.00", "0.00"):
        assert parsed(TODAY.replace("    40.00  104.86", f"    {word}  104.86")).left_out == 1


@pytest.mark.long
@requires_shared_data
def test_every_real_output_is_read_or_refused_by_name() -> None:
    folder = SHARED_DATA / "nccl_tests"
    read, refused = {}, {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".txt", ".log"}:
            name = path.relative_to(folder).as_posix()
            try:
                read[name] = parse_nccl_tests(path.read_text(errors="replace"), name)
            except InputFileError as error:
                refused[name] = str(error)
    assert len(read) > 130
    assert all(len(run.times_us) >= 5 for run in read.values())
    assert all(message.startswith(name) for name, message in refused.items())
    # Sweeps without a header, several collectives in a file, jobs that failed, summaries.
    assert {name.split("/")[0] for name in refused} == {
        "mi325x-1-2-4-8nodes-all_reduce.txt", "panlichen", "wayne-nvswitch-x8", "xxrjun-cluster00",
    }  # fmt: skip
    p4de = dict(read["aws-p4de-2x8-all_reduce.txt"].times_us)
    assert (p4de[8], p4de[2147483648]) == (164.3, 51406.0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "Rank  1",
            f"Rank  {'1' * 5000}",
            r"line 5: rank or group 111111111\.\.\. has 5,000 digits",
        ),
        ("nThread 1", f"nThread {'1' * 5000}", "line 2: nThread, nGpus or graph 111111111"),
        ("graph: 0", f"graph: {'1' * 5000}", "line 2: nThread, nGpus or graph 111111111"),
    ],
)
def test_numbers_of_thousands_of_digits_are_refused_by_line(old: str, new: str, said: str) -> None:
    with pytest.raises(InputFileError, match=f"output.txt {said}"):
        parsed(TODAY.replace(old, new))


@pytest.mark.parametrize("digits", [19, 400, 5000])
def test_a_row_of_an_impossible_size_is_left_out(digits: int) -> None:
    damaged = TODAY.replace("     4194304", f"     {'4' * digits}")
    run = parsed(damaged)
    assert (run.left_out, run.times_us) == (1, ((1024, 20.0),))


@requires_shared_data
def test_public_outputs_in_json_and_of_groups_are_read() -> None:
    folder = SHARED_DATA / "public_cases"
    found = parsed((folder / "nccltests-J.json").read_text())
    assert (len(found.times_us), found.ranks, found.operation) == (10, 4, Collective.ALL_REDUCE)
    assert found.times_us[0] == (8192, 27.45)
    found = parsed((folder / "nccltests-split.out").read_text())
    assert (len(found.times_us), found.ranks) == (14, 8)
    assert found.factor == pytest.approx(1.75, rel=0.01)
