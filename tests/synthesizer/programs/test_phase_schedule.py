"""The data flow of phased schedules as MSCCL-IR: proved by the verifier, one hash for each plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm, Buffer, Protocol
from synthesizer.ir.collectives import Collective
from synthesizer.programs.layout import Pattern
from synthesizer.programs.phase_plans import phased_plans, plan_by_name
from synthesizer.programs.phase_proof import prove
from synthesizer.programs.phases import Phase, PhasedSchedule, PhaseKind, Place
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.programs.phase_schedule import as_algorithm
from tests.synthesizer.programs.test_phase_plans import all_plans
from tests.synthesizer.programs.test_phase_proof import mutants
from tests.synthesizer.proofs import show_right
from tuccl.errors import NoProgramError

GRIDS = [(nodes, local_ranks) for nodes in (2, 3, 4) for local_ranks in (1, 2, 3)] + [(2, 8)]
MOST_RANKS_OF_EXPERTS = 9
"""Experts of larger grids take seconds."""
ALL_REDUCE = Collective.ALL_REDUCE


@pytest.mark.long
@pytest.mark.parametrize("grid", GRIDS)
def test_every_plan_is_a_proved_schedule_with_a_hash_of_its_own(grid: tuple[int, int]) -> None:
    plans = all_plans(*grid)
    found = [as_algorithm(plan) for plan in plans]
    experts = [
        algorithm
        for collective in Collective
        if collective is not Collective.CUSTOM and plans[0].ranks <= MOST_RANKS_OF_EXPERTS
        for algorithm in expert_algorithms(collective, switched(*grid))
    ]
    for seed, (plan, algorithm) in enumerate(zip(plans, found, strict=True)):
        show_right(algorithm, seed)
        assert (algorithm.collective, algorithm.ranks) == (plan.collective, plan.ranks)
        assert algorithm.in_place
    hashes = {algorithm.content_hash() for algorithm in found}
    assert len(hashes) == len(plans)
    # The data flow of a single call along the rail is that of an expert.
    own = {
        algorithm.content_hash()
        for plan, algorithm in zip(plans, found, strict=True)
        if len(plan.phases) > 1
    }
    assert own.isdisjoint(algorithm.content_hash() for algorithm in experts)


def test_names_say_operation_plan_and_grid() -> None:
    plan = plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 4)
    assert as_algorithm(plan).name == "all_gather_rails_first_2x4"
    assert as_algorithm(replace(plan, name="")).name == "all_gather_phases_2x4"
    given_name = as_algorithm(plan, "mine", Protocol.LL)
    assert (given_name.name, given_name.protocol) == ("mine", Protocol.LL)


def buffers_sent(algorithm: Algorithm, local_ranks: int) -> set[float]:
    """Return how often each rank sends its larger buffer to other nodes."""
    return {
        sum(
            step.count
            for block in gpu.threadblocks
            if block.send_peer // local_ranks != gpu.rank // local_ranks
            for step in block.steps
            if step.type.sends
        )
        / algorithm.chunks_per_loop
        for gpu in algorithm.programs
    }


@pytest.mark.parametrize(
    ("collective", "name", "sent"),
    [
        (ALL_REDUCE, "rail_all_reduce", 2 * 3 / 4 / 2),
        (ALL_REDUCE, "exchange", 3 / 2),
        (ALL_REDUCE, "rail_all_reduce_full", 2 * 3 / 4),
        (ALL_REDUCE, "exchange_full", 3),
        (Collective.ALL_GATHER, "rails_first", 3 / 8),
        (Collective.REDUCE_SCATTER, "rails_last", 3 / 8),
        (Collective.REDUCE_SCATTER, "exchange", 3 / 8),
        (Collective.ALLTOALL, "rails_last", 3 / 4),
    ],
)
def test_each_rank_sends_to_other_nodes_what_the_plan_says(
    collective: Collective, name: str, sent: float
) -> None:
    """Four nodes of two ranks."""
    assert buffers_sent(as_algorithm(plan_by_name(collective, name, 4, 2)), 2) == {sent}


def test_a_plan_has_a_time_in_the_model() -> None:
    sketch = switched(2, 4)
    times = [
        compile_schedule(as_algorithm(plan), sketch).time_us(1 << 20, ExecutionModel())
        for plan in phased_plans(ALL_REDUCE, 2, 4)
    ]
    assert all(0 < time_us < 1e6 for time_us in times)


def local_all_reduce(pattern: Pattern, source: Place, target: Place, chunks: int) -> Phase:
    return Phase(PhaseKind.LOCAL, ALL_REDUCE, source, target, chunks, pattern=pattern)


@pytest.mark.parametrize("pattern", [Pattern.ONE_PHASE, Pattern.TWO_PHASE])
@pytest.mark.parametrize("chunks", [1, 3])
def test_sums_of_a_node_in_place_and_out_of_place(pattern: Pattern, chunks: int) -> None:
    source, output = Place(Buffer.INPUT, 0), Place(Buffer.OUTPUT, 0)
    rails = Phase(PhaseKind.RAIL, ALL_REDUCE, output, output, chunks)
    for phases in (
        (local_all_reduce(pattern, source, output, chunks), rails),
        (replace(rails, source=source), local_all_reduce(pattern, output, output, chunks)),
    ):
        plan = PhasedSchedule("sums", ALL_REDUCE, 3, 2, chunks, chunks, 0, phases)
        assert prove(plan)
        assert as_algorithm(plan).in_place


@pytest.mark.long
@settings(max_examples=150)
@given(mutants())
def test_what_the_proof_accepts_the_verifier_accepts(plan: PhasedSchedule) -> None:
    try:
        in_place = prove(plan)
    except NoProgramError:
        return
    assert as_algorithm(plan).in_place == in_place


def test_a_wrong_schedule_has_no_data_flow() -> None:
    plan = plan_by_name(ALL_REDUCE, "exchange", 2, 2)
    with pytest.raises(NoProgramError):
        as_algorithm(replace(plan, phases=plan.phases[:2]))
