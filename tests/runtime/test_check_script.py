"""The parts of scripts/check/check_nccl_loads_table.py that need no GPU."""

import dataclasses
from functools import partial

import check_nccl_loads_table as check
import nccl_tuning_log as log
import pytest

from lookup_tables.lookup import check_table


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "h:1 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
            ("all_reduce", 1024, "ring", "ll", 2),
        ),
        (
            "ReduceScatter: 4096 Bytes -> Algo Ring proto SIMPLE channel{Lo..Hi}={3..7} cgaSize 4",
            ("reduce_scatter", 4096, "ring", "simple", 5),
        ),
        (
            "NCCL INFO AllGather: 8 Bytes -> Algo 5 proto 1 time 12.5",
            ("all_gather", 8, "nvlstree", "ll128", None),
        ),
        (
            "ALLREDUCE: 7 bytes -> algo NVLS_TREE proto Simple channel{ Lo..Hi } = {0..0}",
            ("all_reduce", 7, "nvlstree", "simple", 1),
        ),
    ],
)
def test_tuning_lines_of_several_releases(line: str, expected: tuple[object, ...]) -> None:
    (found,) = log.tuning_lines(f"noise\n{line}\nSendRecv: 1 Bytes -> Algo Ring proto LL\n")
    choice = found.choice
    assert expected == (
        found.operation,
        found.logged_bytes,
        choice.algorithm,
        choice.protocol,
        choice.channels,
    )


def test_channels_by_hand() -> None:
    attained = partial(log.attained_channels, min_traffic_bytes=16 << 10)
    # 1 KB of all_reduce is 2 KB of traffic: one channel, whatever the tuner wants.
    assert attained("all_reduce", "Simple", 1024, 4, 8) == 1
    # 64 KB: 128 KB of traffic has room for 8 channels of 16 KB, and for 4 of 32 KB.
    assert attained("all_reduce", "Simple", 64 << 10, 4, 16) == 8
    assert attained("all_reduce", "Simple", 64 << 10, 4, 16, min_traffic_bytes=32 << 10) == 4
    # LL counts fourfold.
    assert attained("all_reduce", "LL", 64 << 10, 4, 16) == 16
    # all_gather of 64 KB by 4 ranks: 16 KB each, traffic 64 KB.
    assert attained("all_gather", "Simple", 64 << 10, 4, 16) == 4
    # 32 cells on 3 channels: 11, 11, 10.
    assert attained("all_reduce", "LL128", 256 << 10, 4, 3) == 3
    # 32 cells on 20 channels: 2 cells each, on 16.
    assert attained("all_reduce", "LL128", 256 << 10, 4, 20) == 16


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_table_has_enough_keys_that_nccl_can_show(ranks: int) -> None:
    keys = check.wanted_keys(ranks)
    assert len(keys) >= check.LEAST_KEYS
    assert len({operation for operation, _, _ in keys}) == 3
    table = check.make_table(ranks, ("10de:2335",))
    check_table(table)
    assert len(table.entries) == len(keys)


def log_text(ranks: int, *, obeyed: bool) -> str:
    lines = []
    for operation, size, config in check.wanted_keys(ranks):
        name = "".join(part.capitalize() for part in operation.split("_"))
        part = size if operation == "all_reduce" else size // ranks
        choice = f"Algo {config.algorithm.value.upper()} proto {config.protocol.value}"
        last = config.nchannels - 1
        if not obeyed:
            choice, last = "Algo NVLS proto SIMPLE", 15
        lines.append(
            f"h:1:1 [0] NCCL INFO {name}: {part} Bytes -> {choice} channel{{Lo..Hi}}={{0..{last}}}"
        )
    return "\n".join(lines) + "\n"


def good_runs(ranks: int) -> list[check.Run]:
    def run(*logs: str, error: bool = False) -> check.Run:
        result = {"error": "ncclCommInitRank failed"} if error else {"version": 22809}
        return check.Run(tuple(logs), (result,) * ranks)

    default = log_text(ranks, obeyed=False)
    warning = "h:1:1 [0] tuccl:81 NCCL WARN TuCCL: b is damaged; NCCL stays as it is\n"
    refusal = "h:1:1 [0] tuccl:115 NCCL WARN TuCCL: b has CRC 1; must not start together\n"
    silent = [""] * (ranks - 1)
    return [
        run(default, *silent),
        run(log_text(ranks, obeyed=True), *silent),
        run(default + warning, *([warning] * (ranks - 1))),
        run(*([refusal] * ranks), error=True),
    ]


def test_a_good_run_passes_and_each_defect_fails() -> None:
    runs = good_runs(4)
    assert check.judge(4, *runs)["ok"]
    default, tuned, damaged, wrong_sum = runs

    def with_logs(run: check.Run, *logs: str) -> check.Run:
        return dataclasses.replace(run, logs=logs)

    one_other = tuned.logs[0].replace("={0..4}", "={0..3}", 1)
    twice = [log + "NCCL WARN TuCCL: again\n" for log in damaged.logs]
    defects = {
        "every key of the table obeyed": [default, with_logs(tuned, one_other), damaged, wrong_sum],
        "one warning per process with a damaged bundle": [
            default,
            tuned,
            with_logs(damaged, *twice),
            wrong_sum,
        ],
        "defaults with a damaged bundle": [default, tuned, tuned, wrong_sum],
        "runs without errors": [wrong_sum, tuned, damaged, wrong_sum],
        "no start with a wrong sum": [default, tuned, damaged, default],
        "no warning with a good bundle": [default, damaged, damaged, wrong_sum],
    }
    for name, defective in defects.items():
        verdict = check.judge(4, *defective)
        assert not verdict["ok"]
        assert not verdict["checks"][name], name


def test_a_default_that_equals_the_table_shows_nothing() -> None:
    _, tuned, damaged, wrong_sum = good_runs(4)
    assert not check.judge(4, tuned, tuned, damaged, wrong_sum)["ok"]
