"""The loop in C for messages in turn against the loop in Python: bit-identical times."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer import native
from synthesizer.experts import expert_algorithms
from synthesizer.ir.schedule_graph import ScheduleGraph
from synthesizer.native import Deadlock, NativeSchedule, Sharing
from synthesizer.simulate.flattening import schedule_graph
from tests.synthesizer.hand_sketches import hybrid_cube_mesh, switched, torus
from tests.synthesizer.simulate.reference_simulator import simulate_us, tiled_graph

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
COLLECTIVES = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.BROADCAST)


@cache
def simulated_graphs() -> list[ScheduleGraph]:
    machines: tuple[Sketch, ...] = (torus(2), switched(2, 4), hybrid_cube_mesh())
    return [
        schedule_graph(algorithm, sketch)
        for sketch in machines
        for collective in COLLECTIVES
        for algorithm in expert_algorithms(collective, sketch)
    ]


def both(
    graph: ScheduleGraph, tiles: int, fifo_slots: int, costs: tuple[float, float, float]
) -> tuple[float | Deadlock, float | Deadlock]:
    handover_us, wire_bytes, copy_us = costs
    native_us = NativeSchedule(graph).simulate_us(
        tiles,
        fifo_slots,
        Sharing.IN_TURN,
        handover_us=handover_us,
        wire_bytes_per_chunk=wire_bytes,
        copy_us_per_chunk=copy_us,
    )
    return native_us, simulate_us(graph, tiled_graph(graph, tiles, fifo_slots), costs)


graphs = st.deferred(lambda: st.sampled_from(simulated_graphs()))
microseconds = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))


@settings(deadline=None)
@given(
    graphs,
    st.integers(1, 5),
    st.integers(1, 12),
    st.tuples(microseconds, st.floats(0, 1e9), microseconds),
)
def test_times_are_those_of_the_python_loop(
    graph: ScheduleGraph, tiles: int, fifo_slots: int, costs: tuple[float, float, float]
) -> None:
    here, reference = both(graph, tiles, fifo_slots, costs)
    assert here == reference


@settings(deadline=None)
@given(graphs, st.data())
def test_deadlocks_are_those_of_the_python_loop(graph: ScheduleGraph, data: st.DataObject) -> None:
    """Random dependences between any two steps, about half of which lead to a deadlock."""
    steps = st.integers(0, len(graph.names) - 1)
    further = data.draw(st.lists(st.tuples(steps, steps), max_size=4))
    tangled = ScheduleGraph(
        **{name: getattr(graph, name) for name in ScheduleGraph.__dataclass_fields__}
    )
    tangled.depends = [*graph.depends, *further]
    here, reference = both(tangled, 2, 2, (1.0, 1000.0, 0.1))
    assert here == reference


def test_a_step_that_waits_for_itself_is_named() -> None:
    graph = ScheduleGraph(
        names=[(0, 0, 0)],
        chunks=[1],
        hops=[()],
        alpha_us=[0.0],
        blocks=[range(1)],
        depends=[(0, 0)],
    )
    assert both(graph, 3, 8, (1.0, 1.0, 1.0)) == (Deadlock(3, 0), Deadlock(3, 0))


def test_an_empty_schedule_takes_no_time() -> None:
    empty = NativeSchedule(ScheduleGraph())
    none = {"handover_us": 1.0, "wire_bytes_per_chunk": 1.0, "copy_us_per_chunk": 1.0}
    assert [empty.simulate_us(2, 8, sharing, **none) for sharing in Sharing] == [0, 0]


UNDER_SANITIZERS = """
from pathlib import Path
import sys
from synthesizer import native
native.__path__ = [sys.argv[1]]
from tests.synthesizer.simulate.test_fair_simulator import agree
from tests.synthesizer.simulate.test_native_simulator import both, simulated_graphs
for graph in simulated_graphs():
    for tiles, fifo_slots in ((1, 1), (3, 2), (2, 64)):
        here, reference = both(graph, tiles, fifo_slots, (0.5, 4096.0, 0.01))
        assert here == reference
    trace = native.NativeSchedule(graph).trace_in_turn(
        3, 2, handover_us=0.5, wire_bytes_per_chunk=4096.0, copy_us_per_chunk=0.01
    )
    if not isinstance(trace, native.Deadlock):
        assert max(trace.end_us) == trace.makespan_us
for graph in simulated_graphs()[::4]:
    for costs in ((0.5, 4096.0, 0.01), (0.0, 4096.0, 1.0), (0.5, 0.0, 0.01)):
        agree(graph, 2, 2, costs)
print(native._library()._name)
"""


def test_under_sanitizers_nothing_is_found(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc, whose sanitizers' runtime is loaded into Python")
    library = tmp_path / native.LIBRARY_NAME
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-g",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
    ]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = sorted((ROOT / "synthesizer" / "native").glob("*.c"))
    built = subprocess.run(
        [compiler, *flags, *sanitizers, "-o", library, *sources, "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr:
        pytest.skip("gcc has no runtime for its sanitizers")
    assert built.returncode == 0, built.stderr
    runtimes = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    done = subprocess.run(
        [sys.executable, "-c", UNDER_SANITIZERS, tmp_path],
        cwd=ROOT,
        # Python itself leaves memory behind at its end.
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(runtimes),
            "ASAN_OPTIONS": "detect_leaks=0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == str(library)
