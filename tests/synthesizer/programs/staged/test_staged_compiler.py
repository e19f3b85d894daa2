"""Staged programs as bytes: what is written is read again, what is wrong is refused."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lookup_tables.program_header import check_seal, is_phased, is_staged, sealed
from synthesizer.experts.gateways import Gateways, programs_over
from synthesizer.experts.halving_doubling import doubling_all_reduce
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Statement
from synthesizer.lower.lowering import lower
from synthesizer.programs.layout import AVERAGES, RUNS_IN_PLACE
from synthesizer.programs.reader import read_program
from synthesizer.programs.staged import staged_form
from synthesizer.programs.staged.completion import completion_of
from synthesizer.programs.staged.cutting import cut
from synthesizer.programs.staged.staged_compiler import compile_staged, read_staged
from synthesizer.programs.staged.staged_form import check_staged_form
from synthesizer.programs.staged.staged_layout import (
    COMPLETES,
    HEADER,
    ITEM,
    RANK,
    STATEMENT,
    packed_staged,
    unpacked_staged,
)
from synthesizer.programs.staged.staged_proof import prove_staged
from synthesizer.programs.staged.staged_schedule import StagedSchedule
from tests.synthesizer.programs.staged.staged_runs import run_in_order
from tuccl.errors import NoProgramError, TableError

GATEWAYS = Gateways(((0, 1, 2), (3,)), ((0, 3), (2, 3)))
COLLECTIVES: list[Collective] = [
    collective
    for collective in Collective
    if collective not in {Collective.CUSTOM, Collective.ALLTOALL}
]
EVERY = [*COLLECTIVES, Collective.ALLTOALL]


def staged_over_gateways(collective: Collective) -> StagedSchedule:
    (_, program), *_ = programs_over(GATEWAYS, collective, 1 if collective.has_root else 0)
    return cut(lower(program, "over gateways"), (3, 1))


GOLDEN = Path(__file__).parents[1] / "golden" / "staged.program.hex"


def _at(rank: int, buffer: Buffer, first: int = 0, count: int = 1) -> Chunk:
    return Chunk(rank, buffer, first, count)


def by_hand() -> StagedSchedule:
    """Return an all_reduce of 2 + 1 ranks: rank 0 adds up its node and exchanges with rank 2."""
    first, alone = _at(0, Buffer.OUTPUT), _at(2, Buffer.OUTPUT)
    return StagedSchedule(
        collective=Collective.ALL_REDUCE,
        node_sizes=(2, 1),
        chunks=1,
        root=0,
        scratch_chunks=(2, 0, 1),
        stages=(
            (Statement(_at(1, Buffer.INPUT), _at(0, Buffer.SCRATCH), _at(0, Buffer.INPUT), 0),),
            (
                Statement(_at(0, Buffer.SCRATCH), first, None, 0),
                Statement(Chunk(0, Buffer.SCRATCH, 1), first, first, 0),
                Statement(first, _at(1, Buffer.OUTPUT), None, 0),
                Statement(_at(2, Buffer.INPUT), alone, None, 0),
                Statement(_at(2, Buffer.SCRATCH), alone, alone, 0),
            ),
        ),
        rounds=(
            (
                Statement(_at(0, Buffer.SCRATCH), _at(2, Buffer.SCRATCH), None, 0),
                Statement(_at(2, Buffer.INPUT), Chunk(0, Buffer.SCRATCH, 1), None, 0),
            ),
        ),
    )


def test_no_chunk_lies_in_the_place_of_another_in_the_output() -> None:
    """The last chunk of a call may be shorter: what lies in its place for a while would be cut."""
    staged = StagedSchedule(
        collective=Collective.BROADCAST,
        node_sizes=(1, 1),
        chunks=2,
        root=0,
        scratch_chunks=(0, 0),
        stages=(
            (Statement(_at(0, Buffer.INPUT, 0, 2), _at(0, Buffer.OUTPUT, 0, 2), None, 0),),
            (Statement(_at(1, Buffer.OUTPUT, 1), _at(1, Buffer.OUTPUT), None, 0),),
            (),
        ),
        rounds=(
            (Statement(_at(0, Buffer.INPUT), _at(1, Buffer.OUTPUT, 1), None, 0),),
            (Statement(_at(0, Buffer.INPUT, 1), _at(1, Buffer.OUTPUT, 1), None, 0),),
        ),
    )
    prove_staged(staged)
    with pytest.raises(NoProgramError, match="rank 1 keeps chunk 0 in the place of chunk 1"):
        compile_staged(staged)


def test_the_bytes_of_a_staged_program_are_fixed() -> None:
    """Deployed loaders read these bytes: a change needs a new version."""
    wanted = bytes.fromhex(GOLDEN.read_text())
    assert compile_staged(by_hand()) == wanted
    assert read_staged(wanted, "golden") == by_hand()
    assert len(wanted) == 72 + 3 * 8 + 3 * 8 + 8 * 24


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_bytes_are_read_as_they_were_written(collective: Collective) -> None:
    staged = staged_over_gateways(collective)
    data = compile_staged(staged)
    check_seal(data)
    assert is_staged(data)
    assert not is_phased(data)
    assert read_staged(data, "t") == staged
    statements = sum(len(each) for _, each in staged.in_order())
    records = HEADER.size + 4 * RANK.size + 3 * ITEM.size + statements * STATEMENT.size
    assert len(data) == records


def test_averages_are_divided_where_sums_are_complete() -> None:
    staged = cut(lower(doubling_all_reduce(((0, 1), (2, 3))), "doubling"), (2, 2))
    completion = completion_of(staged)
    assert completion.is_whole
    # The sums of the last stage, one on each rank.
    assert {number for number, _ in completion.statements} == {2}
    assert len(completion.statements) == 4
    data = compile_staged(staged)
    assert HEADER.unpack_from(data)[8] == RUNS_IN_PLACE | AVERAGES
    first = len(data) - 4 * STATEMENT.size
    flags = [raw[0] for raw in STATEMENT.iter_unpack(data[first:])]
    assert sum(1 for each in flags if each & COMPLETES) == 4
    gather = compile_staged(staged_over_gateways(Collective.ALL_GATHER))
    assert HEADER.unpack_from(gather)[8] == RUNS_IN_PLACE


def test_a_statement_that_completes_some_of_its_sums_divides_none() -> None:
    staged = cut(lower(doubling_all_reduce(((0,), (1,))), "doubling"), (1, 1))
    wider = replace(staged, chunks=2, scratch_chunks=(2, 2))
    # Chunk 1 is added up in two statements, chunk 0 with a part of it in the second.
    copies = (
        Statement(Chunk(1, Buffer.INPUT, 0, 2), Chunk(0, Buffer.SCRATCH, 0, 2), None, 0),
        Statement(Chunk(0, Buffer.INPUT, 0, 2), Chunk(1, Buffer.SCRATCH, 0, 2), None, 0),
    )
    sums = tuple(
        Statement(
            Chunk(rank, Buffer.INPUT, 0, 2),
            Chunk(rank, Buffer.SCRATCH, 0, 2),
            Chunk(rank, Buffer.SCRATCH, 0, 2),
            0,
        )
        for rank in (0, 1)
    )
    whole = replace(wider, rounds=(copies,), stages=((), sums))
    assert completion_of(whole).is_whole
    part = Statement(Chunk(0, Buffer.INPUT, 0), Chunk(0, Buffer.SCRATCH, 0), None, 0)
    mixed = replace(wider, rounds=(copies,), stages=((), (part, sums[0])))
    assert not completion_of(mixed).is_whole
    data = packed_staged(mixed, completion_of(mixed))
    assert HEADER.unpack_from(data)[8] == RUNS_IN_PLACE


def changed(data: bytes, at: int, form: str, *values: int) -> bytes:
    altered = bytearray(data)
    struct.pack_into(form, altered, at, *values)
    return sealed(bytes(altered))


FIRST = HEADER.size + 4 * RANK.size + 3 * ITEM.size
BROKEN: dict[str, tuple[int, str, int]] = {
    "another operation": (32, "B", 2),
    "another root": (60, "<I", 1),
    "more rounds": (52, "<I", 2),
    "a node that is none": (HEADER.size, "<I", 2),
    "a wrong result": (FIRST + 4, "<I", 1),
    "a flag that it has not": (FIRST, "B", 3),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_whatever_is_wrong_is_refused(defect: str) -> None:
    at, form, value = BROKEN[defect]
    data = changed(compile_staged(staged_over_gateways(Collective.ALL_REDUCE)), at, form, value)
    with pytest.raises(TableError, match=r"t: the program is damaged \("):
        read_staged(data, "t")


def test_readers_refuse_other_versions() -> None:
    data = compile_staged(staged_over_gateways(Collective.ALL_REDUCE))
    with pytest.raises(TableError, match="size, sum or content address"):
        read_staged(data[:-8], "t")
    with pytest.raises(TableError, match="it has stages"):
        read_program(data, "t")
    with pytest.raises(TableError, match="it has no stages"):
        read_staged(changed(data, 8, "<I", 1), "t")
    assert unpacked_staged(data) == staged_over_gateways(Collective.ALL_REDUCE)


@pytest.mark.slow
def test_mutated_bytes_are_refused_or_run_right() -> None:
    random = Random(1)
    telling = [0, 1, 2, 3, 4, 127, 255]
    good = [compile_staged(staged_over_gateways(collective)) for collective in EVERY]
    read = 0
    for _ in range(1_000):
        data = bytearray(random.choice(good))
        for _ in range(random.randint(1, 2)):
            data[random.randrange(HEADER.size - 40, len(data))] = random.choice(telling)
        if random.random() < 0.1:
            del data[random.randrange(HEADER.size, len(data)) :]
        changed = sealed(bytes(data))
        with contextlib.suppress(TableError):
            staged = read_staged(changed, "t")
            read += 1
            assert compile_staged(staged) == changed
            for in_place in (False, True)[: 1 + staged.in_place]:
                run_in_order(staged, in_place=in_place)
    assert 20 < read < 900


def _inside(rank: int, target: Chunk, operand: Chunk | None = None) -> Statement:
    return Statement(Chunk(rank, Buffer.INPUT, 0), target, operand, 0)


FAULTS = {
    "1 nodes, allowed are 2": {"node_sizes": (4,)},
    "a node has 9 ranks": {"node_sizes": (9, 1), "scratch_chunks": (0,) * 10},
    "0 chunks, allowed are 1 to 65536": {"chunks": 0},
    "65537 chunks": {"chunks": 65537},
    "more than 65536 scratch chunks": {"scratch_chunks": (65537, 0, 0, 0)},
    "root 1 of all_reduce": {"root": 1},
    "0 rounds, allowed are 1 to 64": {"rounds": (), "stages": ((),)},
    "a custom operation": {"collective": Collective.CUSTOM},
    "stage 1 has a message from rank 0 to rank 4": {
        "stages": ((), (_inside(0, Chunk(4, Buffer.OUTPUT, 0)),))
    },
    "stage 0 writes to the input": {"stages": ((_inside(0, Chunk(1, Buffer.INPUT, 0)),), ())},
    "stage 0 adds to a chunk that is not its target": {
        "stages": (
            (_inside(0, Chunk(0, Buffer.OUTPUT, 0), Chunk(0, Buffer.OUTPUT, 1)),),
            (),
        )
    },
    "stage 0 has operands of 1 and 2 chunks": {
        "stages": ((_inside(0, Chunk(1, Buffer.OUTPUT, 0, 2)),), ())
    },
    "stage 0 uses chunks behind the 2 of buffer o of rank 1": {
        "stages": ((_inside(0, Chunk(1, Buffer.OUTPUT, 2)),), ())
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_broken_rule_is_named(fault: str) -> None:
    staged = staged_over_gateways(Collective.ALL_REDUCE)
    with pytest.raises(NoProgramError, match=fault):
        check_staged_form(replace(staged, **FAULTS[fault]))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_gather_adds_nothing_and_large_programs_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gather = staged_over_gateways(Collective.ALL_GATHER)
    target = Chunk(0, Buffer.OUTPUT, 1)
    adding = (Statement(Chunk(1, Buffer.OUTPUT, 1), target, target, 0), *gather.stages[1])
    with pytest.raises(NoProgramError, match="stage 1 adds, but all_gather does not"):
        check_staged_form(replace(gather, stages=(gather.stages[0], adding)))
    monkeypatch.setattr(staged_form, "MOST_CHUNKS_MOVED", 3)
    with pytest.raises(NoProgramError, match=r"\d+ chunks are moved, at most 3"):
        check_staged_form(gather)
    many = (gather.stages[0] * 20_000, gather.stages[1])
    large = replace(gather, stages=many)
    with pytest.raises(NoProgramError, match="bytes, at most 1048576 are allowed"):
        packed_staged(large, completion_of(gather))
