"""The cut of schedules into stages and rounds: results, numbers of rounds, reasons against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES, Collective
from sketches.candidates import sketch_candidates
from synthesizer.dsl import INPUT, OUTPUT, Schedule
from synthesizer.experts import expert_algorithms
from synthesizer.experts.gateways import Gateways, programs_over
from synthesizer.experts.halving_doubling import doubling_all_reduce
from synthesizer.experts.ring import ring_all_reduce
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.program import Program
from synthesizer.lower.lowering import lower
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.programs import cutting, data_flow
from synthesizer.programs.cutting import cut
from synthesizer.programs.proof import prove
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.plan.test_uneven_machines import Shape
from tests.synthesizer.programs.statement_runs import run_in_every_order, run_in_order
from tuccl.errors import NoProgramError

pytestmark = pytest.mark.long

EQUAL = ((2, 2), (2, 3), (4, 1), (3, 2))
UNEVEN = ((3, 1), (2, 1), (1, 3), (2, 1, 3))
QUICK = SynthesisOptions(time_limit_s=0.2, gap=0.1, pieces_per_tree=2)


def rows_of(node_sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    ranks = iter(range(sum(node_sizes)))
    return tuple(tuple(next(ranks) for _ in range(size)) for size in node_sizes)


def over_gateways(collective: Collective, node_sizes: tuple[int, ...]) -> Iterator[Algorithm]:
    rows = rows_of(node_sizes)
    turns = range(max(node_sizes))
    routes = dict.fromkeys(tuple(row[turn % len(row)] for row in rows) for turn in turns)
    for name, program in programs_over(Gateways(rows, tuple(routes)), collective):
        yield lower(program, name)


def runs_right(algorithm: Algorithm, node_sizes: tuple[int, ...]) -> int:
    """Cut a schedule, prove and run the result; return the number of its rounds."""
    phased = cut(algorithm, node_sizes)
    prove(phased)
    for in_place in (False, True)[: 1 + phased.must_run_in_place]:
        run_in_order(phased, in_place=in_place)
    return len(phased.rounds)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(("nodes", "local_ranks"), EQUAL)
def test_every_expert_algorithm_is_cut_and_right(
    nodes: int, local_ranks: int, collective: Collective
) -> None:
    sketch = switched(nodes, local_ranks)
    for algorithm in expert_algorithms(collective, sketch, root=sketch.ranks - 1):
        assert runs_right(algorithm, (local_ranks,) * nodes) >= 1, algorithm.name


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("node_sizes", UNEVEN)
def test_uneven_nodes_exchange_in_one_round(
    node_sizes: tuple[int, ...], collective: Collective
) -> None:
    for algorithm in over_gateways(collective, node_sizes):
        assert runs_right(algorithm, node_sizes) == (2 if "homes" in algorithm.name else 1)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("gpus", [(2, 2), (3, 1), (2, 1, 2), (2, 1, 1, 2)])
def test_synthesized_schedules_of_uneven_machines_are_cut_and_right(
    gpus: tuple[int, ...], collective: Collective
) -> None:
    sketch = sketch_candidates(Shape(gpus, 1, "mesh").topology())[0]
    algorithm = synthesize(collective, sketch, 1 << 20, QUICK).algorithm
    assert runs_right(algorithm, gpus) >= 1


@pytest.mark.parametrize(("nodes", "rounds"), [(2, 1), (4, 2), (8, 3)])
def test_recursive_doubling_has_a_round_for_each_doubling(nodes: int, rounds: int) -> None:
    algorithm = lower(doubling_all_reduce(rows_of((2,) * nodes)), "doubling")
    assert runs_right(algorithm, (2,) * nodes) == rounds


def test_a_ring_crosses_at_every_second_hop() -> None:
    phased = cut(lower(ring_all_reduce([(0, 1, 2, 3)]), "ring"), (2, 2))
    # A chunk makes six hops, three of them between the nodes.
    assert [sum(message.src.count for message in sent) for sent in phased.messages] == [4, 4, 4]


def test_statements_over_adjacent_chunks_are_one() -> None:
    schedule = Schedule(Collective.BROADCAST, 2, chunks=8)
    for chunk in range(8):
        schedule.chunk(0, INPUT, chunk).copy(0, OUTPUT, chunk)
        schedule.chunk(0, INPUT, chunk).copy(1, OUTPUT, chunk)
    phased = cut(lower(schedule.program(), "chunk by chunk"), (1, 1))
    ((message,),) = phased.messages
    assert message.src.count == message.dst.count == 8
    # The root copies its own beside the round.
    ((own,),) = phased.beside
    assert phased.stages == ((), ())
    assert own.src.count == 8


@pytest.mark.parametrize("collective", [Collective.REDUCE_SCATTER, Collective.ALL_GATHER])
def test_chunks_lie_alike_at_both_ends_so_that_a_pair_has_one_message(
    collective: Collective,
) -> None:
    (algorithm,) = (
        each
        for each in expert_algorithms(collective, switched(2, 4))
        if each.name == f"{collective}_hierarchical_4c"
    )
    (sent,) = cut(algorithm, (4, 4)).messages
    pairs = {(message.src.rank, message.dst.rank) for message in sent}
    assert len(pairs) == 8
    assert sum(message.src.count for message in sent) == 8 * 4
    assert len(sent) == len(pairs)


def test_what_a_gateway_gathers_and_its_own_block_are_one_message() -> None:
    gateways = Gateways(((0, 1, 2), (3,)), ((1, 3),))
    ((_, program),) = programs_over(gateways, Collective.ALL_GATHER)
    phased = cut(lower(program, "one gateway"), (3, 1))
    (sent,) = phased.messages
    assert {(each.src.rank, each.dst.rank, each.src.count) for each in sent} == {
        (1, 3, 3),
        (3, 1, 1),
    }
    prove(phased)
    for in_place in (False, True):
        run_in_order(phased, in_place=in_place)


@st.composite
def random_all_reduces(draw: st.DrawFn) -> tuple[Program, tuple[int, ...]]:
    """Draw an all_reduce over random trees, each chunk's sums and copies, and its nodes."""
    node_sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=2, max_size=3)))
    ranks = sum(node_sizes)
    program = Program(Collective.ALL_REDUCE, ranks, draw(st.integers(1, 3)))
    for chunk in range(program.chunks):
        partial = [program.input(rank, chunk) for rank in range(ranks)]
        while len(partial) > 1:
            left = partial.pop(draw(st.integers(0, len(partial) - 1)))
            right = partial.pop(draw(st.integers(0, len(partial) - 1)))
            partial.append(program.reduce(left, program.scratch(right.rank), right))
        (total,) = partial
        held = [program.copy(total, program.output(total.rank, chunk))]
        for rank in draw(st.permutations([r for r in range(ranks) if r != total.rank])):
            source = draw(st.sampled_from([total, *held]))
            held.append(program.copy(source, program.output(rank, chunk)))
    return program, node_sizes


@settings(max_examples=60)
@given(random_all_reduces())
def test_any_all_reduce_is_cut_and_right(drawn: tuple[Program, tuple[int, ...]]) -> None:
    program, node_sizes = drawn
    assert runs_right(lower(program, "random trees"), node_sizes) >= 1


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_order_of_rounds_and_stages_ends_with_the_result(collective: Collective) -> None:
    algorithms = [*over_gateways(collective, (2, 1))]
    algorithms += expert_algorithms(collective, switched(3, 1))
    for algorithm in algorithms:
        if algorithm.step_count > 30:
            continue
        node_sizes = (2, 1) if "gateways" in algorithm.name else (1, 1, 1)
        phased = cut(algorithm, node_sizes)
        for in_place in (False, True)[: 1 + phased.must_run_in_place]:
            assert run_in_every_order(phased, in_place=in_place) > len(phased.rounds)


@pytest.mark.parametrize("node_sizes", [(4,), (2, 1), (4, 0)])
def test_nodes_that_do_not_fit_are_named(node_sizes: tuple[int, ...]) -> None:
    algorithm = lower(ring_all_reduce([(0, 1, 2, 3)]), "ring")
    with pytest.raises(NoProgramError):
        cut(algorithm, node_sizes)


def test_what_cannot_be_cut_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoProgramError, match="a node has 33 ranks, an executor serves at most 32"):
        cut(lower(ring_all_reduce([tuple(range(34))]), "ring"), (33, 1))
    ring = lower(ring_all_reduce([tuple(range(9))]), "ring")
    first = replace(ring.programs[0], threadblocks=ring.programs[0].threadblocks[1:])
    with pytest.raises(NoProgramError, match="it is not proved: "):
        cut(replace(ring, programs=(first, *ring.programs[1:])), (8, 1))
    with pytest.raises(NoProgramError, match="custom operation"):
        cut(replace(ring, collective=Collective.CUSTOM), (8, 1))
    monkeypatch.setattr(cutting, "MOST_ROUNDS", 2)
    with pytest.raises(NoProgramError, match=r"crosses between nodes 4 times, .* at most 2 rounds"):
        cut(ring, (8, 1))
    monkeypatch.setattr(data_flow, "MOST_MOVES", 100)
    with pytest.raises(NoProgramError, match=r"its steps move \d+ chunks, at most 100 are"):
        cut(ring, (8, 1))
