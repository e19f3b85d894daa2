"""The proof: what passes computes its operation, what is wrong is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from synthesizer.experts.halving_doubling import doubling_all_reduce
from synthesizer.experts.ring import ring_all_reduce
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Statement
from synthesizer.lower.lowering import lower
from synthesizer.programs import proof
from synthesizer.programs.cutting import cut
from synthesizer.programs.form import check_form
from synthesizer.programs.layout import Pattern, PhaseKind
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import CallPhase, PhasedSchedule, Place, Statements, in_turn
from synthesizer.programs.proof import prove
from tests.synthesizer.programs.call_runs import demanded, run_phases
from tests.synthesizer.programs.phased_schedules import (
    IN_PLACE,
    all_plans,
    over_gateways,
    with_statements,
)
from tests.synthesizer.programs.statement_runs import WrongError, run_in_every_order, run_in_order
from tuccl.errors import NoProgramError

ADDING = {Collective.ALL_REDUCE, Collective.REDUCE_SCATTER}
SCRATCH = Place(Buffer.SCRATCH, 0)
OUTPUT = Place(Buffer.OUTPUT, 0)


def computes_its_operation(plan: PhasedSchedule, *, in_place: bool, averages: bool) -> bool:
    rng = np.random.default_rng(1)
    inputs = rng.integers(1, 1 << 30, (plan.ranks, plan.chunks_of(Buffer.INPUT))).astype(np.float64)
    found = run_phases(plan, inputs, in_place=in_place, averages=averages, rng=rng)
    return np.allclose(found, demanded(plan.collective, inputs, averages=averages), rtol=1e-12)


def check_on_numbers(plan: PhasedSchedule, *, in_place: bool) -> None:
    for place in {False, in_place}:
        for averages in {False, plan.collective in ADDING}:
            assert computes_its_operation(plan, in_place=place, averages=averages), plan


@pytest.mark.parametrize("grid", [(2, 1), (2, 2), (3, 4), (5, 8)])
def test_plans_compute_their_operation_on_numbers_too(grid: tuple[int, int]) -> None:
    for plan in all_plans(*grid):
        check_on_numbers(plan, in_place=True)


def test_lanes_and_rails_take_no_proof_of_their_own() -> None:
    plan = plan_by_name(Collective.ALL_GATHER, "rails_first", 7, 3)
    assert prove(plan).in_place
    proofs = proof._proved.cache_info().misses
    for lanes in (2, 8):
        for nchannels in (1, 2):
            rail = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, nchannels)
            assert prove(plan.with_lanes(lanes).with_rails(rail))
    assert proof._proved.cache_info().misses == proofs


PLACES = st.builds(Place, st.sampled_from(Buffer), st.integers(-1, 9))
VALUES = {
    "kind": st.sampled_from(PhaseKind),
    "collective": st.sampled_from(Collective),
    "source": PLACES,
    "target": PLACES,
    "pattern": st.sampled_from(Pattern),
    "rail": st.builds(
        BuiltinConfig,
        st.sampled_from(NcclAlgorithm),
        st.sampled_from(NcclProtocol),
        st.integers(-1, 70),
    ),
}
NUMBERS = st.integers(-1, 9)


def mutated_phase(draw: st.DrawFn, phase: CallPhase) -> CallPhase:
    name = draw(st.sampled_from([field.name for field in fields(CallPhase)]))
    return replace(phase, **{name: draw(VALUES.get(name, NUMBERS))})


@st.composite
def mutants(draw: st.DrawFn) -> PhasedSchedule:
    """A plan with one to three changes: of a phase, of the list of phases, or of the header."""
    nodes, local_ranks = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    plan = draw(st.sampled_from(all_plans(nodes, local_ranks)))
    for _ in range(draw(st.integers(1, 3))):
        phases = list(plan.calls)
        at = draw(st.integers(0, len(phases) - 1)) if phases else 0
        change = draw(st.integers(0, 7))
        if change < 4 and phases:
            phases[at] = mutated_phase(draw, phases[at])
        elif change == 4 and phases:
            del phases[at]
        elif change == 5 and phases:
            phases.insert(draw(st.integers(0, len(phases))), phases[at])
        elif change == 6 and draw(st.booleans()):
            plan = replace(plan, chunks=draw(NUMBERS))
        elif change == 6:
            plan = replace(plan, scratch_chunks=(draw(NUMBERS),))
        else:
            plan = replace(plan, collective=draw(st.sampled_from(Collective)))
        plan = replace(plan, phases=tuple(phases))
    return plan


@pytest.mark.long
@settings(max_examples=1000)
@given(mutants())
def test_mutated_plans_are_refused_or_compute_their_operation(plan: PhasedSchedule) -> None:
    try:
        found = prove(plan)
    except NoProgramError:
        return
    check_on_numbers(plan, in_place=found.in_place)


EXCHANGE = plan_by_name(Collective.ALL_REDUCE, "exchange", 3, 2)
SCATTER, GATHER, SUM, SPREAD = EXCHANGE.calls
RAILS_FIRST = plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 2)


def of(*phases: CallPhase) -> PhasedSchedule:
    return replace(EXCHANGE, phases=phases)


WRONG = {
    "phase 0 adds input chunk 0 of rank 0 and input chunk 1 of rank 0": of(
        CallPhase(PhaseKind.SUM, Collective.REDUCE, Place(Buffer.INPUT, 0), SCRATCH, repeats=2), SUM
    ),
    "phase 3 adds input chunk 0 of 2 ranks and input chunk 0 of 2 ranks": of(
        SCATTER, SCATTER, GATHER, replace(SUM, source=SCRATCH, target=OUTPUT), SPREAD
    ),
    "phase 0 reads a chunk of rank 0 that nothing has written": of(GATHER, SUM, SPREAD),
    "output holds input chunk 0 of 2 ranks instead of input chunk 0 of 6 ranks": of(
        SCATTER, SPREAD
    ),
    "chunk 0 of rank 0's output holds nothing instead of": of(SCATTER, GATHER, SUM),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_result_is_named(words: str) -> None:
    with pytest.raises(NoProgramError) as error:
        prove(WRONG[words])
    assert words in str(error.value)


def test_a_rank_that_is_added_twice_is_found() -> None:
    twice = (
        replace(GATHER, target=SCRATCH),
        replace(SUM, source=SCRATCH, target=Place(Buffer.SCRATCH, 3)),
    )
    again = replace(SUM, source=Place(Buffer.SCRATCH, 2), target=OUTPUT, repeats=2)
    first = replace(SCATTER, target=Place(Buffer.SCRATCH, 3))
    own = replace(GATHER, source=Place(Buffer.SCRATCH, 3), target=SCRATCH)
    with pytest.raises(NoProgramError, match="phase 3 adds input chunk 0 of 2 ranks"):
        prove(of(first, own, twice[1], again))


def test_a_schedule_that_overwrites_its_input_is_right_out_of_place_only() -> None:
    """In place, the first phase destroys what the second needs."""
    keep = CallPhase(PhaseKind.RAIL, Collective.ALL_GATHER, Place(Buffer.INPUT, 0), OUTPUT)
    alone = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 1)
    plan = replace(alone, chunks=2, scratch_chunks=(4,))
    add = [
        phase
        for chunk in range(2)
        for phase in (
            replace(
                alone.calls[0],
                source=Place(Buffer.INPUT, chunk),
                target=Place(Buffer.SCRATCH, 2 * chunk),
            ),
            replace(
                alone.calls[1],
                source=Place(Buffer.SCRATCH, 2 * chunk),
                target=Place(Buffer.OUTPUT, chunk),
            ),
        )
    ]
    assert prove(replace(plan, phases=tuple(add))).in_place
    assert not prove(replace(plan, phases=(keep, *add))).in_place


def test_calls_in_place_share_memory_as_nccl_allows() -> None:
    gathers = plan_by_name(Collective.ALL_GATHER, "rails_first", 3, 2)
    direct = CallPhase(PhaseKind.RAIL, Collective.ALL_GATHER, Place(Buffer.INPUT, 0), OUTPUT)
    alone = replace(gathers, node_sizes=(1,) * 3, scratch_chunks=(0,), phases=(direct,))
    assert prove(alone).in_place
    scatters = plan_by_name(Collective.REDUCE_SCATTER, "exchange", 3, 1)
    direct = CallPhase(PhaseKind.RAIL, Collective.REDUCE_SCATTER, Place(Buffer.INPUT, 0), OUTPUT)
    assert prove(replace(scatters, phases=(direct,))).in_place
    swaps = replace(direct, collective=Collective.ALLTOALL)
    swap = replace(scatters, collective=Collective.ALLTOALL, phases=(swaps,))
    assert not prove(swap).in_place
    assert computes_its_operation(swap, in_place=False, averages=False)


def test_a_schedule_that_is_too_large_for_a_proof_is_refused() -> None:
    with pytest.raises(NoProgramError, match="32768 ranks have 1207992320 chunks"):
        prove(plan_by_name(Collective.ALL_GATHER, "rails_first", 4096, 8))


@pytest.mark.long
@pytest.mark.parametrize("collective", IN_PLACE)
def test_every_single_omission_is_found(collective: Collective) -> None:
    phased = over_gateways(collective)
    for number, sent in enumerate(phased.rounds):
        for at in range(len(sent)):
            with pytest.raises(NoProgramError):
                prove(with_statements(phased, rounds=_without(phased.rounds, number, at)))
    for number, stage in enumerate(phased.stages):
        for at, statement in enumerate(stage):
            own = statement.src.rank == statement.dst.rank
            if own and statement.src.buffer is Buffer.INPUT and statement.operand is None:
                continue  # In place there is nothing to copy.
            with pytest.raises(NoProgramError):
                prove(with_statements(phased, stages=_without(phased.stages, number, at)))


def _without(groups: tuple[Statements, ...], number: int, at: int) -> tuple[Statements, ...]:
    less = list(groups)
    less[number] = less[number][:at] + less[number][at + 1 :]
    return tuple(less)


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


def _mutated(phased: PhasedSchedule, random: Random) -> PhasedSchedule:
    """Return a schedule with one statement changed, doubled, dropped or exchanged."""
    groups = [list(stage) for stage in phased.stages] + [list(sent) for sent in phased.rounds]
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
    stages = len(phased.stages)
    return with_statements(
        phased,
        stages=tuple(map(tuple, groups[:stages])),
        rounds=tuple(map(tuple, groups[stages:])),
    )


def _is_accepted(check: Callable[[PhasedSchedule], object], phased: PhasedSchedule) -> bool:
    try:
        check(phased)
    except NoProgramError:
        return False
    return True


def _runs_right(phased: PhasedSchedule) -> bool:
    try:
        for in_place in (False, True):
            run_in_order(phased, in_place=in_place)
    except WrongError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("collective", IN_PLACE)
def test_what_is_proved_runs_right_in_every_order_and_nothing_else(collective: Collective) -> None:
    random = Random(7)
    proved = wrong = 0
    for _ in range(120):
        mutant = _mutated(over_gateways(collective), random)
        if not _is_accepted(check_form, mutant):
            continue
        is_right = _runs_right(mutant)
        assert _is_accepted(prove, mutant) == is_right
        proved, wrong = proved + is_right, wrong + (not is_right)
        for in_place in (False, True) if is_right and proved < 5 else ():
            assert run_in_every_order(mutant, in_place=in_place)
    assert proved > 3
    assert wrong > 10


def _sent(rank: int, chunk: int, target: Chunk) -> Statement:
    return Statement(Chunk(rank, Buffer.INPUT, chunk), target, None, 0)


def test_no_chunk_lies_in_the_place_of_another_in_the_output() -> None:
    """The last chunk of a call may be shorter: what lies in its place for a while would be cut."""
    second = Chunk(1, Buffer.OUTPUT, 1)
    whole = Statement(Chunk(0, Buffer.INPUT, 0, 2), Chunk(0, Buffer.OUTPUT, 0, 2), None, 0)
    stages = ((whole,), (Statement(second, Chunk(1, Buffer.OUTPUT, 0), None, 0),), ())
    rounds = ((_sent(0, 0, second),), (_sent(0, 1, second),))
    phased = PhasedSchedule("", Collective.BROADCAST, (1, 1), 2, (0, 0), in_turn(stages, rounds))
    run_in_order(phased, in_place=False)
    with pytest.raises(NoProgramError, match="rank 1 keeps chunk 0 in the place of chunk 1"):
        prove(phased)


def test_in_place_a_round_does_not_receive_over_an_input_that_it_sends() -> None:
    phased = cut(lower(ring_all_reduce([(0, 1)]), "ring"), (1, 1))
    exchange = tuple(_sent(rank, 0, Chunk(1 - rank, Buffer.OUTPUT, 0)) for rank in (0, 1))
    rounds = (exchange, *phased.rounds[1:])
    with pytest.raises(NoProgramError, match="round 1 uses a chunk of rank 0 that it receives"):
        prove(with_statements(phased, rounds=rounds))


def test_averages_are_divided_where_sums_are_complete() -> None:
    found = prove(cut(lower(doubling_all_reduce(((0, 1), (2, 3))), "doubling"), (2, 2)))
    # The sums of the last stage, one on each rank.
    assert {number for number, _ in found.completing} == {2}
    assert (found.averages, len(found.completing)) == (True, 4)
    assert not prove(over_gateways(Collective.ALL_GATHER)).averages


def test_a_statement_that_completes_some_of_its_sums_divides_none() -> None:
    """Rank 0 adds its own input to the sum of both others, or for chunk 1 to one of them."""

    def kept(chunk: int, count: int = 1) -> Chunk:
        return Chunk(0, Buffer.SCRATCH, chunk, count)

    def added(source: Chunk, target: Chunk) -> Statement:
        return Statement(source, target, target, 0)

    own = Chunk(0, Buffer.INPUT, 0, 2)
    result = Chunk(0, Buffer.OUTPUT, 0, 2)
    gathered = tuple(
        Statement(Chunk(rank, Buffer.INPUT, 0, 2), kept(2 * rank - 2, 2), None, 0)
        for rank in (1, 2)
    )
    spread = tuple(replace(_sent(0, 0, replace(result, rank=r)), src=result) for r in (1, 2))
    last = Statement(kept(0, 2), result, None, 0)

    def averages(*sums: Statement) -> bool:
        phases = in_turn(((), (*sums, last), ()), (gathered, spread))
        phased = PhasedSchedule("", Collective.ALL_REDUCE, (1, 1, 1), 2, (4, 0, 0), phases)
        return prove(phased).averages

    first, second = added(kept(2), kept(0)), added(kept(3), kept(1))
    assert averages(first, second, added(own, kept(0, 2)))
    assert not averages(first, added(own, kept(0, 2)), second)
