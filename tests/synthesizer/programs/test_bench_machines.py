"""Schedules of the benchmark machines of several hosts, whole and with a GPU less, in rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.programs.compiler import compile_program, read_program
from synthesizer.programs.cutting import cut
from tests.sketches.machines import bench_topologies
from tests.synthesizer.programs.statement_runs import run_in_order
from tuccl.schedules.staged_candidates import node_sizes_of

COLLECTIVES = (
    *(Collective.ALL_REDUCE, Collective.ALL_GATHER),
    *(Collective.REDUCE_SCATTER, Collective.ALLTOALL),
)
MOST_RANKS_SYNTHESIZED = 8
MOST_STEPS = 2_000
QUICK = SynthesisOptions(time_limit_s=0.2, gap=0.1)


def machines() -> Iterator[tuple[str, Topology]]:
    for name, (whole, _) in bench_topologies().items():
        if 2 <= whole.node_count <= 4 and len(whole.gpus) <= 8 * whole.node_count:
            yield name, whole
            last = whole.gpus[-1].name
            yield f"{name} without {last}", without(whole, last)


def without(whole: Topology, gone: str) -> Topology:
    return replace(
        whole,
        devices=tuple(device for device in whole.devices if device.name != gone),
        links=tuple(link for link in whole.links if gone not in {link.src, link.dst}),
        limits=tuple(limit for limit in whole.limits if gone not in {limit.src, limit.dst}),
    )


def schedules(topology: Topology, collective: Collective) -> Iterator[Algorithm]:
    has_expert = False
    for sketch in (whole_machine(topology), *sketch_candidates(topology)[:1]):
        for algorithm in expert_algorithms(collective, sketch):
            if algorithm.step_count <= MOST_STEPS:
                has_expert = True
                yield algorithm
    if sketch.ranks <= MOST_RANKS_SYNTHESIZED or not has_expert:
        yield synthesize(collective, sketch, 1 << 20, QUICK).algorithm


@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", dict(machines()))
def test_what_is_compiled_for_them_is_read_and_runs_right(
    name: str, collective: Collective
) -> None:
    topology = dict(machines())[name]
    sizes = node_sizes_of(whole_machine(topology))
    assert (len(set(sizes)) > 1) is ("without" in name)
    number = 0
    for number, algorithm in enumerate(schedules(topology, collective), start=1):  # noqa: B007
        phased = cut(algorithm, sizes)
        assert read_program(compile_program(phased), algorithm.name) == phased
        for in_place in (False, True)[: 1 + phased.must_run_in_place]:
            run_in_order(phased, in_place=in_place)
    assert number >= 1
