"""The proof of phased schedules: what passes computes its operation, what is wrong is refused."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.programs import phase_proof
from synthesizer.programs.layout import Pattern
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phase_proof import prove
from synthesizer.programs.phases import Phase, PhasedSchedule, PhaseKind, Place
from tests.synthesizer.programs.phase_runs import demanded, run_phases
from tests.synthesizer.programs.test_phase_plans import all_plans
from tuccl.errors import NoProgramError

ADDING = {Collective.ALL_REDUCE, Collective.REDUCE_SCATTER}
SCRATCH = Place(Buffer.SCRATCH, 0)
OUTPUT = Place(Buffer.OUTPUT, 0)


def computes_its_operation(plan: PhasedSchedule, *, in_place: bool, averages: bool) -> bool:
    rng = np.random.default_rng(1)
    inputs = rng.integers(1, 1 << 30, (plan.ranks, plan.input_chunks)).astype(np.float64)
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
    assert prove(plan)
    proofs = phase_proof._proved.cache_info().misses
    for lanes in (2, 8):
        for nchannels in (1, 2):
            rail = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, nchannels)
            assert prove(plan.with_lanes(lanes).with_rails(rail))
    assert phase_proof._proved.cache_info().misses == proofs


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


def mutated_phase(draw: st.DrawFn, phase: Phase) -> Phase:
    name = draw(st.sampled_from([field.name for field in fields(Phase)]))
    return replace(phase, **{name: draw(VALUES.get(name, NUMBERS))})


@st.composite
def mutants(draw: st.DrawFn) -> PhasedSchedule:
    """A plan with one to three changes: of a phase, of the list of phases, or of the header."""
    nodes, local_ranks = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    plan = draw(st.sampled_from(all_plans(nodes, local_ranks)))
    for _ in range(draw(st.integers(1, 3))):
        phases = list(plan.phases)
        at = draw(st.integers(0, len(phases) - 1)) if phases else 0
        change = draw(st.integers(0, 7))
        if change < 4 and phases:
            phases[at] = mutated_phase(draw, phases[at])
        elif change == 4 and phases:
            del phases[at]
        elif change == 5 and phases:
            phases.insert(draw(st.integers(0, len(phases))), phases[at])
        elif change == 6:
            name = draw(st.sampled_from(["input", "output", "scratch"]))
            plan = replace(plan, **{f"{name}_chunks": draw(NUMBERS)})  # type: ignore[arg-type]
        else:
            plan = replace(plan, collective=draw(st.sampled_from(Collective)))
        plan = replace(plan, phases=tuple(phases))
    return plan


@pytest.mark.long
@settings(max_examples=1000)
@given(mutants())
def test_mutated_plans_are_refused_or_compute_their_operation(plan: PhasedSchedule) -> None:
    try:
        in_place = prove(plan)
    except NoProgramError:
        return
    check_on_numbers(plan, in_place=in_place)


EXCHANGE = plan_by_name(Collective.ALL_REDUCE, "exchange", 3, 2)
SCATTER, GATHER, SUM, SPREAD = EXCHANGE.phases
RAILS_FIRST = plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 2)


def of(*phases: Phase) -> PhasedSchedule:
    return replace(EXCHANGE, phases=phases)


WRONG = {
    "phase 0 adds input chunk 0 of rank 0 and input chunk 1 of rank 0": of(
        Phase(PhaseKind.SUM, Collective.REDUCE, Place(Buffer.INPUT, 0), SCRATCH, repeats=2), SUM
    ),
    "phase 3 adds input chunk 0 of 2 ranks divided by 2 and input chunk 0 of 2 ranks": of(
        SCATTER, SCATTER, GATHER, replace(SUM, source=SCRATCH, target=OUTPUT), SPREAD
    ),
    "phase 0 reads a chunk of rank 0 that nothing has written": of(GATHER, SUM, SPREAD),
    "output holds input chunk 0 of 2 ranks divided by 2 instead of input chunk 0 of 6 ranks": of(
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


FORMS = {
    "broadcast has no phased schedules": replace(EXCHANGE, collective=Collective.BROADCAST),
    "1 nodes of 2 ranks": replace(EXCHANGE, nodes=1),
    "3 nodes of 9 ranks": replace(EXCHANGE, local_ranks=9),
    "all_reduce of 6 ranks cannot have 2 chunks of input, 3 of output": replace(
        EXCHANGE, output_chunks=3
    ),
    "and -1 of scratch memory": replace(EXCHANGE, scratch_chunks=-1),
    "a buffer has more than 65536 chunks": replace(EXCHANGE, scratch_chunks=65537),
    "0 phases": of(),
    "65 phases": of(*[SCATTER] * 65),
    "phase 0 is a node's, and nodes have one rank": replace(EXCHANGE, local_ranks=1),
    "phase 0 cannot be reduce_scatter with pattern ONE_PHASE": of(
        replace(SCATTER, pattern=Pattern.ONE_PHASE)
    ),
    "phase 0 cannot be reduce with pattern NONE": of(replace(GATHER, collective=Collective.REDUCE)),
    "phase 2 adds, but all_gather does not": replace(
        RAILS_FIRST, phases=(*RAILS_FIRST.phases, replace(SUM, repeats=2))
    ),
    "phase 0 has a negative number, or nothing to do": of(replace(SCATTER, chunks=0)),
    "phase 0 has a number above 65536": of(replace(SCATTER, repeats=65537)),
    "phase 0 has strides, and is one call": of(replace(SCATTER, source_stride=1)),
    "phase 0 has one summand": of(replace(SUM, repeats=1)),
    "phase 0 reads 3 chunks of buffer i": of(replace(SCATTER, source=Place(Buffer.INPUT, 1))),
    "phase 0 writes 5 chunks of buffer s": of(replace(SCATTER, target=Place(Buffer.SCRATCH, 4))),
    "phase 0 writes to the input": of(replace(SCATTER, target=Place(Buffer.INPUT, 0))),
    "phase 0 has calls that write the same chunks": of(replace(SCATTER, repeats=2)),
    "phase 0 reads what it writes": of(replace(GATHER, target=SCRATCH)),
}


@pytest.mark.parametrize("words", FORMS)
def test_a_broken_rule_of_the_form_is_named(words: str) -> None:
    with pytest.raises(NoProgramError) as error:
        prove(FORMS[words])
    assert words in str(error.value)


def test_a_schedule_that_overwrites_its_input_is_right_out_of_place_only() -> None:
    """In place, the first phase destroys what the second needs."""
    keep = Phase(PhaseKind.RAIL, Collective.ALL_GATHER, Place(Buffer.INPUT, 0), OUTPUT)
    alone = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 1)
    plan = replace(alone, input_chunks=2, output_chunks=2, scratch_chunks=4)
    add = [
        phase
        for chunk in range(2)
        for phase in (
            replace(
                alone.phases[0],
                source=Place(Buffer.INPUT, chunk),
                target=Place(Buffer.SCRATCH, 2 * chunk),
            ),
            replace(
                alone.phases[1],
                source=Place(Buffer.SCRATCH, 2 * chunk),
                target=Place(Buffer.OUTPUT, chunk),
            ),
        )
    ]
    assert prove(replace(plan, phases=tuple(add)))
    assert not prove(replace(plan, phases=(keep, *add)))


def test_calls_in_place_share_memory_as_nccl_allows() -> None:
    gathers = plan_by_name(Collective.ALL_GATHER, "rails_first", 3, 2)
    direct = Phase(PhaseKind.RAIL, Collective.ALL_GATHER, Place(Buffer.INPUT, 0), OUTPUT)
    alone = {"local_ranks": 1, "output_chunks": 3, "scratch_chunks": 0}
    assert prove(replace(gathers, **alone, phases=(direct,)))  # type: ignore[arg-type]
    scatters = plan_by_name(Collective.REDUCE_SCATTER, "exchange", 3, 1)
    direct = Phase(PhaseKind.RAIL, Collective.REDUCE_SCATTER, Place(Buffer.INPUT, 0), OUTPUT)
    assert prove(replace(scatters, phases=(direct,)))
    swaps = replace(direct, collective=Collective.ALLTOALL)
    swap = replace(scatters, collective=Collective.ALLTOALL, output_chunks=3, phases=(swaps,))
    assert not prove(swap)
    assert computes_its_operation(swap, in_place=False, averages=False)


def test_a_schedule_that_is_too_large_for_a_proof_is_refused() -> None:
    with pytest.raises(NoProgramError, match="32768 ranks with 36865 chunks each"):
        prove(plan_by_name(Collective.ALL_GATHER, "rails_first", 4096, 8))
