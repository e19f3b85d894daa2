"""Schedules of the user's own: what is read, what is refused, what becomes a candidate."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from sketches.candidates import sketch_candidates, whole_machine
from synthesizer.experts import expert_algorithms
from synthesizer.formats.msccl_xml import write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.programs import cutting
from tests.sketches.machines import cluster
from tuccl.errors import UsageError
from tuccl.models.figures import communicator_shape
from tuccl.schedules.own_schedules import (
    Demands,
    OwnSchedule,
    own_candidates,
    read_own_schedules,
    with_own,
)

MACHINE = read_topology(shipped_machines()["h200-4gpu"])
SKETCHES = sketch_candidates(MACHINE)
SIZES = (1 << 10, 1 << 20)
GATHER = (Collective.ALL_GATHER,)
IN_THE_LANGUAGE = """
from synthesizer.dsl import INPUT, OUTPUT, Schedule
from lookup_tables.collective import Collective


def schedule(nodes, gpus):
    made = Schedule(Collective.ALL_GATHER, nodes * gpus)
    for rank in range(made.ranks):
        for other in range(made.ranks):
            made.chunk(rank, INPUT, 0).copy(other, OUTPUT, rank)
    return made
"""
Write = Callable[[str, str], Path]


def demands(operations: tuple[Collective, ...] = GATHER) -> Demands:
    return Demands(MACHINE, communicator_shape(MACHINE), operations, SIZES)


def ring(collective: Collective = Collective.ALL_GATHER) -> Algorithm:
    algorithms = expert_algorithms(collective, SKETCHES[0])
    return next(algorithm for algorithm in algorithms if "ring" in algorithm.name)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file; gives the directory."""

    def written(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path

    return written


def refusal(folder: Path, wanted: Demands | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read_own_schedules(folder, wanted or demands())
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith(f"--schedules {folder}")
    return str(caught.value)


def test_both_forms_are_read_and_named(write: Write) -> None:
    write("around.xml", write_msccl_xml(replace(ring(), name="round_and_round")))
    folder = write("everyone.py", IN_THE_LANGUAGE)
    (folder / "README.md").write_text("passed over")
    found = read_own_schedules(folder, demands())
    assert [own.algorithm.name for own in found] == ["round_and_round", "everyone"]
    assert {own.operation for own in found} == {Collective.ALL_GATHER}


def test_a_schedule_without_a_name_has_its_file_s(write: Write) -> None:
    folder = write("around.xml", write_msccl_xml(replace(ring(), name="")))
    assert [own.algorithm.name for own in read_own_schedules(folder, demands())] == ["around"]


def test_the_digest_knows_name_and_sizes() -> None:
    first = ring()
    others = (first, replace(first, name="other"), replace(first, max_bytes=1 << 20))
    assert len({OwnSchedule(Path("a.xml"), variant).digest for variant in others}) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("schedule = 1", "defines no `schedule`"),
        ("", "defines no `schedule`"),
        ("def schedule(nodes, gpus:", "line 1: SyntaxError"),
        ("x = 1\nraise ValueError('two\\nlines')", "line 2: ValueError: two lines"),
        ("def schedule(nodes, gpus):\n    return nodes / 0", "line 2: ZeroDivisionError"),
        ("def schedule(nodes, gpus):\n    nodes * gpus", "`schedule(1, 4)` returned a NoneType"),
        ("import sys\nsys.exit(0)", "line 2: SystemExit: 0"),
        ("def schedule(nodes, gpus):\n    raise SystemExit", "line 2: SystemExit"),
        (IN_THE_LANGUAGE.replace("OUTPUT, rank)", "INPUT, rank)"), "all_gather"),
        (IN_THE_LANGUAGE.replace("nodes * gpus", "2 * gpus"), "8 ranks, h200-4gpu has 4"),
        (IN_THE_LANGUAGE.replace("range(made.ranks):\n            made", "[0]:\n            made"),
         "it is wrong, "),
    ],
)  # fmt: skip
def test_a_program_that_is_wrong_is_refused_with_its_file(
    write: Write, text: str, why: str
) -> None:
    assert why in refusal(write("mine.py", text))


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        (ring(Collective.ALL_REDUCE), "it is for all_reduce, this run tunes all_gather"),
        (replace(ring(), collective=Collective.CUSTOM), "custom, which no call of NCCL asks for"),
        (replace(ring(), programs=ring().programs[:2]), "it is for 2 ranks, h200-4gpu has 4"),
        (replace(ring(), out_of_place=False), "runs in place only"),
        (replace(ring(), min_bytes=1 << 30, max_bytes=1 << 31), "no size of this run"),
    ],
)
def test_a_schedule_for_something_else_is_refused(
    write: Write, algorithm: Algorithm, why: str
) -> None:
    assert why in refusal(write("mine.xml", write_msccl_xml(algorithm)))


def test_a_file_that_is_no_schedule_is_refused(write: Write) -> None:
    assert "not an MSCCL algorithm" in refusal(write("mine.xml", "<system/>"))


def test_a_schedule_that_says_the_wrong_thing_is_not_proved(write: Write) -> None:
    text = write_msccl_xml(ring()).replace('dstoff="0"', 'dstoff="1"', 1)
    assert "it is wrong, " in refusal(write("mine.xml", text))


def test_across_hosts_the_executor_runs_what_has_a_form_in_rounds(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("program.py", IN_THE_LANGUAGE)
    across = Demands(cluster(2, 2, 1), Shape(4, 2, 2), (Collective.ALL_GATHER,), SIZES)
    on_executor = replace(across, on_executor=True)
    assert read_own_schedules(folder, across) == read_own_schedules(folder, on_executor)
    monkeypatch.setattr(cutting, "MOST_ROUNDS", 0)
    assert len(read_own_schedules(folder, across)) == 1
    said = refusal(folder, on_executor)
    assert "cannot run it in rounds across hosts: a chunk crosses between nodes 1 times" in said


def test_a_directory_without_schedules_is_refused(tmp_path: Path) -> None:
    assert "holds no schedule" in refusal(tmp_path)
    assert "No such file" in refusal(tmp_path / "none")


def test_one_schedule_in_two_files_is_refused(write: Write) -> None:
    write("a.xml", write_msccl_xml(ring()))
    folder = write("b.xml", write_msccl_xml(replace(ring(), name="b")))
    assert "b.xml: the same schedule as a.xml" in refusal(folder)


def test_what_calls_in_place_need_is_asked_for(write: Write) -> None:
    folder = write("mine.xml", write_msccl_xml(replace(ring(), in_place=False)))
    assert len(read_own_schedules(folder, demands())) == 1
    assert "out of place only" in refusal(folder, replace(demands(), in_place=True))


def test_a_candidate_promises_the_sizes_it_is_for(write: Write) -> None:
    own = OwnSchedule(Path("mine.xml"), replace(ring(), min_bytes=4096))
    found = own_candidates([own], SKETCHES, whole_machine(MACHINE), SIZES)
    (candidate,) = found[Collective.ALL_GATHER]
    assert [promise.size_bytes for promise in candidate.promises] == [1 << 20]
    assert candidate.origin == "own, from mine.xml"
    assert 0.0 < candidate.promises[0].ratio <= 1.0


def test_a_schedule_that_is_made_as_well_goes_by_the_user_s_name() -> None:
    machine = whole_machine(MACHINE)
    made = own_candidates([OwnSchedule(Path("a.xml"), ring())], SKETCHES, machine, SIZES)
    mine = OwnSchedule(Path("b.xml"), replace(ring(), name="mine"))
    own = own_candidates([mine], SKETCHES, machine, SIZES)
    (only,) = with_own(made, own)[Collective.ALL_GATHER]
    assert only.name == "mine"
