"""Schedules over time: which are shown, what bars mean, and that they are called simulated."""

from dataclasses import replace
from functools import cache

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape, StoredSchedule
from probes.files.read import shipped_machines
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.formats.msccl_xml import write_msccl_xml
from tests.tuccl.tuned_tables import MANY_GPUS, tuned
from tests.tuccl.views.page.reported import HOSTILE, reported
from tuccl.models.siblings import SiblingMachines
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.reports.report import ScheduleReport
from tuccl.views.page.keys import key_figures
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.timelines import (
    MessagePhase,
    ScheduleTimeline,
    simulated_timelines,
    timeline_charts,
)

pytestmark = pytest.mark.long


@cache
def machine() -> Topology:
    return load_machine(MachineOptions(topology=str(shipped_machines()["a100-8gpu-8nic"]), nodes=2))


@cache
def sketch() -> Sketch:
    return next(each for each in sketch_candidates(machine()) if each.name == "pruned")


def with_schedule(name: str, shown: str = "all_reduce_two_phase") -> ReportedTable:
    """The usual table, of sixteen GPUs, whose schedule is an expert's."""
    found = reported(MANY_GPUS, "simulated")
    algorithm = next(
        each
        for each in expert_algorithms(Collective.ALL_REDUCE, sketch())
        if each.name.startswith(name)
    )
    stored = StoredSchedule("5a5a", shown, write_msccl_xml(algorithm))
    tried = ScheduleReport(
        name=shown,
        sketch="pruned",
        sketch_why="",
        origin="",
        of_bound={},
        operation="all_reduce",
        own=False,
    )
    assert found.report is not None
    return replace(
        found,
        table=replace(found.table, schedules=(stored,)),
        report=found.report.model_copy(update={"schedules": {"5a5a": tried}}),
        machine=machine(),
    )


def timelines(found: ReportedTable) -> tuple[ScheduleTimeline, ...]:
    return simulated_timelines(found, key_figures(found, None), [sketch()])


def test_a_hierarchical_schedule_has_four_phases_and_uses_its_links() -> None:
    (timeline,) = timelines(with_schedule("all_reduce_hierarchical_4c"))
    # 8 us over 2 us is the larger gain.
    assert timeline.size_bytes == 2048
    assert {bar.phase for bar in timeline.transfers} == set(MessagePhase) - {MessagePhase.LOCAL}
    assert {"out:n0/gpu0", "in:n1/gpu7", "tx:n0/nic3, rx:n1/nic3"} <= set(timeline.shares)
    assert {bar.rank for bar in timeline.steps} == set(range(16))
    used_us = dict.fromkeys(timeline.shares, 0.0)
    for bar in timeline.transfers:
        used_us[bar.lane] += bar.end_us - bar.begin_us
    for port, share in timeline.shares.items():
        assert share == pytest.approx(used_us[port] / timeline.time_us, rel=0.3, abs=0.002)
    across = {MessagePhase.COLLECT_ACROSS, MessagePhase.SPREAD_ACROSS}
    kinds = {bar.lane.partition(":")[0] for bar in timeline.transfers if bar.phase in across}
    assert kinds <= {"tx", "rx"}


def test_a_schedule_of_a_node_runs_on_its_part_of_the_machine() -> None:
    node = Shape(8, 1, 8)
    part = whole_machine(SiblingMachines(machine()).slowest(node))
    algorithm = expert_algorithms(Collective.ALL_REDUCE, part)[0]
    found = with_schedule("all_reduce_ring")
    table, report = tuned(node)
    stored = StoredSchedule("5a5a", algorithm.name, write_msccl_xml(algorithm))
    table = replace(table, schedules=(stored,))
    (timeline,) = timelines(replace(found, table=table, report=report))
    assert timeline.shape == node
    assert {bar.rank for bar in timeline.steps} == set(range(8))


def test_charts_say_simulated_and_offer_each_rank() -> None:
    found = timelines(with_schedule("all_reduce_hierarchical_4c", f"all_reduce_{HOSTILE}"))
    links, steps = timeline_charts(found)
    for chart in (links, steps):
        assert "(simulated)" in chart.title
        assert chart.alternative.startswith("Simulated, not measured.")
        for figure in chart.figures.values():
            assert figure.layout.xaxis.title.text == "simulated µs"
    assert len(steps.figures) == 16
    drawn = next(iter(steps.figures.values())).data
    assert not any("<" in text for trace in drawn for text in trace.hovertext)
    drawn = next(iter(links.figures.values())).data
    begins = [begin for trace in drawn for begin in trace.base]
    assert min(begins) >= 0.0


def test_what_cannot_be_shown_is_left_out() -> None:
    shown = with_schedule("all_reduce_ring")
    assert timelines(replace(shown, machine=None)) == ()
    assert timelines(replace(shown, report=None)) == ()
    no_xml = replace(
        shown, table=replace(shown.table, schedules=(StoredSchedule("5a5a", "x", "<algo/>"),))
    )
    assert timelines(no_xml) == ()
    table, report = tuned(Shape(3, 1, 3))
    table = replace(table, schedules=shown.table.schedules)
    of_no_part = replace(shown, table=table, report=report)
    assert timelines(of_no_part) == (), "the machine has no communicators of three ranks"
