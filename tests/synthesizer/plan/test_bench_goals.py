"""Published benchmark machines: schedules at their bounds, and no slower than TACOS's."""

from __future__ import annotations

import pytest

from lookup_tables.collective import Collective
from probes.files.bench_topologies import read_bench_topology
from sketches.candidates import sketch_candidates
from synthesizer.plan.synthesize import synthesize
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.shared_data import SHARED_DATA, requires_shared_data

pytestmark = pytest.mark.long


def _gb_per_s(entry: str, sketch_name: str, collective: Collective, size_bytes: int) -> float:
    """Return the algorithm bandwidth of the synthesized schedule."""
    topology = read_bench_topology(SHARED_DATA / "bench_topologies.json", entry).topology
    (sketch,) = (s for s in sketch_candidates(topology) if s.name == sketch_name)
    algorithm = synthesize(collective, sketch, size_bytes).algorithm
    time_us = compile_schedule(algorithm, sketch).time_us(size_bytes, ExecutionModel())
    return size_bytes * 1e-3 / time_us


@requires_shared_data
@pytest.mark.parametrize(
    ("entry", "sketch", "collective", "bound"),
    [
        ("dgx1_8xV100", "direct", Collective.ALL_GATHER, 171.429),
        ("dgx1_8xV100", "direct", Collective.ALLTOALL, 75.0),
        ("torus_4x4", "direct", Collective.REDUCE_SCATTER, 213.333),
        ("v100_2x4_1nic", "pruned", Collective.ALL_REDUCE, 12.5),
        ("h100_2x8", "pruned", Collective.ALL_GATHER, 533.333),
    ],
)
def test_a_gigabyte_is_within_two_percent_of_the_bound(
    entry: str, sketch: str, collective: Collective, bound: float
) -> None:
    assert _gb_per_s(entry, sketch, collective, 10**9) >= 0.98 * bound


@requires_shared_data
@pytest.mark.parametrize(
    ("entry", "sketch", "tacos_us"),
    [
        ("dgx1_8xV100", "direct", 9.6),
        pytest.param("torus_4x4", "direct", 7.8, marks=pytest.mark.slow),
        pytest.param("ndv2_2x8", "pruned", 58.75, marks=pytest.mark.slow),
    ],
)
def test_a_megabyte_takes_less_time_than_with_tacos(
    entry: str, sketch: str, tacos_us: float
) -> None:
    assert 10**3 / _gb_per_s(entry, sketch, Collective.ALL_GATHER, 10**6) < tacos_us
