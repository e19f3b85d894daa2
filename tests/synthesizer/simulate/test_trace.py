"""Traces of simulated calls: the time is the simulator's, and ports serve one message at a time."""

from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm, StepType
from synthesizer.simulate.simulator import ExecutionModel, simulate
from synthesizer.simulate.trace import trace_schedule
from tests.synthesizer.hand_sketches import hybrid_cube_mesh, switched, torus
from tuccl.errors import InfeasibleError, ScheduleError

MODEL = ExecutionModel(step_overhead_us=0.5, threadblock_gb_per_s=20.0, launch_us=3.0)
MACHINES = {
    "torus": lambda: torus(2),
    "switched": lambda: switched(2, 4),
    "hybrid_cube_mesh": hybrid_cube_mesh,
}


@cache
def schedules_on(machine: str, collective: Collective) -> list[tuple[Algorithm, Sketch]]:
    sketch = MACHINES[machine]()
    return [(algorithm, sketch) for algorithm in expert_algorithms(collective, sketch)]


of_each_machine_and_operation = pytest.mark.parametrize(
    ("machine", "collective"),
    [(name, each) for name in MACHINES for each in (Collective.ALL_REDUCE, Collective.ALL_GATHER)],
)


@of_each_machine_and_operation
def test_a_trace_is_the_simulated_call(machine: str, collective: Collective) -> None:
    for schedule in schedules_on(machine, collective):
        check_that_a_trace_is_the_simulated_call(*schedule)


def check_that_a_trace_is_the_simulated_call(algorithm: Algorithm, sketch: Sketch) -> None:
    size_bytes = 1 << 20
    trace = trace_schedule(algorithm, sketch, size_bytes, MODEL)
    assert (trace.tiles, trace.traced_tiles) == (1, 1)
    simulated = simulate(algorithm, sketch, size_bytes, MODEL)
    assert MODEL.launch_us + trace.time_us == simulated.in_turn_us
    assert MODEL.launch_us + trace.fair_us == simulated.fair_us
    assert max(step.end_us for step in trace.steps) == trace.time_us
    assert len(trace.steps) == algorithm.step_count
    ends = {(step.rank, step.threadblock.id, step.position): step.end_us for step in trace.steps}
    for step in trace.steps:
        assert 0.0 <= step.begin_us <= step.end_us
        awaited = step.step.depends
        if awaited is not None:
            earlier = ends[step.rank, awaited.threadblock, awaited.step]
            assert step.begin_us >= earlier + MODEL.step_overhead_us
        if step.position:
            before = ends[step.rank, step.threadblock.id, step.position - 1]
            assert step.begin_us >= before + MODEL.step_overhead_us
    assert all(0.0 < share <= 1.0 + 1e-9 for share in trace.shares().values())


@of_each_machine_and_operation
def test_a_port_serves_one_message_at_a_time(machine: str, collective: Collective) -> None:
    for schedule in schedules_on(machine, collective):
        check_that_a_port_serves_one_message_at_a_time(*schedule)


def check_that_a_port_serves_one_message_at_a_time(algorithm: Algorithm, sketch: Sketch) -> None:
    trace = trace_schedule(algorithm, sketch, 1 << 20, MODEL)
    by_port = defaultdict(list)
    for transfer in trace.transfers:
        by_port[transfer.port].append((transfer.begin_us, transfer.end_us))
        assert transfer.end_us <= trace.time_us + 1e-9
        edge = sketch.edge[transfer.src, transfer.dst]
        own = f"{transfer.src} to {transfer.dst}"
        assert set(transfer.port.split(", ")) <= {own, *edge.ports}
    for used in by_port.values():
        for (_, end_us), (begin_us, _) in pairwise(sorted(used)):
            assert begin_us >= end_us - 1e-9


def test_messages_say_whether_they_are_reduced() -> None:
    algorithm, sketch = schedules_on("torus", Collective.ALL_REDUCE)[0]
    trace = trace_schedule(algorithm, sketch, 1 << 20, MODEL)
    assert {transfer.reduces for transfer in trace.transfers} == {True, False}
    sends = [step for step in trace.steps if step.step.type.sends]
    assert {step.peer_reduces for step in sends} == {True, False}
    assert not any(step.peer_reduces for step in trace.steps if step.step.type is StepType.RECV)


def test_the_first_tiles_of_many_are_traced() -> None:
    algorithm, sketch = schedules_on("torus", Collective.ALL_REDUCE)[0]
    tiled = replace(MODEL, slot_bytes=4096)
    size_bytes = 64 * 4096 * algorithm.chunks_per_loop
    trace = trace_schedule(algorithm, sketch, size_bytes, tiled, most_tiles=2)
    assert trace.tiles >= 64
    assert trace.traced_tiles == 2
    assert len(trace.steps) == 2 * algorithm.step_count
    assert {step.tile for step in trace.steps} == {0, 1}
    single = trace_schedule(algorithm, sketch, size_bytes, tiled)
    assert (
        single.time_us < trace.time_us < simulate(algorithm, sketch, size_bytes, tiled).in_turn_us
    )


def test_what_cannot_be_simulated_is_refused() -> None:
    algorithm, sketch = schedules_on("torus", Collective.ALL_REDUCE)[0]
    with pytest.raises(InfeasibleError, match="does not connect"):
        trace_schedule(algorithm, replace(sketch, edges=sketch.edges[:1]), 1 << 20, MODEL)
    with pytest.raises(ScheduleError, match="deadlocks with 0 FIFO slots"):
        trace_schedule(algorithm, sketch, 1 << 20, replace(MODEL, fifo_slots=0))
