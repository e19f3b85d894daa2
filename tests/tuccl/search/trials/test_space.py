import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import ASKED_ABOUT, COLLECTIVES, Collective
from lookup_tables.table import Shape
from tuccl.search.strategies.opening import star
from tuccl.search.strategies.tpe import Unseen
from tuccl.search.trials.catalogue import axis_knobs
from tuccl.search.trials.config import STOCK, Config, ProcessProfile
from tuccl.search.trials.presets import (
    executor_families,
    nccl_families,
    nccl_space,
    pattern_families,
)
from tuccl.search.trials.space import Family, Knob, Space, space_of, with_profile

ROOT = Path(__file__).resolve().parents[4]
THREADS_AND_BUFFERS = axis_knobs()[:2]
SPACE = Space(
    "test",
    (
        *nccl_families(Collective.ALL_REDUCE, knobs=THREADS_AND_BUFFERS),
        *executor_families(["0123456789abcdef"]),
    ),
)


def test_size_counts_what_iteration_gives_and_nothing_twice() -> None:
    configs = list(SPACE)
    assert len(configs) == len(set(configs)) == SPACE.size


def test_tree_is_proposed_for_all_reduce_alone() -> None:
    for operation in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        assert {family.algorithm for family in nccl_families(operation)} == {"ring"}


def test_ll128_is_not_proposed_where_links_do_not_keep_128_bytes_in_order() -> None:
    for families, others in (
        (executor_families(["a"], ll128=False), {"LL", "Simple"}),
        (pattern_families(["a"], ll128=False), {"LL"}),
    ):
        assert {family.protocol for family in families} == others


def test_a_tuner_cannot_choose_anything_for_alltoall() -> None:
    assert nccl_families(Collective.ALLTOALL) == ()
    assert set(ASKED_ABOUT) == set(COLLECTIVES) - {Collective.ALLTOALL}


@given(st.integers(0, 2**32 - 1))
def test_random_configurations_lie_in_the_space_and_so_do_their_neighbours(seed: int) -> None:
    config = Unseen(SPACE, seed).uniform(np.random.default_rng(seed))
    assert config in SPACE
    index, positions = SPACE.positions(config)
    assert SPACE.families[index].at(positions) == config
    for neighbour in SPACE.neighbours(config):
        assert neighbour in SPACE
        assert neighbour != config


def test_positions_beyond_the_end_mean_the_end() -> None:
    family = SPACE.families[0]
    assert family.at([99] * 5) == family.at([len(axis) - 1 for axis in family.axes])
    assert family.at([-1] * 5) == family.at([0] * 5)


def test_one_profile_leaves_built_ins_only_their_per_call_choice() -> None:
    space = with_profile(SPACE, ProcessProfile(256, 1 << 20, 32))
    for config in space:
        if config.is_schedule:
            continue
        assert config.profile == ProcessProfile(256, 1 << 20, 32)
    schedules = [config for config in SPACE if config.is_schedule]
    assert [config for config in space if config.is_schedule] == schedules


def test_what_is_not_a_configuration_of_the_space_is_not_in_it() -> None:
    assert STOCK not in SPACE
    assert "ring" not in SPACE
    with pytest.raises(KeyError):
        SPACE.positions(Config("pat", "LL", 1, 0, 0))


def test_a_recorded_space_under_a_profile_is_what_was_recorded_under_it() -> None:
    under = [Config("ring", "LL", count, 128) for count in (1, 4)]
    space = space_of("record", [*under, Config("ring", "LL", 4, 256), STOCK])
    assert list(with_profile(space, ProcessProfile(nthreads=128))) == under
    assert list(with_profile(space, ProcessProfile(nthreads=64))) == []
    assert list(with_profile(space, ProcessProfile())) == [STOCK]


def test_pat_exists_with_one_rank_per_node_under_simple_alone() -> None:
    spread = nccl_families(Collective.ALL_GATHER, Shape(ranks=4, nodes=4, ranks_per_node=1))
    assert [(f.algorithm, f.protocol) for f in spread if f.algorithm == "pat"] == [
        ("pat", "Simple")
    ]
    together = nccl_families(Collective.ALL_GATHER, Shape(ranks=4, nodes=1, ranks_per_node=4))
    assert "pat" not in {family.algorithm for family in together}


def test_ll128_is_proposed_where_the_links_allow_it() -> None:
    families = nccl_families(Collective.ALL_REDUCE, ll128=False)
    assert {family.protocol for family in families} == {"LL", "Simple"}


def test_the_interpreter_is_offered_no_more_threads_than_it_runs() -> None:
    header = ROOT / "tuccl" / "runtime" / "executor" / "program_staging.h"
    found = re.search(r"kMostProgramThreads = (\d+);", header.read_text(encoding="utf-8"))
    assert found is not None
    counts = {count for family in executor_families(["0123"]) for count in family.nthreads}
    assert max(counts) == int(found[1])
    assert all(count % 32 == 0 for count in counts)


def test_the_joint_space_of_nccl_holds_its_own_choice_under_every_profile() -> None:
    space = nccl_space(Collective.ALL_REDUCE)
    assert STOCK in space
    assert Config("default", "", 0, 256, 16 << 20, 32) in space
    assert Config("ring", "Simple", 64, 0, 1 << 20, 64) in space
    assert Config("default", "LL") not in space
    assert {config.algorithm for config in nccl_space(Collective.ALLTOALL)} == {"default"}


def test_a_recorded_space_is_what_was_recorded_in_ascending_effect() -> None:
    configs = [
        Config("ring", "LL", 2, 64),
        Config("ring", "LL", 2, 0),
        Config("ring", "LL", 4, 64),
        Config("ring", "LL", 2, 128, 1 << 20),
        Config("default", "", 0, 64),
    ]
    space = space_of("recorded", configs)
    assert sorted(space) == sorted(configs)
    assert space.size == len(configs)
    ring = space.families[1]
    # 0 is NCCL's own: 512 threads, 4 MiB, so it stands last of both.
    assert (ring.nchannels, ring.nthreads, ring.buffer_bytes) == (
        (2, 4),
        (64, 128, 0),
        (1 << 20, 0),
    )
    assert Config("ring", "LL", 4, 128) not in space
    assert Config("ring", "LL", 4, 128) not in space.neighbours(Config("ring", "LL", 4, 64))
    assert space.line(Config("ring", "LL", 2, 64), axis=0) == [configs[0], configs[2]]


@pytest.mark.long
@given(st.sets(st.sampled_from(sorted(SPACE)), max_size=30), st.sampled_from(sorted(SPACE)))
def test_the_nearest_unseen_configuration_is_the_nearest(taken: set[Config], start: Config) -> None:
    unseen = Unseen(SPACE, seed=0)
    for config in taken:
        assert unseen.take(config)
        assert not unseen.take(config)
    found = unseen.near(start)
    assert found not in taken
    if start not in taken:
        assert found == start
    assert distance(found, start) == min(
        distance(config, start) for config in SPACE if config not in taken
    )


def distance(a: Config, b: Config) -> int:
    (family, positions), (family_b, positions_b) = SPACE.positions(a), SPACE.positions(b)
    steps = sum(abs(x - y) for x, y in zip(positions, positions_b, strict=True))
    return steps + (family != family_b)


def test_the_star_reaches_out_along_each_axis_at_doubling_distances() -> None:
    space = Space("line", (Family("ring", "LL", tuple(range(1, 21)), (64,), (0, 1)),))
    found = star(space, Config("ring", "LL", 5, 64, 0))
    along = [config.nchannels for config in found if config.buffer_bytes == 0]
    assert along == [4, 6, 3, 7, 1, 9, 13]
    assert [config for config in found if config.buffer_bytes] == [Config("ring", "LL", 5, 64, 1)]


def test_a_knob_sets_its_own_variables_only() -> None:
    knob = Knob(((), (("NCCL_B", "2"), ("NCCL_C", "0"))))
    set_before = ProcessProfile(settings=(("NCCL_A", "1"), ("NCCL_C", "7")))
    turned = knob.turned(set_before, knob.values[1])
    assert turned.environment == {"NCCL_A": "1", "NCCL_B": "2", "NCCL_C": "0"}
    assert knob.turned(turned, ()).environment == {"NCCL_A": "1"}


def test_under_a_profile_built_ins_carry_its_further_variables_and_schedules_do_not() -> None:
    profile = ProcessProfile(256, 1 << 20, 32, (("NCCL_A", "1"),))
    space = with_profile(SPACE, profile)
    for config in space:
        assert config.settings == (() if config.is_schedule else profile.settings)
        assert config in space
        assert space.positions(config)
    assert Config("ring", "LL", 4, 256, 1 << 20, 32) not in space


def test_schedules_across_hosts_carry_the_whole_profile() -> None:
    profile = ProcessProfile(128, 1 << 20, 32, (("NCCL_SOCKET_NTHREADS", "1"),))
    family = Family("phases:5a5a", "LL", (4, 8), (256, 512), (1 << 18, 1 << 30))
    (under,) = with_profile(Space("executor", (family,)), profile).families
    assert under.axes == family.axes
    config = under.at((1, 0, 0, 0, 0))
    assert config.profile == profile
    assert config.needs_profile
    assert config.is_schedule
    assert config.schedule == "5a5a"
    assert config.describe() == (
        "phases:5a5a LL ch8 th256 buf256K NCCL_BUFFSIZE=1048576 NCCL_MIN_CTAS=32 "
        "NCCL_NTHREADS=128 NCCL_SOCKET_NTHREADS=1"
    )
    (stock,) = with_profile(Space("executor", (under,)), ProcessProfile()).families
    assert stock == family
    assert stock.at((0, 0, 0, 0, 0)).needs_profile
    assert not Config("schedule:5a5a", "LL").needs_profile


def test_a_record_may_hold_several_values_of_further_variables() -> None:
    configs = [Config("ring", "LL", 4, settings=settings) for settings in ((), (("NCCL_A", "1"),))]
    space = space_of("record", configs)
    assert list(space) == configs
    assert list(with_profile(space, configs[1].profile)) == configs[1:]
