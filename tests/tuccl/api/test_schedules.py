"""Schedules from Python."""

from dataclasses import replace
from pathlib import Path

import pytest

import tuccl
from lookup_tables.collective import Collective
from synthesizer.dsl import INPUT, OUTPUT, Schedule
from tests.tuccl.schedules.test_own_schedules import IN_THE_LANGUAGE
from tuccl.errors import FormatError, InfeasibleError

MACHINE = tuccl.read_topology("shipped:h200-4gpu")


def everyone(ranks: int = 4) -> Schedule:
    schedule = Schedule(Collective.ALL_GATHER, ranks)
    for rank in range(ranks):
        for peer in range(ranks):
            schedule.chunk(rank, INPUT, 0).copy(peer, OUTPUT, rank)
    return schedule


@pytest.mark.long
def test_what_is_synthesized_is_proved_and_no_slower_than_any_expert() -> None:
    stages: list[tuccl.Stage] = []
    found = tuccl.synthesize(MACHINE, "AllGather", 1 << 20, on_stage=stages.append)
    assert tuccl.verify(found.schedule).proved
    experts = tuccl.expert_schedules(MACHINE, "all_gather")
    times = [tuccl.simulate(expert, MACHINE, "1M").time_us for expert in experts]
    assert found.time_us <= min(times) * 1.001
    simulated = tuccl.simulate(found.schedule, MACHINE, "1M")
    assert (simulated.time_us, simulated.bound_us) == (found.time_us, found.bound_us)
    assert 0.9 < found.share_of_bound <= 1.0 + 1e-9
    assert found.gb_per_s == simulated.gb_per_s == pytest.approx((1 << 20) / found.time_us * 1e-3)
    assert stages[-1].done == stages[-1].total


def test_a_schedule_of_the_language_is_proved_timed_and_written(tmp_path: Path) -> None:
    assert tuccl.verify(everyone()).proved
    (path,) = tuccl.write_schedule(everyone(), tmp_path / "around.xml")
    read = tuccl.read_schedule(path)
    assert read.name == "around"
    assert tuccl.simulate(read, MACHINE, "1M") == tuccl.simulate(path, "shipped:h200-4gpu", "1M")


def test_a_program_in_a_file_is_called_with_the_machine_s_shape(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(IN_THE_LANGUAGE)
    schedule = tuccl.read_schedule(path, machine=MACHINE)
    assert (schedule.name, schedule.ranks) == ("mine", 4)
    assert tuccl.verify(path, machine=MACHINE).proved
    with pytest.raises(tuccl.UsageError, match="are not known here"):
        tuccl.read_schedule(path)


def test_a_defect_is_named_and_not_raised() -> None:
    half = everyone()
    partial = Schedule(Collective.ALL_GATHER, 4)
    partial.chunk(0, INPUT, 0).copy(1, OUTPUT, 0)
    assert tuccl.verify(half).defects == ()
    verdict = tuccl.verify(partial)
    assert not verdict.proved
    assert verdict.describe()


def test_a_rail_schedule_for_nccl_s_graphs_needs_the_machine(tmp_path: Path) -> None:
    ring = next(s for s in tuccl.expert_schedules(MACHINE, "all_gather") if "ring" in s.name)
    path = tmp_path / "ring.graph.xml"
    with pytest.raises(FormatError, match="give the schedule's topology"):
        tuccl.write_schedule(ring, path)
    assert tuccl.write_schedule(ring, path, machine=MACHINE) == (path,)
    assert "<graph " in path.read_text()


def test_a_schedule_for_other_ranks_has_no_time_here() -> None:
    with pytest.raises(InfeasibleError, match="is for 8 ranks"):
        tuccl.simulate(everyone(8), MACHINE, "1M")


def test_a_custom_operation_has_no_bound() -> None:
    algorithm = replace(
        tuccl.expert_schedules(MACHINE, "all_gather")[0], collective=Collective.CUSTOM
    )
    found = tuccl.simulate(algorithm, MACHINE, "1M")
    assert found.bound_us is None
    assert found.share_of_bound is None


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        (("all_sum", "1M"), {}, "operation 'all_sum' is unknown"),
        (("all_gather", "x"), {}, "size 'x'"),
        (("all_gather", 0), {}, "out of range"),
        (("all_gather", "1M"), {"root": 1}, "has no root"),
        (("all_gather", "1M"), {"format": "pdf"}, "format 'pdf' is unknown"),
        (("all_gather", "1M"), {"jobs": 0}, "--jobs 0"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(
    arguments: tuple[str, str], options: dict[str, str], why: str
) -> None:
    with pytest.raises(tuccl.UsageError, match=why):
        tuccl.synthesize(MACHINE, *arguments, **options)  # type: ignore[arg-type]


def test_a_file_that_is_no_schedule_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text("<algo>")
    with pytest.raises(tuccl.UsageError, match=r"x\.xml") as caught:
        tuccl.verify(tmp_path / "x.xml")
    assert isinstance(caught.value.__cause__, FormatError)
