"""Schedules that a table whose sums do not move takes."""

from __future__ import annotations

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from sketches.candidates import sketch_candidates
from synthesizer.experts import expert_algorithms
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.executor_schedules import executor_space, modelled_space
from tuccl.schedules.kept_sums import adds_in_order, kept_order, run_by_kernels

SHAPE = Shape(4, 1, 4)


def test_kernels_are_taken_and_rings_and_trees_are_not() -> None:
    sketch, *_ = sketch_candidates(read_topology(shipped_machines()["h200-4gpu"]))
    for collective, names in (
        (Collective.ALL_REDUCE, {"all_pairs_one_phase", "all_pairs_two_phase"}),
        (Collective.REDUCE_SCATTER, {"all_pairs"}),
        (Collective.REDUCE, set[str]()),
    ):
        found = [
            Candidate(algorithm, sketch, "expert")
            for algorithm in expert_algorithms(collective, sketch)
        ]
        kept = [each for each in found if adds_in_order(each, SHAPE)]
        assert names <= {each.name.removeprefix(f"{collective}_") for each in kept}
        assert not any("ring" in each.name or "tree" in each.name for each in kept)
        assert len(kept) < len(found)
        # A model gives them the interpreter's protocol, too, which joins additions.
        assert {f.protocol for f in run_by_kernels(modelled_space(kept, 4096)).families} <= {
            "LL",
            "LL128",
        }
        assert run_by_kernels(executor_space(kept, 4096)) == executor_space(kept, 4096)


def test_the_order_of_a_shape() -> None:
    assert kept_order(SHAPE) == "(0+1+2+3)"
    assert kept_order(Shape(4, 2, 2)) == "((0+1)+(2+3))"
    assert kept_order(Shape(3, 2, 0)) is None
