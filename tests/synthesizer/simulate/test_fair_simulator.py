"""Max-min fair sharing: times computed by hand, properties, and the loop in C against Python's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthesizer.ir.schedule_graph import Hop, ScheduleGraph
from synthesizer.native import Deadlock, NativeSchedule, Sharing
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, Times
from tests.synthesizer.simulate.reference_fair import Interval, fair_rates, simulate_fair_us
from tests.synthesizer.simulate.reference_simulator import tiled_graph

pytestmark = pytest.mark.long

KILOBYTE = 1000.0
"""Takes 1 us on a port of 1 GB/s."""


def messages(
    *routes: Sequence[int], chunks: Sequence[int] = (), alpha_us: float = 0
) -> ScheduleGraph:
    """Return independent messages, each between two threadblocks, over ports of 1 GB/s."""
    graph = ScheduleGraph(port_count=1 + max(port for route in routes for port in route))
    for i, route in enumerate(routes):
        graph.names += [(2 * i, 0, 0), (2 * i + 1, 0, 0)]
        graph.chunks += [chunks[i] if chunks else 1] * 2
        graph.hops += [tuple(Hop(port, 1e-3) for port in route), ()]
        graph.alpha_us += [alpha_us, 0]
        graph.blocks += [range(2 * i, 2 * i + 1), range(2 * i + 1, 2 * i + 2)]
        graph.connections.append(([2 * i], [2 * i + 1]))
    return graph


def run(
    graph: ScheduleGraph,
    tiles: int = 1,
    fifo_slots: int = 8,
    costs: tuple[float, float, float] = (0.0, KILOBYTE, 0.0),
    sharing: Sharing = Sharing.FAIR,
) -> float | Deadlock:
    handover_us, wire_bytes, copy_us = costs
    return NativeSchedule(graph).simulate_us(
        tiles,
        fifo_slots,
        sharing,
        handover_us=handover_us,
        wire_bytes_per_chunk=wire_bytes,
        copy_us_per_chunk=copy_us,
    )


def agree(
    graph: ScheduleGraph, tiles: int, fifo_slots: int, costs: tuple[float, float, float]
) -> None:
    """Check the loop in C against the loop in Python."""
    here = run(graph, tiles, fifo_slots, costs)
    reference = simulate_fair_us(graph, tiled_graph(graph, tiles, fifo_slots), costs)
    if isinstance(reference, Deadlock):
        assert here == reference
    else:
        assert here == pytest.approx(reference, rel=1e-8)


def test_two_messages_over_a_port_take_as_long_as_both() -> None:
    graph = messages([0], [0], alpha_us=0.5)
    assert run(graph) == pytest.approx(2.5)
    assert run(graph, sharing=Sharing.IN_TURN) == pytest.approx(2.5)


def test_a_message_that_ends_frees_its_rate() -> None:
    # 1 and 3 kB: both at half the rate for 2 us, then the rest of the longer one, 2 kB, alone.
    assert run(messages([0], [0], chunks=[1, 3])) == pytest.approx(4)
    # Behind the short one of port 0, rank 2's message is at 1/2 until 2 us, and at 1 then.
    graph = messages([0], [0, 1], chunks=[1, 2])
    trace: list[Interval] = []
    costs = (0.0, KILOBYTE, 0.0)
    assert simulate_fair_us(graph, tiled_graph(graph, 1, 8), costs, trace) == pytest.approx(3)
    assert [dict(interval.rates) for interval in trace] == [{0: 500, 2: 500}, {2: 1000}]
    assert run(graph) == pytest.approx(3)


def test_three_messages_over_two_ports_get_halves() -> None:
    """One crosses both ports, one each of them: the classic example of max-min fairness."""
    rates = fair_rates({0: (Hop(0, 1e-3), Hop(1, 1e-3)), 1: (Hop(0, 1e-3),), 2: (Hop(1, 1e-3),)})
    assert rates == pytest.approx({0: 500, 1: 500, 2: 500})
    assert run(messages([0, 1], [0], [1])) == pytest.approx(2)
    # Port 1 of 2 GB/s: the message over it alone takes what the other two leave, 1.5 GB/s.
    wide = messages([0, 1], [0], [1], chunks=[1, 1, 3])
    for step in (0, 4):
        wide.hops[step] = tuple(Hop(hop.port, 1e-3 / (1 + hop.port)) for hop in wide.hops[step])
    assert run(wide) == pytest.approx(2)


def test_a_message_in_the_way_of_many_holds_them_up() -> None:
    """In turn, one message per port and a chain behind it; fairly, all of them at once."""
    graph = messages([0], [0], [0], [0], [1])
    graph.depends = [(1, 8)]
    # Rank 0's message arrives after 1 us in turn, after 4 us fairly; rank 8 forwards it for 1 us.
    assert run(graph, sharing=Sharing.IN_TURN) == pytest.approx(4)
    assert run(graph) == pytest.approx(5)
    times = CompiledSchedule(graph, 1).times(KILOBYTE, ExecutionModel())
    assert times == pytest.approx(Times(4, 5))
    assert CompiledSchedule(graph, 1).time_us(KILOBYTE, ExecutionModel()) == pytest.approx(5)


def test_threadblocks_copy_no_faster_than_they_can() -> None:
    # 2 us per kB: each message takes half of its port, and the receives 2 us more.
    assert run(messages([0], [0]), costs=(0.0, KILOBYTE, 2.0)) == pytest.approx(4)
    assert run(messages([0], [0]), costs=(0.0, 0.0, 2.0)) == pytest.approx(4)


@st.composite
def traffic(draw: st.DrawFn) -> ScheduleGraph:
    """Draw messages over a few ports of different widths, some of which wait for others."""
    widths = draw(st.lists(st.sampled_from([1e-3, 2e-3, 5e-4, 3e-3]), min_size=2, max_size=5))
    ports = st.lists(st.integers(0, len(widths) - 1), min_size=1, max_size=3, unique=True)
    count = draw(st.integers(1, 8))
    graph = messages(
        *(draw(ports) for _ in range(count)),
        chunks=[draw(st.integers(1, 4)) for _ in range(count)],
        alpha_us=draw(st.sampled_from([0.0, 0.7])),
    )
    graph.port_count = len(widths)
    graph.hops = [tuple(Hop(hop.port, widths[hop.port]) for hop in route) for route in graph.hops]
    for later in range(1, count):
        earlier = draw(st.none() | st.integers(0, later - 1))
        if earlier is not None:
            graph.depends.append((2 * earlier + 1, 2 * later))
    return graph


COSTS = st.tuples(st.sampled_from([0.0, 0.3]), st.just(KILOBYTE), st.sampled_from([0.0, 0.8]))


@settings(deadline=None)
@given(traffic(), st.integers(1, 3), st.integers(1, 3), COSTS)
def test_times_are_those_of_the_python_loop(
    graph: ScheduleGraph, tiles: int, fifo_slots: int, costs: tuple[float, float, float]
) -> None:
    agree(graph, tiles, fifo_slots, costs)
    assert run(graph, tiles, fifo_slots, costs) == run(graph, tiles, fifo_slots, costs)


@settings(deadline=None)
@given(traffic(), COSTS)
def test_rates_are_max_min_fair(graph: ScheduleGraph, costs: tuple[float, float, float]) -> None:
    trace: list[Interval] = []
    simulate_fair_us(graph, tiled_graph(graph, 1, 8), costs, trace)
    most = costs[1] / costs[2] if costs[2] else float("inf")
    for interval in trace:
        busy = dict.fromkeys(range(graph.port_count), 0.0)
        fastest = dict.fromkeys(range(graph.port_count), 0.0)
        for step, rate in interval.rates.items():
            for hop in graph.hops[step]:
                busy[hop.port] += rate * hop.us_per_byte
                fastest[hop.port] = max(fastest[hop.port], rate)
        assert max(busy.values()) <= 1 + 1e-9
        for step, rate in interval.rates.items():
            # A full port where no other message is faster, or the threadblock's own limit: so no
            # port on the way of a message idles that the message could use.
            assert rate >= most or any(
                busy[hop.port] >= 1 - 1e-9 and rate >= fastest[hop.port] * (1 - 1e-9)
                for hop in graph.hops[step]
            )
    moved = sum(
        rate * (interval.end_us - interval.begin_us)
        for interval in trace
        for rate in interval.rates.values()
    )
    sent = sum(chunks for chunks, hops in zip(graph.chunks, graph.hops, strict=True) if hops)
    assert moved == pytest.approx(sent * KILOBYTE)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), COSTS, st.data())
def test_without_shared_ports_both_models_agree(
    count: int, tiles: int, costs: tuple[float, float, float], data: st.DataObject
) -> None:
    graph = messages(*([i] for i in range(count)), alpha_us=0.7)
    for later in range(1, count):
        if data.draw(st.booleans()):
            graph.depends.append((2 * data.draw(st.integers(0, later - 1)) + 1, 2 * later))
    in_turn = run(graph, tiles, 2, costs, Sharing.IN_TURN)
    assert run(graph, tiles, 2, costs) == pytest.approx(in_turn, rel=1e-8)


def test_deadlocks_are_told() -> None:
    graph = messages([0], [0], [1])
    graph.depends = [(3, 4), (5, 2)]
    assert run(graph) == Deadlock(4, 2)
    agree(graph, 2, 2, (0.0, KILOBYTE, 0.0))
