from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from tests.sketches.machines import cluster
from tests.tuccl.measuring.records.small_record import machine
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.measuring.backends.backend_choice import BackendRequest
from tuccl.models.figures import communicator_shape
from tuccl.options.run_options import RunOptions
from tuccl.search.strategies.hyperband import hyperband_plan
from tuccl.search.trials.shapes import ShapeName, shapes_named
from tuccl.tuning.pipeline.dry_run import describe_bracket, make_plan, plan_lines, samples_of
from tuccl.tuning.settings import RunSettings


def test_samples_of_a_bracket_are_counted_once_however_many_rungs_resume_them() -> None:
    first, *_, last = hyperband_plan(27, 3)
    assert describe_bracket(first) == "27 x 1, 9 x 3, 3 x 9, 1 x 27"
    assert samples_of(first) == 27 * 1 + 9 * 2 + 3 * 6 + 1 * 18
    assert samples_of(last) == 4 * 27


def test_the_plan_of_a_record_counts_with_recorded_times() -> None:
    grid = tiny_grid()
    settings = RunSettings((Collective.ALL_REDUCE,), (65536,), RunOptions(backend="replay"), 5.0)
    plan = make_plan(settings, BackendRequest(grid.topology, grid.shape, record=grid))
    assert plan.configurations == {"all_reduce": 9}
    assert plan.process_profiles == 1
    launch_s = 20 * 20e-6
    assert plan.pass_s == pytest.approx(plan.samples_per_pass * launch_s, rel=0.02)
    assert plan.whole_space_s == pytest.approx(9 * 27 * launch_s, rel=0.02)
    assert (plan.budget_s, plan.restart_s) == (5.0, 3.0)


def test_the_plan_of_a_machine_counts_with_the_model() -> None:
    topology = machine("a100-8gpu-8nic")
    settings = RunSettings((Collective.ALL_REDUCE, Collective.BROADCAST), (1024, 1 << 20))
    plan = make_plan(settings, BackendRequest(topology, communicator_shape(topology)))
    assert plan.configurations["all_reduce"] > plan.configurations["broadcast"] > 0
    assert plan.configurations_in_all == 2 * sum(plan.configurations.values())
    assert plan.whole_space_s > plan.pass_s > 0


def test_the_plan_of_several_shapes_counts_the_keys_of_each() -> None:
    topology = cluster(2, 4, 4)
    whole = communicator_shape(topology)
    names = (ShapeName.WHOLE, ShapeName.NODE, ShapeName.RAIL)
    settings = RunSettings((Collective.ALL_GATHER,), (1024, 1 << 20))
    several = replace(settings, shapes=shapes_named(names, whole))
    alone, plan = (make_plan(each, BackendRequest(topology, whole)) for each in (settings, several))
    assert plan_lines(alone)[0] == "keys: 2 (all_gather; 2 sizes, 1K to 1M)"
    assert plan_lines(plan)[0] == (
        "keys: 6 (all_gather; 2 sizes, 1K to 1M; 8 ranks on 2 node(s); 4 ranks on 1 node(s); "
        "2 ranks on 2 node(s))"
    )
    assert plan.pass_s > alone.pass_s
    more = make_plan(replace(settings, near_switches=True), BackendRequest(topology, whole))
    assert plan_lines(more)[0] == (
        "keys: 2 (all_gather; 2 sizes, 1K to 1M; where NCCL's own choice changes up to 2 more)"
    )
