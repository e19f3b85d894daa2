"""Schedules of each communicator shape of a run, made on its part of the machine, and saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.sketches.machines import cluster
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tests.tuccl.silent_progress import silent
from tuccl.options.run_options import RunOptions
from tuccl.schedules.candidates import Candidate
from tuccl.search.trials.events import Total
from tuccl.search.trials.shapes import ShapeName, shapes_named
from tuccl.tuning.pipeline.shape_schedules import candidates_of, parts_of, sketches_of
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.runs import Run

MACHINE = cluster(2, 2, 2)
WHOLE, NODE, RAIL = Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1)
SETTINGS = RunSettings(
    (Collective.ALL_REDUCE,), (64 << 10,), shapes=shapes_named(tuple(ShapeName)[:3], WHOLE)
)


def made(settings: RunSettings, folder: Path) -> dict[Shape, tuple[Candidate, ...]]:
    return {
        part.shape: candidates_of(part, settings, sketches_of(part, settings), (), silent)[
            Collective.ALL_REDUCE
        ]
        for part in parts_of(MACHINE, settings, Run(folder))
    }


def test_the_executor_has_kernels_in_a_node_and_plans_across(tmp_path: Path) -> None:
    settings = replace(SETTINGS, options=RunOptions(backend="nccl,executor"))
    found = made(settings, tmp_path)
    assert list(found) == [WHOLE, NODE, RAIL]
    assert {shape: {c.phases is None for c in own} for shape, own in found.items()} == {
        WHOLE: {False},
        NODE: {True},
        RAIL: {False},
    }
    for shape, own in found.items():
        assert {candidate.sketch.ranks for candidate in own} == {shape.ranks}
        assert all(candidate.program for candidate in own)
    plans = {(plan.phases.nodes, plan.phases.local_ranks) for plan in found[RAIL] if plan.phases}
    assert plans == {(2, 1)}


def test_nodes_of_different_sizes_have_schedules_in_rounds(tmp_path: Path) -> None:
    machine = Uneven((2, 1), 1, "mesh").topology()
    settings = RunSettings((Collective.ALL_GATHER,), (64 << 10, 64 << 20))
    hashes = []
    for backend in ("nccl,executor", "simulated"):
        chosen = replace(settings, options=RunOptions(backend=backend))
        run = Run(tmp_path / backend)
        (part,) = parts_of(machine, chosen, run)
        for _ in ("made", "loaded"):
            found = candidates_of(part, chosen, sketches_of(part, chosen), (), silent)
            own = found[Collective.ALL_GATHER]
            assert {candidate.node_sizes for candidate in own} == {(2, 1)}
            hashes.append([candidate.content_hash for candidate in own])
    assert len(hashes[0]) >= 2
    assert all(each == hashes[0] for each in hashes), "what runs is what is modelled"


def test_making_schedules_in_rounds_shows_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[str, int, Total, float | None]] = []

    def progress(stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        told.append((stage, done, total, share))

    machine = Uneven((2, 1), 1, "mesh").topology()
    settings = RunSettings((Collective.ALL_REDUCE, Collective.ALL_GATHER), (64 << 10,))
    (part,) = parts_of(machine, settings, Run(tmp_path))
    candidates_of(part, settings, (), (), progress)
    assert {(stage, total) for stage, _, total, _ in told} == {("schedules", 2)}
    dones = [done for _, done, _, _ in told]
    shares = [share for *_, share in told if share is not None]
    assert (dones, shares) == (sorted(dones), sorted(shares))
    assert (dones[0], dones[-1], shares[0], shares[-1]) == (0, 2, 0.0, 1.0)
    assert len(set(shares)) > 6, "each search of an operation moves it on"


@pytest.mark.long
def test_nodes_with_fewer_nics_than_gpus_have_plans_and_rounds(tmp_path: Path) -> None:
    settings = RunSettings((Collective.ALL_REDUCE,), (1 << 10, 64 << 20))
    for nics, has_rounds in ((2, False), (1, True)):
        (part,) = parts_of(cluster(2, 2, nics), settings, Run(tmp_path / str(nics)))
        own = candidates_of(part, settings, (), (), silent)[Collective.ALL_REDUCE]
        assert any(candidate.phases is not None for candidate in own)
        rounds = [candidate for candidate in own if candidate.node_sizes]
        assert bool(rounds) is has_rounds
        assert all(candidate.node_sizes == (2, 2) for candidate in rounds)


def test_schedules_of_every_shape_are_saved_and_loaded(tmp_path: Path) -> None:
    found = made(SETTINGS, tmp_path)
    saved = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("index.json")}
    assert saved == {
        "schedules/all_reduce",
        "schedules/2x1/all_reduce",
        "schedules/2x2/all_reduce",
    }
    sketches = {path.parent.name for path in tmp_path.glob("sketches/**/*.json")}
    assert sketches == {"2x1"}, "plans across nodes need none"
    again = made(SETTINGS, tmp_path)
    for shape, own in found.items():
        assert [c.content_hash for c in again[shape]] == [c.content_hash for c in own]
        assert [c.promises for c in again[shape]] == [c.promises for c in own]
    (network,) = {c.sketch.name for c in found[RAIL]}
    assert network not in {c.sketch.name for c in found[NODE]}


def test_one_shape_keeps_its_schedules_where_they_were(tmp_path: Path) -> None:
    (part,) = parts_of(MACHINE, replace(SETTINGS, shapes=()), Run(tmp_path))
    assert (part.shape, part.topology) == (WHOLE, MACHINE)
    assert (part.sketches, part.schedules) == (tmp_path / "sketches", tmp_path / "schedules")
