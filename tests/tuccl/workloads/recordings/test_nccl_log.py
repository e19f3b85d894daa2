"""NCCL's log: which lines are calls, of what size, and which pointers are one communicator."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.workloads.recordings.written_logs import call, init, prefix, workload
from tuccl.workloads.workload import Datatype, Reduction

BOTH = init(0, 2) + init(1, 2)


def both(**figures: object) -> str:
    """A call of two ranks."""
    return call(0, 2, **figures) + call(1, 2, **figures)  # type: ignore[arg-type]


def test_a_call_of_all_ranks_counts_once(tmp_path: Path) -> None:
    found = workload(tmp_path, BOTH + both() * 3)
    (only,) = found.calls
    assert (only.operation, only.datatype, only.reduction) == (
        Collective.ALL_REDUCE,
        Datatype.FLOAT32,
        Reduction.SUM,
    )
    assert (only.size_bytes, only.calls_per_step, only.in_place) == (4096, 3, True)
    assert (only.ranks, only.nodes, only.siblings) == (2, 1, 1)
    assert (only.graph, only.us_per_call) == (None, None)
    assert (found.ranks, found.nodes, found.steps) == (2, 1, None)


@pytest.mark.parametrize(
    ("operation", "size_bytes"),
    [
        ("AllReduce", 4096),
        ("Broadcast", 4096),
        ("Reduce", 4096),
        ("AllGather", 8192),
        ("ReduceScatter", 8192),
        ("AlltoAll", 8192),
        ("mscclpp_ncclAllGather", 8192),
    ],
)
def test_sizes_are_those_of_nccl_tests(tmp_path: Path, operation: str, size_bytes: int) -> None:
    (only,) = workload(tmp_path, BOTH + both(operation=operation)).calls
    assert only.size_bytes == size_bytes


@pytest.mark.parametrize(
    ("number", "name"), [(0, "sum"), (4, "avg"), (5, "custom"), (77, "custom")]
)
def test_reductions(tmp_path: Path, number: int, name: str) -> None:
    (only,) = workload(tmp_path, BOTH + both(op=number)).calls
    assert only.reduction == name


def test_operations_without_a_reduction_have_none(tmp_path: Path) -> None:
    (only,) = workload(tmp_path, BOTH + both(operation="AllGather")).calls
    assert only.reduction is None


@pytest.mark.parametrize(
    ("operation", "send", "receive", "in_place"),
    [
        ("AllReduce", 0x1000, 0x1000, True),
        ("AllReduce", 0x1000, 0x2000, False),
        ("AllGather", 0x3000, 0x2000, True),
        ("AllGather", 0x2000, 0x2000, False),  # The part of rank 0.
        ("AllGather", 0x9000, 0x2000, False),
        ("ReduceScatter", 0x2000, 0x3000, True),
        ("ReduceScatter", 0x2000, 0x2000, False),
        ("AlltoAll", 0x2000, 0x2000, True),
    ],
)
def test_calls_in_place(
    tmp_path: Path, operation: str, send: int, receive: int, in_place: bool
) -> None:
    line = call(1, 2, operation=operation, send=send, receive=receive)
    (only,) = workload(tmp_path, BOTH + line).calls
    assert only.in_place is in_place


def test_without_a_rank_any_part_is_in_place(tmp_path: Path) -> None:
    assert [
        workload(tmp_path, call(1, 2, operation="AllGather", send=send, receive=0x2000))
        .calls[0]
        .in_place
        for send in (0x2000, 0x3000, 0x3800, 0x4000, 0x1000)
    ] == [True, True, False, False, False]


def test_communicators_of_equal_shape_are_siblings(tmp_path: Path) -> None:
    """Four ranks in two groups of two: each rank calls in one of them."""
    text = "".join(init(rank, 4, comm="0xb0", comm_id="0x1") for rank in range(4))
    for rank in range(4):
        ready = init(rank, 2, comm=f"0xc{rank}", comm_id=f"0x2{rank // 2}")
        text += ready.replace(f"rank {rank} ", f"rank {rank % 2} ")
        text += call(rank, 2, comm=f"0xc{rank}") * 5
    text += "".join(call(rank, 4, comm="0xb0") for rank in range(4))
    found = workload(tmp_path, text)
    assert [(each.ranks, each.siblings, each.calls_per_step) for each in found.calls] == [
        (4, 1, 1),
        (2, 2, 5),
    ]
    assert (found.ranks, found.nodes) == (4, 1)


def test_two_communicators_of_the_same_ranks_add_up(tmp_path: Path) -> None:
    text = BOTH + both() * 2
    for rank in range(2):
        text += init(rank, 2, comm="0xb0", comm_id="0xbeef") + call(rank, 2, comm="0xb0") * 3
    (only,) = workload(tmp_path, text).calls
    assert (only.calls_per_step, only.siblings) == (5, 1)


def test_a_pointer_that_comes_again_is_another_communicator(tmp_path: Path) -> None:
    gone = f"{prefix(0)}comm 0xa0 rank 0 nranks 2 cudaDev 0 busId 1000 - Destroy COMPLETE\n"
    again = init(0, 4, comm_id="0xbeef") + call(0, 4)
    found = workload(tmp_path, init(0, 2) + call(0, 2) * 2 + gone + again)
    assert [(each.ranks, each.calls_per_step) for each in found.calls] == [(4, 1), (2, 2)]


def split_line(rank: int, color: int, version: str) -> str:
    place = {"2.22": "", "2.23": "", "2.27": "splitCount 1 ", "2.30": "childCount 1 "}[version]
    end = "key 0 commId 0xabc - Init COMPLETE" if version == "2.22" else "key 0- Init START"
    return (
        f"{prefix(rank)}ncclCommSplit comm 0xd{rank} rank {rank % 2} nranks 2 cudaDev {rank} "
        f"nvmlDev {rank} busId 1000 parent 0xa0 {place}color {color} {end}\n"
    )


@pytest.mark.parametrize("version", ["2.22", "2.23", "2.27", "2.30"])
def test_ranks_of_a_split_communicator_are_told_by_color(tmp_path: Path, version: str) -> None:
    text = "".join(init(rank, 4) for rank in range(4))
    colors = (7, 7, -3, -3)
    for rank, color in enumerate(colors):
        text += split_line(rank, color, version).replace("0xabc", f"{abs(color):#x}")
        # The second group calls more, so that calls alone would not tell them apart.
        text += call(rank, 2, comm=f"0xd{rank}") * 4
    (only,) = workload(tmp_path, text).calls
    assert (only.ranks, only.siblings, only.calls_per_step) == (2, 2, 4)


def test_nodes_by_hosts_and_by_the_line_that_counts_them(tmp_path: Path) -> None:
    hosts = init(0, 2, host="left") + init(1, 2, host="right")
    (only,) = workload(tmp_path, hosts + call(0, 2, host="left")).calls
    assert only.nodes == 2  # The second rank is silent, but its host is known.
    unseen = init(0, 2, host="left") + call(0, 2, host="left")
    (only,) = workload(tmp_path, unseen).calls
    assert only.nodes is None
    counted = f"{prefix(0)}comm 0xa0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"
    (only,) = workload(tmp_path, counted + init(0, 16) + call(0, 16)).calls
    assert (only.ranks, only.nodes) == (16, 2)


@pytest.mark.parametrize(
    "before",
    [
        "(RayTrainWorker pid=615, ip=10.72.7.6) ",
        "[default0]:",
        "2: ",
        "2025-07-25 19:54:57.101122 ",
        "[2025-07-25 19:54:57] ",
        "> ",
        "-1",  # Output of nccl-tests without a line's end.
    ],
)
def test_prefixes_of_launchers(tmp_path: Path, before: str) -> None:
    (only,) = workload(tmp_path, BOTH + both() + before + call(0, 2) + call(1, 2)).calls
    assert only.calls_per_step == 2


def test_lines_that_look_alike_are_no_calls(tmp_path: Path) -> None:
    text = BOTH + both()
    text += f"{prefix(0)}AllReduce: 4096 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}\n"
    text += "node0:1000:2000 NCCL CALL ncclAllReduce(7f00,7f00,1024,7,0,0,a0,55f1)\n"
    text += "## [12.5] [00:00] 000001 KL HWID 4230c540 ncclDevFunc_AllReduce nRanks 2\n"
    found = workload(tmp_path, text)
    assert [each.calls_per_step for each in found.calls] == [1]
    assert found.source.left_out == ()


def test_garbled_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    whole = call(0, 2)
    text = init(0, 2) + init(1, 2, comm="0xa1") + whole + call(1, 2, comm="0xa1")
    text += prefix(1) + whole  # Two ranks wrote one line: the second message is whole.
    text += whole[whole.index("AllReduce") :]  # The prefix is lost, the pointer is known.
    text += whole[: whole.index("comm")] + "\n"
    found = workload(tmp_path, text)
    assert found.calls[0].calls_per_step == 3
    assert [what.rpartition(": ")[2] for what in found.source.left_out] == ["1"]


def test_rccl_lines(tmp_path: Path) -> None:
    line = call(0, 2).replace(" count ", " acc (nil) count ")
    line = line.replace("\n", " task 0 globalrank 0\n")
    ready = init(0, 2).replace("ncclCommInitRankConfig", "ncclCommInitRankConfig_impl")
    (only,) = workload(tmp_path, ready + line * 2).calls
    assert only.calls_per_step == 2


def test_point_to_point_calls_are_not_tuned(tmp_path: Path) -> None:
    send = call(0, 2, operation="Send", count=100)
    receive = call(1, 2, operation="Recv", count=100)
    found = workload(tmp_path, BOTH + both() + send * 4 + receive * 4)
    assert [
        (each.operation, each.calls_per_step, each.bytes_per_step) for each in found.not_tuned
    ] == [
        ("recv", 2, 800),
        ("send", 2, 800),
    ]
    assert found.bytes_per_step == 4096 + 1600


def test_without_init_lines_equal_calls_are_one_communicator(tmp_path: Path) -> None:
    """A log that was cut has fewer calls of some ranks; the longest counts."""
    text = call(0, 4) * 5 + call(1, 4) * 5 + call(2, 4) * 3 + call(3, 4, host="node1") * 5
    (only,) = workload(tmp_path, text).calls
    assert (only.calls_per_step, only.siblings, only.nodes) == (5, 1, 2)


def test_without_init_lines_more_ranks_than_a_communicator_has_are_siblings(tmp_path: Path) -> None:
    (only,) = workload(tmp_path, "".join(call(rank, 2) for rank in range(8))).calls
    assert (only.calls_per_step, only.siblings) == (1, 4)


def test_steps_by_the_period_of_calls(tmp_path: Path) -> None:
    warmed = BOTH + both(operation="Broadcast", count=9)
    for _ in range(10):
        warmed += both(count=1000) + both(count=2000) * 2
    found = workload(tmp_path, warmed)
    assert found.steps == 10
    assert [each.calls_per_step for each in found.calls] == [0.1, 1, 2]
    assert workload(tmp_path, warmed, steps=5).calls[2].calls_per_step == 4


def job_of_four_ranks() -> list[str]:
    """The logs of two nodes of two ranks: groups within each node, and along each rail."""
    texts = []
    for rank in range(4):
        host, local = f"node{rank // 2}", rank % 2
        text = init(rank, 4, host=host)
        for comm, place, color, own in (
            ("0xd0", 1, rank // 2, local),
            ("0xe0", 2, local, rank // 2),
        ):
            text += (
                f"{prefix(rank, host)}ncclCommSplit comm {comm} rank {own} nranks 2 cudaDev {rank} "
                f"nvmlDev 0 busId 1000 parent 0xa0 splitCount {place} color {color} key {own} - "
                "Init COMPLETE\n"
            )
        for _ in range(6):
            text += call(rank, 2, comm="0xd0", host=host) * 3
            text += call(rank, 2, comm="0xe0", operation="ReduceScatter", host=host)
        texts.append(text + call(rank, 4, count=1, host=host))
    return texts


def test_logs_of_all_ranks_in_any_order_and_in_one_file_are_the_same(tmp_path: Path) -> None:
    texts = job_of_four_ranks()
    whole = workload(tmp_path, *texts)
    assert [
        (each.operation.value, each.ranks, each.nodes, each.siblings, each.calls_per_step)
        for each in whole.calls
    ] == [
        ("all_reduce", 4, 2, 1, pytest.approx(1 / 6)),
        ("all_reduce", 2, 1, 2, 3),
        ("reduce_scatter", 2, 2, 2, 1),
    ]
    assert (whole.ranks, whole.nodes, whole.steps) == (4, 2, 6)
    for others in (texts[::-1], ["".join(texts)], ["".join(texts[2:]), "".join(texts[:2])]):
        found = workload(tmp_path, *others)
        assert (found.calls, found.ranks, found.nodes, found.steps) == (
            whole.calls, whole.ranks, whole.nodes, whole.steps,
        )  # fmt: skip


def test_the_log_of_one_rank_has_the_same_calls(tmp_path: Path) -> None:
    first, *_ = job_of_four_ranks()
    found = workload(tmp_path, first)
    assert [(each.ranks, each.siblings, each.calls_per_step) for each in found.calls] == [
        (4, 1, pytest.approx(1 / 6)),
        (2, 1, 1),
        (2, 1, 3),
    ]
    assert found.steps == 6
