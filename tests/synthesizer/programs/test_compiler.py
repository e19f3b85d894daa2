from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables import program_header
from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import HEADER, header_of
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Step, StepRef, StepType
from synthesizer.programs import layout
from synthesizer.programs.compiler import compile_program, packed, program_of, with_explicit_order
from synthesizer.programs.flow import run_on_symbols
from synthesizer.programs.layout import Pattern, pattern_in
from tests.synthesizer.hand_schedules import algorithm as schedule
from tests.synthesizer.hand_schedules import block, i, o, s, step
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.programs.schedules import (
    chain,
    exchange,
    halves,
    read_steps,
    with_blocks,
    with_steps,
)
from tuccl.errors import NoProgramError

ADDRESSES = Path(__file__).parent / "golden" / "experts.txt"
ALL_REDUCE = Collective.ALL_REDUCE


def expert_addresses() -> list[str]:
    """Return the experts on 2 to 8 switched GPUs, each with the checksums of its program."""
    return [
        f"{ranks} {algorithm.name} {crc:08x} {address.hex()}"
        for ranks in range(2, 9)
        for collective in COLLECTIVES
        for algorithm in expert_algorithms(collective, switched(1, ranks))
        for crc, address in [HEADER.unpack_from(compile_program(algorithm))[2:4]]
    ]


@pytest.mark.long
def test_the_programs_of_experts_are_fixed() -> None:
    """The addresses date from programs that were compiled from XML."""
    assert sorted(expert_addresses()) == sorted(ADDRESSES.read_text().splitlines())


def test_the_address_is_of_what_it_does() -> None:
    first, second = compile_program(exchange("first")), compile_program(exchange("second"))
    assert first == second
    assert HEADER.unpack_from(first)[3] != HEADER.unpack_from(compile_program(halves()))[3]


def test_only_awaited_and_completing_steps_are_marked() -> None:
    flags = [step.flags for step in layout.unpacked(compile_program(exchange())).steps]
    assert flags == [0, 0, layout.HAS_DEPENDENT, layout.COMPLETES] * 2


def test_a_root_counts_only_where_the_operation_has_one() -> None:
    assert compile_program(replace(exchange(), root=1)) == compile_program(exchange())


@pytest.mark.parametrize(
    ("algorithm", "pattern"),
    [
        (exchange(), Pattern.ONE_PHASE),
        (halves(), Pattern.TWO_PHASE),
        (replace(halves(), name="one_phase"), Pattern.TWO_PHASE),
        (chain(), Pattern.NONE),
    ],
)
def test_patterns_are_known_by_their_data_flow(algorithm: Algorithm, pattern: Pattern) -> None:
    assert pattern_in(compile_program(algorithm)) is pattern


def of_two(collective: Collective, *steps: Step) -> Algorithm:
    ranks = [[block(0, 1 - rank, 1 - rank, *steps)] for rank in range(2)]
    return schedule(collective, 2, ranks, scratch=1)


def adds_as(**changes: object) -> Algorithm:
    """Return the exchange with changed last steps, which add."""

    def changed(step: Step) -> Step:
        return replace(step, **changes) if step.type is StepType.REDUCE else step  # type: ignore[arg-type]

    return with_steps(exchange(), changed)


S, R = step("s", i(0), o(0)), step("r", o(0))
REFUSED = {
    "not an operation": replace(exchange(), collective=Collective.CUSTOM),
    "in place only": replace(exchange(), out_of_place=False),
    "program 0 is of rank 1": replace(exchange(), programs=exchange().programs[::-1]),
    "threadblock ids must run from 0": with_blocks(
        exchange(), lambda b: replace(b, id=1 - b.id), 1
    ),
    "result chunk 0 holds": adds_as(type=StepType.COPY),
    "waits for threadblock 0 step 3": adds_as(depends=StepRef(0, 3)),
    "waits for threadblock -2 step 0": adds_as(depends=StepRef(-2, 0)),
    "count 0 must be at least 1": adds_as(count=0),
    "moves 65536 chunks": adds_as(count=65536),
    "receive peer 1 is not another rank": with_blocks(
        exchange(), lambda block: replace(block, recv_peer=1)
    ),
    "channel 65536 is not": with_blocks(exchange(), lambda block: replace(block, channel=65536)),
    "no threadblock at one end": with_blocks(
        exchange(), lambda block: replace(block, channel=7), 1
    ),
    "outside the 0 chunks of that buffer": replace(
        exchange(), programs=tuple(replace(g, scratch_chunks=0) for g in exchange().programs)
    ),
    "buffers of .1, 1, -1. chunks": replace(
        exchange(), programs=tuple(replace(g, scratch_chunks=-1) for g in exchange().programs)
    ),
    "root 3 of broadcast": replace(chain(), root=3),
    "deadlock": of_two(ALL_REDUCE, R, S),
    "has 2 sends and 1 receives": of_two(ALL_REDUCE, S, S, R),
    "cpy reads s.0., which holds nothing": of_two(ALL_REDUCE, step("cpy", s(0), o(0))),
    "in the place of chunk 0": of_two(ALL_REDUCE, step("cpy", i(1), o(0))),
    "the caller's send buffer": of_two(ALL_REDUCE, step("cpy", i(0))),
    "i.1..2. outside the 2 chunks": of_two(ALL_REDUCE, step("cpy", i(1), s(0), count=2)),
    "re reads o.0., which holds nothing": of_two(ALL_REDUCE, step("re", i(0), o(0))),
    "a sum of input chunks": of_two(ALL_REDUCE, S, step("rrc", i(1), o(1))),
    "r takes 2 chunks where": of_two(ALL_REDUCE, S, step("r", o(0), count=2)),
    "all_gather does not": of_two(Collective.ALL_GATHER, S, step("rrc", i(0), o(0))),
    "i.0. outside the 0 chunks": of_two(Collective.BROADCAST, S, R),
    "3 chunks": replace(of_two(Collective.ALL_GATHER, S, R), chunks_per_loop=3),
    "33 ranks": schedule(ALL_REDUCE, 1, [[] for _ in range(33)]),
    "81 threadblocks": schedule(
        ALL_REDUCE, 1, [[block(number, -1, -1) for number in range(81)], []]
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_executor_can_run_is_refused(why: str) -> None:
    with pytest.raises(NoProgramError, match=why):
        compile_program(REFUSED[why])
    assert program_of(REFUSED[why]) == b""


def test_a_connection_too_shallow_blocks() -> None:
    def ahead(messages: int) -> Algorithm:
        sends = [step("s", i(c), o(c)) for c in range(messages)]
        takes = [step("rrc", i(c), o(c)) for c in range(messages)]
        ranks = [[block(0, 1 - rank, 1 - rank, *sends, *takes)] for rank in range(2)]
        return schedule(ALL_REDUCE, messages, ranks)

    assert compile_program(ahead(layout.SLOTS))
    with pytest.raises(NoProgramError, match="deadlock"):
        compile_program(ahead(layout.SLOTS + 1))


def test_a_schedule_too_large_for_a_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(compile_program(exchange()))
    monkeypatch.setattr(program_header, "MOST_BYTES", size - 1)
    with pytest.raises(NoProgramError, match=f"{size} bytes, at most {size - 1} are"):
        compile_program(exchange())


def test_unused_places_of_steps_do_not_matter() -> None:
    def elsewhere(step: Step) -> Step:
        nowhere = ChunkRef(Buffer.SCRATCH, -1)
        if step.type is StepType.RECV:
            return replace(step, src=nowhere)
        return replace(step, dst=nowhere) if step.type is StepType.SEND else step

    changed = with_steps(exchange(), elsewhere)
    assert changed != exchange()
    assert compile_program(changed) == compile_program(exchange())


def by_messages_alone() -> Algorithm:
    """Return an all_reduce of two ranks in which only messages order two threadblocks of rank 0.

    The second threadblock reads the chunk that the first wrote before it sent the message that
    rank 1 answers.
    """
    rank_0 = [
        block(0, 1, 1, step("rrcs", i(0), o(0))),
        block(1, 1, 1, step("r", s(0)), step("s", o(0), s(0)), channel=1),
    ]
    rank_1 = [
        block(0, 0, 0, step("s", i(0), o(0)), step("r", o(0))),
        block(1, 0, 0, step("s", o(0), s(0), dep=(0, 1)), step("r", s(0)), channel=1),
    ]
    return schedule(ALL_REDUCE, 1, [rank_0, rank_1], scratch=1)


def test_order_by_messages_becomes_explicit() -> None:
    program = read_steps(compile_program(by_messages_alone()))
    answered = program.programs[0].threadblocks[1].steps
    # The first step receives the answer, the second reads the chunk that was written before.
    assert [(step.type.value, step.depends) for step in answered] == [
        ("r", None),
        ("s", StepRef(0, 0)),
    ]
    assert [step.depends for step in program.programs[1].threadblocks[0].steps] == [None, None]
    assert with_explicit_order(program, run_on_symbols(program).order) is program
    assert packed(program) == compile_program(by_messages_alone())


def test_a_step_that_waits_already_gets_a_nop_before_it() -> None:
    algorithm = by_messages_alone()
    rank_0, rank_1 = algorithm.programs
    first, second = rank_0.threadblocks
    receive, send = second.steps
    idle = replace(first, id=2, send_peer=-1, recv_peer=-1, channel=0, steps=())
    nothing = Step(StepType.NOP, ChunkRef(Buffer.INPUT, -1), ChunkRef(Buffer.OUTPUT, -1), 0)
    blocks = (
        first,
        replace(second, steps=(receive, replace(send, depends=StepRef(2, 0)))),
        replace(idle, steps=(nothing,)),
    )
    waits = replace(algorithm, programs=(replace(rank_0, threadblocks=blocks), rank_1))
    program = read_steps(compile_program(waits))
    steps = program.programs[0].threadblocks[1].steps
    assert [(s.type.value, s.depends) for s in steps] == [
        ("r", None),
        ("nop", StepRef(2, 0)),
        ("s", StepRef(0, 0)),
    ]


def test_the_header_says_what_the_executor_lays_out() -> None:
    head = header_of(compile_program(chain()))
    assert head[1:] == (layout.RUNS_IN_PLACE, 0, 3, 1, 2, 1, 1, 4, 7, 0, 0, 2, 1, 1, 2)
    assert header_of(compile_program(halves())).flags == layout.RUNS_IN_PLACE | layout.AVERAGES
