"""The proof of staged schedules: planted faults, and runs of whatever is proved."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from synthesizer.experts.gateways import Gateways, programs_over
from synthesizer.experts.ring import ring_all_reduce
from synthesizer.ir.algorithm import Buffer, Threadblock
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Statement
from synthesizer.lower.lowering import lower
from synthesizer.programs.staged.cutting import cut
from synthesizer.programs.staged.staged_proof import prove_staged, written_as_one
from synthesizer.programs.staged.staged_schedule import StagedSchedule, Statements
from synthesizer.prove.verifier import verify
from tests.synthesizer.programs.staged.staged_runs import WrongError, run_in_order
from tuccl.errors import NoProgramError

COLLECTIVES = [
    collective
    for collective in Collective
    if collective not in {Collective.CUSTOM, Collective.ALLTOALL}
]


def _staged(collective: Collective) -> StagedSchedule:
    gateways = Gateways(((0, 1, 2), (3,)), ((0, 3), (2, 3)))
    (_, program), *_ = programs_over(gateways, collective)
    return cut(lower(program, "over gateways"), (3, 1))


def _with(staged: StagedSchedule, *, rounds: list[Statements], number: int = 0) -> StagedSchedule:
    kept = list(staged.rounds)
    kept[number : number + 1] = rounds
    return replace(staged, rounds=tuple(kept))


def test_the_written_out_schedule_keeps_the_order_of_stages() -> None:
    staged = cut(lower(ring_all_reduce([(0, 1, 2, 3)]), "ring"), (2, 2))
    algorithm = prove_staged(staged)
    assert verify(algorithm, slots=1).proved
    assert algorithm == written_as_one(staged)
    unordered = tuple(
        replace(gpu, threadblocks=tuple(map(_without_waits, gpu.threadblocks)))
        for gpu in algorithm.programs
    )
    assert not verify(replace(algorithm, programs=unordered), slots=1).proved


def _without_waits(block: Threadblock) -> Threadblock:
    return replace(block, steps=tuple(replace(step, depends=None) for step in block.steps))


def test_a_message_within_a_node_is_no_part_of_a_round() -> None:
    staged = _staged(Collective.ALL_GATHER)
    inside = Statement(Chunk(0, Buffer.OUTPUT, 0), Chunk(1, Buffer.OUTPUT, 0), None, 0)
    with pytest.raises(NoProgramError, match="round 1 does more than to copy"):
        prove_staged(_with(staged, rounds=[(*staged.rounds[0], inside)]))


def test_a_stage_has_no_message_to_another_node() -> None:
    staged = _staged(Collective.ALL_GATHER)
    stages = ((*staged.stages[0], staged.rounds[0][0]), staged.stages[1])
    with pytest.raises(NoProgramError, match="stage 0 has a message to another node"):
        prove_staged(replace(staged, stages=stages))


def test_a_chunk_that_is_received_is_not_sent_in_the_same_round() -> None:
    staged = _staged(Collective.ALL_GATHER)
    received = staged.rounds[0][0].dst
    back = Statement(received, Chunk(0, Buffer.SCRATCH, 0), None, 0)
    with pytest.raises(NoProgramError, match="round 1 uses a chunk of rank 3 that it receives"):
        prove_staged(
            replace(_with(staged, rounds=[(*staged.rounds[0], back)]), scratch_chunks=(1, 0, 0, 0))
        )


def test_in_place_a_round_does_not_receive_over_an_input_that_it_sends() -> None:
    staged = cut(lower(ring_all_reduce([(0, 1)]), "ring"), (1, 1))
    exchange = tuple(
        Statement(Chunk(rank, Buffer.INPUT, 0), Chunk(1 - rank, Buffer.OUTPUT, 0), None, 0)
        for rank in (0, 1)
    )
    with pytest.raises(NoProgramError, match="round 1 uses a chunk of rank 0 that it receives"):
        prove_staged(_with(staged, rounds=[exchange]))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_single_omission_is_found(collective: Collective) -> None:
    staged = _staged(collective)
    for number, sent in enumerate(staged.rounds):
        for at in range(len(sent)):
            with pytest.raises(NoProgramError):
                prove_staged(_with(staged, rounds=[sent[:at] + sent[at + 1 :]], number=number))
    for number, stage in enumerate(staged.stages):
        for at, statement in enumerate(stage):
            less = list(staged.stages)
            less[number] = stage[:at] + stage[at + 1 :]
            own = statement.src.rank == statement.dst.rank
            if own and statement.src.buffer is Buffer.INPUT and statement.operand is None:
                continue  # In place there is nothing to copy.
            with pytest.raises(NoProgramError):
                prove_staged(replace(staged, stages=tuple(less)))


def _moved(chunk: Chunk, random: Random) -> Chunk:
    buffers = list(Buffer)
    match random.randrange(3):
        case 0:
            return replace(chunk, offset=max(0, chunk.offset + random.choice((-1, 1))))
        case 1:
            return replace(chunk, buffer=random.choice(buffers))
        case _:
            return replace(chunk, offset=random.randrange(4))


def _changed(statement: Statement, random: Random) -> Statement:
    match random.randrange(3):
        case 0:
            return replace(statement, src=_moved(statement.src, random))
        case 1:
            return replace(statement, dst=_moved(statement.dst, random))
        case _ if statement.operand is not None and statement.remote:
            return replace(statement, operand=_moved(statement.operand, random))
        case _:
            return statement


def _mutated(staged: StagedSchedule, random: Random) -> StagedSchedule:
    """Return a schedule with one statement changed, doubled, dropped or exchanged."""
    groups = [list(stage) for stage in staged.stages] + [list(sent) for sent in staged.rounds]
    group = random.choice([each for each in groups if each])
    at = random.randrange(len(group))
    match random.randrange(5):
        case 0:
            del group[at]
        case 1:
            group.insert(random.randrange(len(group) + 1), group[at])
        case 2:
            second = random.randrange(len(group))
            group[at], group[second] = group[second], group[at]
        case _:
            group[at] = _changed(group[at], random)
    stages = len(staged.stages)
    return replace(
        staged,
        stages=tuple(map(tuple, groups[:stages])),
        rounds=tuple(map(tuple, groups[stages:])),
    )


@pytest.mark.long
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_proved_runs_right_and_planted_faults_are_found(collective: Collective) -> None:
    staged = _staged(collective)
    random = Random(7)
    refused = wrong = 0
    for _ in range(80):
        mutant = _mutated(staged, random)
        try:
            prove_staged(mutant)
        except NoProgramError:
            refused += 1
        else:
            for in_place in (False, True):
                run_in_order(mutant, in_place=in_place)
            continue
        try:
            for in_place in (False, True):
                run_in_order(mutant, in_place=in_place)
        except (WrongError, ValueError):
            wrong += 1
    assert wrong > 10
    # What is refused and runs right in order is a race, or writes twice.
    assert refused - wrong <= refused // 2
