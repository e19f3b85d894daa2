"""How much device memory a table asks for; figures worked by hand."""

from collections.abc import Callable

import pytest
from kernel_schedules import with_pattern

from lookup_tables.lookup import MAX_SIZE_BYTES
from lookup_tables.table import Entry, NcclProtocol, StoredSchedule
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.layout import Pattern
from tests.runtime.builds import MEMORY, PLANS, STAND_INS, compile_native, run
from tests.runtime.executor_tables import LL, LL128, SIMPLE, bundle_of, entry_of, kernel
from tests.synthesizer.programs.schedules import exchange

pytestmark = pytest.mark.long

Show = Callable[..., list[int]]
MIB = 1 << 20
CUT = (8, 512, 0)


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    """LL: part, phases; LL128: part, phases; programs: LL, LL128, Simple, scratch; all bytes."""
    folder = tmp_path_factory.mktemp("staging")
    program = compile_native(folder / "show", [STAND_INS / "show_staging.cc", *PLANS], *MEMORY)

    def figures(ranks: int, bundle: bytes | None) -> list[int]:
        table = folder / "table.tuccl"
        if bundle is not None:
            table.write_bytes(bundle)
        said = run(program, ranks, *([table] if bundle is not None else []))
        return [int(word) for word in said.split()]

    return figures


Won = tuple[str, str, tuple[int, int], NcclProtocol, tuple[int, int, int]]
"""Operation, pattern, sizes, protocol and cut."""


def of_kernels(ranks: int, *won: Won) -> bytes:
    """A table of what kernels run."""
    entries: list[Entry] = []
    schedules: list[StoredSchedule] = []
    for operation, pattern, sizes, protocol, cut in won:
        schedules.append(kernel(ranks, operation, pattern))
        entries.append(entry_of(schedules[-1], sizes, protocol, cut))
    return bundle_of(entries, schedules)


def empty() -> bytes:
    return bundle_of([], [])


def test_a_table_without_a_schedule_needs_nothing(show: Show) -> None:
    assert show(4, empty())[:8] == [0] * 8
    assert show(4, empty())[8] < MIB / 4  # The state that launches share.


def test_lines_of_the_largest_message(show: Show) -> None:
    least = show(4, empty())[8]
    # 65536 bytes are 8192 lines of 16 bytes from each of 4 ranks, in two halves.
    small = show(4, of_kernels(4, ("all_reduce", "one_phase", (1, 65536), LL, CUT)))
    assert small == [131072, 1, 0, 0, 0, 0, 0, 0, least + 2 * 4 * 131072]
    # A shard is 262144 bytes, 547 pieces of 512; there are two phases.
    middle = show(4, of_kernels(4, ("all_reduce", "two_phase", (1, 1048576), LL128, CUT)))
    assert middle == [0, 0, 280064, 2, 0, 0, 0, 0, least + 2 * 2 * 4 * 280064]
    # A part is whole pieces of LL128 under LL too.
    gather = of_kernels(3, ("all_gather", "direct", (1, 100), LL, (1, 32, 0)))
    assert show(3, gather)[:2] == [512, 1]


def test_the_largest_of_all_entries_counts(show: Show) -> None:
    table = of_kernels(
        2,
        ("all_reduce", "two_phase", (1, 4096), LL, CUT),
        ("all_reduce", "one_phase", (4097, 8192), LL, CUT),
        ("alltoall", "direct", (1, 4096), LL128, CUT),
    )
    assert show(2, table)[:4] == [16384, 2, 2560, 1]


def test_messages_beyond_the_most_are_cut(show: Show) -> None:
    table = of_kernels(
        4,
        ("all_gather", "direct", (1, 64 * MIB), LL128, CUT),
        ("all_reduce", "one_phase", (1, MAX_SIZE_BYTES), LL, CUT),
    )
    assert show(4, table)[:4] == [MIB, 1, 18 * MIB // 4, 1]
    whole = show(4, None)
    assert whole[:8] == [MIB, 2, 18 * MIB // 4, 2, *(many * MIB for many in (8, 16, 32, 32))]
    assert whole[8] == (2 * 2 * 22 + 2 * 56 + 32) * MIB + show(4, empty())[8]


def test_ranks_beyond_the_kernels_take_no_lines_of_patterns(show: Show) -> None:
    # An area is divided among the ranks that send there.
    assert show(16, None)[:4] == [MIB // 4, 2, 18 * MIB // 16, 2]
    assert show(17, None)[:8] == [0] * 4 + [many * MIB for many in (8, 16, 32, 32)]
    assert show(32, None)[8] == (2 * 56 + 32) * MIB + show(32, empty())[8]
    # Credits of 32 ranks, 512 words each, however many there are.
    assert show(32, empty())[8] == show(8, empty())[8]


def test_a_program_needs_its_connections(show: Show) -> None:
    program = with_pattern(compile_program(exchange()), Pattern.NONE)
    schedule = StoredSchedule("5a5a", "exchange", "", program)
    cut = 2, 64, 65536
    # One connection a rank, in two instances, of 65536 bytes; a scratch chunk's tile is a slot, and
    # there are two of each.
    simple = show(2, bundle_of([entry_of(schedule, (1, 1000), SIMPLE, cut)], [schedule]))
    assert simple[:8] == [0, 0, 0, 0, 0, 0, 131072, 32768]
    assert simple[8] == show(2, empty())[8] + 2 * 131072 + 32768
    low_latency = entry_of(schedule, (1, 1000), LL, cut)
    assert show(2, bundle_of([low_latency], [schedule]))[:8] == [0, 0, 0, 0, 131072, 0, 0, 16384]
    by_kernel = StoredSchedule("5a5a", "exchange", "", compile_program(exchange()))
    assert show(2, bundle_of([low_latency], [by_kernel]))[:8] == [2048, 1, 0, 0, 0, 0, 0, 0]
    without = StoredSchedule("5a5a", "exchange", "", b"")
    assert show(2, bundle_of([low_latency], [without]))[:8] == [0] * 8
