"""The division of calls across hosts into slices; figures worked by hand."""

from pathlib import Path

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from sketches.candidates import whole_machine
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Buffer
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.cutting import cut
from synthesizer.programs.layout import Pattern, PhaseKind
from synthesizer.programs.phase_plans import phased_plans, plan_by_name
from synthesizer.programs.phases import CallPhase, PhasedSchedule, Place
from synthesizer.programs.proof import Proof
from synthesizer.programs.records import records_of
from tests.runtime.builds import MEMORY, PLANS, STAND_INS, compile_native, run
from tests.runtime.executor_tables import LL, bundle_of, phased_entry, phased_schedule
from tests.sketches.machines import cluster

pytestmark = pytest.mark.long

UINT8, INT32, FLOAT16, FLOAT64 = 1, 2, 6, 8
MIB = 1 << 20
ALL_REDUCE, ALL_GATHER = Collective.ALL_REDUCE, Collective.ALL_GATHER
REDUCE_SCATTER, ALLTOALL = Collective.REDUCE_SCATTER, Collective.ALLTOALL


class Show:
    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder

    def _run(self, *words: object) -> list[str]:
        return run(self._program, *words).splitlines()

    def call(
        self, phased: PhasedSchedule, count: int, type_: int, buffer_bytes: int = 0
    ) -> tuple[list[int], list[str]]:
        """Return slices, elements, left over, window, windows, scratch bytes; and the calls."""
        file = self._folder / "program"
        file.write_bytes(records_of(phased, Proof(True, False)).packed())
        first, *calls = self._run("call", file, count, type_, buffer_bytes)
        return [int(word) for word in first.split()], calls

    def steps(self, phased: PhasedSchedule, rank: int) -> list[str]:
        """Return the steps of a rank in all stages."""
        file = self._folder / "program"
        file.write_bytes(compile_program(phased))
        return self._run("stage", file, len(phased.node_sizes), phased.node_sizes[0], rank)

    def need(self, bundle: bytes, nodes: int, local_ranks: int) -> tuple[list[int], list[str]]:
        """Return scratch bytes and staging figures; and the calls that need more."""
        file = self._folder / "table.tuccl"
        file.write_bytes(bundle)
        first, *lacking = self._run("need", file, nodes, local_ranks)
        return [int(word) for word in first.split()], lacking


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    folder = tmp_path_factory.mktemp("phase_plan")
    sources = [STAND_INS / "show_phase_plan.cc", *PLANS]
    return Show(compile_native(folder / "show", sources, *MEMORY), folder)


def test_one_slice_of_all_reduce(show: Show) -> None:
    plan = plan_by_name(ALL_REDUCE, "exchange", 2, 2)
    figures, calls = show.call(plan, 100, INT32)
    # Two chunks of 50 elements, of which three lie in the window: 600 bytes, two grains.
    assert figures == [1, 100, 0, 1024, 1, 1024]
    assert calls == [
        "0 0 i0 s0 50 0",  # reduce_scatter of both chunks
        "0 1 s0 s200 50 0",  # all_gather along the rail
        "0 2 s200 s0 50 0",  # sum
        "0 3 s0 o0 50 0",  # all_gather inside the node
    ]


def test_slices_of_all_reduce_are_contiguous_and_whole_16_bytes(show: Show) -> None:
    plan = plan_by_name(ALL_REDUCE, "rail_all_reduce", 2, 2)
    # 1000 bytes in three slices: 334 bytes, rounded up to 2 chunks of 16 bytes: 352.
    figures, calls = show.call(plan, 250, INT32, 400)
    assert figures == [3, 88, 0, 512, 3, 1536]
    assert calls == [
        *("0 0 i0 s0 44 0", "0 1 s0 s0 44 0", "0 2 s0 o0 44 0"),
        *("1 0 i352 s512 44 0", "1 1 s512 s512 44 0", "1 2 s512 o352 44 0"),
        *("2 0 i704 s1024 37 0", "2 1 s1024 s1024 37 0", "2 2 s1024 o704 37 0"),
    ]


def test_windows_are_used_again(show: Show) -> None:
    plan = plan_by_name(ALL_REDUCE, "exchange", 2, 2)
    figures, calls = show.call(plan, 6 * 32, UINT8, 32)
    assert figures == [6, 32, 0, 512, 4, 2048]  # As many windows as phases.
    assert [line.split()[3] for line in calls[::4]] == [
        *("s0", "s512", "s1024", "s1536", "s0", "s512")
    ]


def test_the_elements_left_over(show: Show) -> None:
    plan = plan_by_name(ALL_REDUCE, "rail_all_reduce", 2, 4)
    figures, calls = show.call(plan, 1003, FLOAT16, 1024)
    # 1000 elements in two slices of 500, rounded up to 4 chunks of 8 elements.
    assert figures == [2, 512, 3, 512, 2, 2 * 512 + 512]
    assert calls[:3] == ["0 0 i0 s0 128 0", "0 1 s0 s0 128 0", "0 2 s0 o0 128 0"]
    assert calls[3:6] == ["1 0 i1024 s512 122 0", "1 1 s512 s512 122 0", "1 2 s512 o1024 122 0"]
    assert calls[6:] == ["local i2000 s1024 3 0", "rail s1024 o2000 3 0"]


def test_calls_smaller_than_a_chunk_are_left_over_alone(show: Show) -> None:
    plan = plan_by_name(ALL_REDUCE, "exchange", 2, 8)
    figures, calls = show.call(plan, 7, FLOAT64, 4)
    assert figures == [0, 16, 7, 512, 0, 512]
    assert calls == ["local i0 s0 7 0", "rail s0 o0 7 0"]


def test_many_chunks_leave_many_elements_over(show: Show) -> None:
    """A plan of its own may divide a buffer into so many chunks that they need their room."""
    scatter = CallPhase(
        *(PhaseKind.LOCAL, REDUCE_SCATTER, Place(Buffer.INPUT, 0), Place(Buffer.SCRATCH, 0)),
        chunks=500,
        pattern=Pattern.DIRECT,
    )
    phased = PhasedSchedule("by hand", ALL_REDUCE, (2, 2), 1000, (500,), (scatter,))
    figures, calls = show.call(phased, 1999, FLOAT64)
    assert figures == [1, 1000, 999, 4096, 1, 4096 + 8192]
    assert calls[1:] == ["local i8000 s4096 999 0", "rail s4096 o8000 999 0"]


def test_a_full_plan_has_nothing_left_over(show: Show) -> None:
    for name in ("rail_all_reduce_full", "exchange_full"):
        assert show.call(plan_by_name(ALL_REDUCE, name, 3, 4), 1, UINT8)[0][2] == 0


def test_slices_of_all_gather_stride_through_the_output(show: Show) -> None:
    plan = plan_by_name(ALL_GATHER, "rails_first", 2, 3)
    # The table counts 6 x 100 bytes: two slices of 50, rounded up to 16.
    figures, calls = show.call(plan, 100, UINT8, 300)
    assert figures == [2, 64, 0, 512, 2, 1024]
    assert calls == [
        *("0 0 i0 s0 64 0", "0 1 s0 o0 64 100", "0 1 s64 o300 64 100"),
        *("1 0 i64 s512 36 0", "1 1 s512 o64 36 100", "1 1 s548 o364 36 100"),
    ]
    # One slice: blocks are adjacent.
    assert show.call(plan, 100, UINT8, 600)[1] == [
        *("0 0 i0 s0 100 0", "0 1 s0 o0 100 0", "0 1 s100 o300 100 0")
    ]


def test_slices_of_reduce_scatter_stride_through_the_input(show: Show) -> None:
    plan = plan_by_name(REDUCE_SCATTER, "exchange", 2, 2)
    figures, calls = show.call(plan, 20, INT32, 160)
    assert figures == [2, 12, 0, 512, 2, 1024]
    assert calls == [
        *("0 0 i0 s0 12 80", "0 0 i160 s48 12 80", "0 1 s0 s96 12 0", "0 2 s96 o0 12 0"),
        *("1 0 i48 s512 8 80", "1 0 i208 s544 8 80", "1 1 s512 s576 8 0", "1 2 s576 o48 8 0"),
    ]


def test_what_lies_apart_in_the_jobs_buffers_is_not_sliced(show: Show) -> None:
    alltoall = plan_by_name(ALLTOALL, "rails_last", 2, 2)
    figures, calls = show.call(alltoall, 10, INT32, 16)
    assert figures == [1, 10, 0, 512, 1, 512]
    assert calls == ["0 0 i0 s0 10 0", "0 0 i80 s80 10 0", "0 1 s0 o0 20 0"]
    alone = plan_by_name(REDUCE_SCATTER, "exchange", 4, 1)
    assert show.call(alone, 1000, INT32, 16)[0][0] == 1


def test_what_is_read_from_the_output_is_not_sliced_either(show: Show) -> None:
    gathers = CallPhase(
        *(PhaseKind.LOCAL, ALL_GATHER, Place(Buffer.INPUT, 0), Place(Buffer.OUTPUT, 0)),
        pattern=Pattern.DIRECT,
    )
    crosses = CallPhase(
        *(PhaseKind.RAIL, ALL_GATHER, Place(Buffer.OUTPUT, 0), Place(Buffer.SCRATCH, 0)), chunks=2
    )
    phased = PhasedSchedule("by hand", ALL_GATHER, (2, 2), 1, (4,), (gathers, crosses))
    figures, calls = show.call(phased, 100, UINT8, 100)
    assert figures[0] == 1
    assert calls == ["0 0 i0 o0 100 0", "0 1 o0 s0 200 0"]


def test_there_are_at_most_64_slices(show: Show) -> None:
    plan = plan_by_name(ALL_REDUCE, "exchange", 4, 1)
    assert show.call(plan, MIB, UINT8, 1)[0] == [64, MIB // 64, 0, MIB // 16, 2, 2 * MIB // 16]
    # Rounding makes slices larger, and fewer.
    assert show.call(plan, 100, UINT8, 1)[0][:2] == [7, 16]


def table_of(plan: PhasedSchedule, sizes: tuple[int, int], buffer_bytes: int) -> bytes:
    schedule = phased_schedule(plan)
    return bundle_of([phased_entry(plan, schedule, sizes, LL, (4, 128, buffer_bytes))], [schedule])


def test_memory_between_phases_for_a_table(show: Show) -> None:
    plan = plan_by_name(ALL_REDUCE, "rail_all_reduce", 2, 2)
    # A megabyte in one slice: half of it is a chunk.
    figures, _ = show.call(plan, MIB, UINT8, MIB)
    assert figures[5] == MIB // 2
    assert show.need(table_of(plan, (1, MIB), MIB), 2, 2)[0][0] == MIB // 2 + 512
    # In slices of 64 KiB three windows of 32 KiB.
    assert show.need(table_of(plan, (1, MIB), 65536), 2, 2)[0][0] == 3 * 32768 + 512


@pytest.mark.parametrize(
    ("nodes", "local_ranks"),
    [
        *((2, 1), (2, 2), (3, 3), (2, 8)),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((3, 1), (3, 2), (2, 3), (3, 8))),
    ],
)
def test_every_size_of_a_table_has_its_memory(show: Show, nodes: int, local_ranks: int) -> None:
    plans = [
        laned
        for each in COLLECTIVES
        for plan in phased_plans(each, nodes, local_ranks)
        for laned in (plan, plan.with_lanes(2), plan.with_lanes(8))
    ]
    assert plans
    for plan in plans:
        for sizes, buffer_bytes in [
            ((1, 1000), 0),
            ((1, 100_000), 31_000),
            ((5000, 100_000), 1000),
            ((1, 3_333_333), 1_000_000),
            ((777, 50_001), 7),
        ]:
            table = table_of(plan, sizes, buffer_bytes)
            assert show.need(table, nodes, local_ranks)[1] == [], (plan.name, sizes, buffer_bytes)


def in_stages(collective: Collective) -> PhasedSchedule:
    """Return a schedule of two nodes of three GPUs: inside the nodes, along rails, inside."""
    machine = whole_machine(cluster(2, 3, 3))
    (found,) = (
        each
        for each in expert_algorithms(collective, machine)
        if each.name == f"{collective}_hierarchical_1c"
    )
    return cut(found, (3, 3))


def test_ranks_send_before_they_look_for_messages_that_they_do_not_need(show: Show) -> None:
    for rank in range(6):
        kinds = [step.split()[0] for step in show.steps(in_stages(ALL_GATHER), rank)]
        # To both others of the node, and again what came along the rail.
        assert kinds == [*("s", "s", "cpy", "r", "r"), *("s", "s", "r", "r")]


def test_a_rank_receives_what_it_sends_on_before_it_sends(show: Show) -> None:
    for rank in range(6):
        kinds = [step.split()[0] for step in show.steps(in_stages(ALL_REDUCE), rank)]
        assert kinds[:2] == ["s", "s"], "its own input needs no message"
        last_sum = max(i for i, kind in enumerate(kinds) if kind in {"rrc", "re"})
        # Sums of the other node's half, which it sends on; then those that came by the rail.
        assert kinds[last_sum + 1 :] == ["s", "s", "r", "r"] * 2
