"""The simulator against times computed by hand, and properties of every schedule."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES, Collective
from sketches.sketch import Edge, EdgeKind, Port, Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.simulate.simulator import (
    CompiledSchedule,
    ExecutionModel,
    compile_schedule,
    simulate_us,
)
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched
from tuccl.errors import InfeasibleError, ScheduleError

IDEAL = ExecutionModel()


def _chunk(offset: int) -> ChunkRef:
    return ChunkRef(Buffer.OUTPUT, offset)


def _step(kind: StepType, offset: int = 0, count: int = 1, depends: StepRef | None = None) -> Step:
    return Step(kind, _chunk(offset), _chunk(offset), count, depends)


def _schedule(
    blocks: dict[int, list[tuple[int, int, int, list[Step]]]], chunks: int, ranks: int
) -> Algorithm:
    """Return a schedule of threadblocks by rank: (send peer, receive peer, channel, steps)."""
    programs = []
    for rank in range(ranks):
        threadblocks = tuple(
            Threadblock(number, send, receive, channel, tuple(steps))
            for number, (send, receive, channel, steps) in enumerate(blocks.get(rank, []))
        )
        programs.append(GpuProgram(rank, chunks, chunks, 0, threadblocks))
    return Algorithm(
        "by hand", Collective.CUSTOM, Protocol.SIMPLE, 1, chunks, True, True, tuple(programs)
    )


def _ring_all_gather(ranks: int, channels: int = 1) -> Algorithm:
    blocks: dict[int, list[tuple[int, int, int, list[Step]]]] = {}
    for rank in range(ranks):
        blocks[rank] = []
        for channel in range(channels):
            steps = [_step(StepType.SEND, rank * channels + channel)]
            for back in range(1, ranks - 1):
                offset = (rank - back) % ranks * channels + channel
                steps.append(_step(StepType.RECV_COPY_SEND, offset))
            steps.append(_step(StepType.RECV, (rank + 1) % ranks * channels + channel))
            blocks[rank].append(((rank + 1) % ranks, (rank - 1) % ranks, channel, steps))
    return _schedule(blocks, ranks * channels, ranks)


def _chain(hops: int) -> Algorithm:
    blocks = {
        0: [(1, -1, 0, [_step(StepType.SEND)])],
        hops: [(-1, hops - 1, 0, [_step(StepType.RECV)])],
    }
    for rank in range(1, hops):
        blocks[rank] = [(rank + 1, rank - 1, 0, [_step(StepType.RECV_COPY_SEND)])]
    return _schedule(blocks, 1, hops + 1)


def _line(ranks: int, gb_per_s: float = 10.0) -> Sketch:
    return direct(ranks, {(rank, rank + 1): gb_per_s for rank in range(ranks - 1)}, alpha_us=1.0)


def test_a_ring_on_a_switch_takes_n_minus_one_alphas_and_betas() -> None:
    size = 8 * 300_000
    # 7 hops of 300 kB at 300 GB/s (1 us) and 0.7 us.
    assert simulate_us(_ring_all_gather(8), switched(1, 8), size, IDEAL) == pytest.approx(7 * 1.7)


def test_each_part_of_the_model_costs_what_it_says() -> None:
    schedule, sketch, size = _chain(2), _line(3), 10_000
    assert simulate_us(schedule, sketch, size, IDEAL) == pytest.approx(2 * (1 + 1))
    launched = ExecutionModel(launch_us=5)
    assert simulate_us(schedule, sketch, size, launched) == pytest.approx(9)
    half = ExecutionModel(wire_efficiency=0.5)
    assert simulate_us(schedule, sketch, size, half) == pytest.approx(2 * (2 + 1))
    # 2.5 GB/s copies: each message takes 4 us to push and the last one 4 us to copy out.
    slow = ExecutionModel(threadblock_gb_per_s=2.5)
    assert simulate_us(schedule, sketch, size, slow) == pytest.approx(4 + 1 + 4 + 1 + 4)
    # Two instances share the wire but copy half of the data each.
    two = replace(slow, instances=2)
    assert simulate_us(schedule, sketch, size, two) == pytest.approx(2 + 1 + 2 + 1 + 2)
    # A threadblock is ready for its message long before it comes: one handover, at the start.
    handover = ExecutionModel(step_overhead_us=0.25)
    assert simulate_us(schedule, sketch, size, handover) == pytest.approx(0.25 + 4)


def test_handovers_between_steps_of_one_threadblock_add_up() -> None:
    copies = [_step(StepType.COPY, offset) for offset in range(3)]
    schedule = _schedule({0: [(-1, -1, 0, copies)]}, 3, 2)
    model = ExecutionModel(step_overhead_us=0.5, threadblock_gb_per_s=1.0)
    assert simulate_us(schedule, _line(2), 3000, model) == pytest.approx(3 * (0.5 + 1))
    nops = _schedule({0: [(-1, -1, 0, [_step(StepType.NOP)] * 4)]}, 1, 2)
    assert simulate_us(nops, _line(2), 1 << 30, model) == pytest.approx(4 * 0.5)


def test_a_step_waits_for_the_step_it_depends_on() -> None:
    schedule = _schedule(
        {
            0: [
                (-1, -1, 0, [_step(StepType.COPY)]),
                (1, -1, 0, [_step(StepType.SEND, depends=StepRef(0, 0))]),
            ],
            1: [(-1, 0, 0, [_step(StepType.RECV)])],
        },
        1,
        2,
    )
    model = ExecutionModel(threadblock_gb_per_s=5.0)
    # Copy 2 us, then push 2 us, alpha 1 us, copy out 2 us.
    assert simulate_us(schedule, _line(2), 10_000, model) == pytest.approx(7)


def test_messages_share_a_port_one_after_the_other() -> None:
    ports = (Port("tx", 10.0), Port("rx1", 5.0), Port("rx2", 10.0))
    edges = tuple(Edge(0, dst, EdgeKind.NETWORK, 1.0, 10.0, ("tx", f"rx{dst}")) for dst in (1, 2))
    sketch = Sketch("star", "by hand", (0, 1, 2), edges, ports)
    blocks = {
        0: [(dst, -1, 0, [_step(StepType.SEND)]) for dst in (1, 2)],
        1: [(-1, 0, 0, [_step(StepType.RECV)])],
        2: [(-1, 0, 0, [_step(StepType.RECV)])],
    }
    # To rank 2 behind rank 1's message: 1 + 1 + alpha; rank 1's own slow port: 2 + alpha.
    assert simulate_us(_schedule(blocks, 1, 3), sketch, 10_000, IDEAL) == pytest.approx(3)
    alone = {rank: blocks[rank] for rank in (1,)} | {0: blocks[0][:1]}
    assert simulate_us(_schedule(alone, 1, 3), sketch, 10_000, IDEAL) == pytest.approx(3)


def test_an_edge_narrower_than_its_ports_serves_one_message_at_a_time() -> None:
    edge = Edge(0, 1, EdgeKind.NVLINK, 0.0, 10.0, ("out",))
    sketch = Sketch("pair", "by hand", (0, 0), (edge,), (Port("out", 1000.0),))
    blocks = {
        0: [(1, -1, channel, [_step(StepType.SEND)]) for channel in range(3)],
        1: [(-1, 0, channel, [_step(StepType.RECV)]) for channel in range(3)],
    }
    time_us = simulate_us(_schedule(blocks, 1, 2), sketch, 10_000, IDEAL)
    assert time_us == pytest.approx(3, rel=0.02)


def test_tiles_pipeline_through_a_chain() -> None:
    compiled = compile_schedule(_chain(4), _line(5))
    model = ExecutionModel(slot_bytes=10_000)
    # 4 hops of (1 + 1) us for the first tile, one more us for each that follows.
    for tiles in (1, 2, 3, 4, 30, 1000):
        assert compiled.time_us(tiles * 10_000, model) == pytest.approx(8 + tiles - 1)
    assert compiled.time_us(35_000, model) == pytest.approx(8 + 2.5)


def test_a_sender_runs_ahead_by_the_fifo_slots_only() -> None:
    messages = 6
    sends = [_step(StepType.SEND, offset) for offset in range(messages)]
    takes = [_step(StepType.RECV, offset) for offset in range(messages)]
    blocks = {0: [(1, -1, 0, sends)], 1: [(-1, 0, 0, takes)]}
    compiled = compile_schedule(_schedule(blocks, messages, 2), _line(2))
    size = messages * 10_000
    # With one slot every message waits for the one before it to arrive.
    assert compiled.time_us(size, ExecutionModel(fifo_slots=1)) == pytest.approx(messages * 2)
    assert compiled.time_us(size, ExecutionModel(fifo_slots=2)) == pytest.approx(messages + 1)


def test_defects_are_named() -> None:
    send = [_step(StepType.SEND)]
    unmatched = _schedule({0: [(1, -1, 0, send)]}, 1, 2)
    with pytest.raises(ScheduleError, match="connection 0->1 channel 0 has 1 sends and 0"):
        compile_schedule(unmatched, _line(2))
    nowhere = _schedule({0: [(-1, -1, 0, [_step(StepType.COPY, depends=StepRef(3, 0))])]}, 1, 2)
    with pytest.raises(ScheduleError, match="waits for threadblock 3 step 0"):
        compile_schedule(nowhere, _line(2))
    turns = {
        0: [(1, 1, 0, [_step(StepType.RECV), _step(StepType.SEND)])],
        1: [(0, 0, 0, [_step(StepType.RECV), _step(StepType.SEND)])],
    }
    with pytest.raises(ScheduleError, match="deadlock: 4 of 4 steps never start"):
        simulate_us(_schedule(turns, 1, 2), _line(2), 8, IDEAL)


def test_schedules_that_do_not_fit_the_sketch_are_refused() -> None:
    far = _schedule(
        {0: [(2, -1, 0, [_step(StepType.SEND)])], 2: [(-1, 0, 0, [_step(StepType.RECV)])]}, 1, 3
    )
    with pytest.raises(InfeasibleError, match="from rank 0 to rank 2"):
        compile_schedule(far, _line(3))
    with pytest.raises(InfeasibleError, match="is for 3 ranks"):
        compile_schedule(far, _line(4))


@pytest.mark.long
@pytest.mark.parametrize("collective", COLLECTIVES)
@given(
    sizes=st.lists(st.integers(0, 1 << 32), min_size=2, max_size=6),
    slot=st.sampled_from([1 << 12, 1 << 16, 1 << 20]),
    copy=st.sampled_from([10.0, 40.0, float("inf")]),
    overhead=st.sampled_from([0.0, 0.5]),
    instances=st.sampled_from([1, 2, 8]),
)
def test_a_larger_call_never_takes_less_time(
    collective: Collective,
    sizes: list[int],
    slot: int,
    copy: float,
    overhead: float,
    instances: int,
) -> None:
    model = ExecutionModel(overhead, copy, 0.9375, slot, instances)
    for algorithm in _rings(collective):
        times = [algorithm.time_us(size, model) for size in sorted(sizes)]
        assert times == sorted(times)


@cache
def _rings(collective: Collective) -> list[CompiledSchedule]:
    return [
        compile_schedule(algorithm, sketch)
        for sketch in (switched(1, 4), hybrid_cube_mesh())
        for algorithm in expert_algorithms(collective, sketch)[:2]
    ]


def test_large_rings_reach_the_bandwidth_of_their_links() -> None:
    compiled = compile_schedule(_ring_all_gather(8, channels=8), switched(1, 8))
    model = ExecutionModel(slot_bytes=1 << 17)
    size = 1 << 30
    times = compiled.times(size, model)
    assert size * 1e-3 / times.in_turn_us == pytest.approx(300 * 8 / 7, rel=0.01)
    # With fair rates all channels end a hop at once, and nothing hides its alpha, 0.7 us.
    hop_us = 8 * (1 << 17) * 1e-3 / 300
    assert times.fair_us == pytest.approx(times.in_turn_us * (hop_us + 0.7) / hop_us, rel=0.01)


def test_the_same_call_gives_the_same_time() -> None:
    model = ExecutionModel(0.3, 20.0, 0.9375, 1 << 16, 2, 4.0)
    first, second = (
        compile_schedule(_ring_all_gather(8, channels=4), switched(1, 8)) for _ in range(2)
    )
    assert first.time_us(1 << 26, model) == second.time_us(1 << 26, model)
