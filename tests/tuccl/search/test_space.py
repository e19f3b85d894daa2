import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.table import Operation
from tuccl.search.config import STOCK, Config, ProcessProfile
from tuccl.search.presets import executor_families, nccl_families, paper_space
from tuccl.search.space import Space, space_of, with_profile
from tuccl.search.unseen import Unseen

SPACE = Space(
    "test", (*nccl_families(Operation.ALL_REDUCE), *executor_families(["0123456789abcdef"]))
)


def test_table_iv_of_the_paper_has_3600_configurations() -> None:
    space = paper_space("ring")
    assert space.size == 3600
    assert Config("ring", "LL", 16, 640, 128 << 15) in space
    assert Config("ring", "LL", 16, 640, 256) in space
    assert Config("ring", "LL", 32, 640, 256) not in space


def test_size_counts_what_iteration_gives_and_nothing_twice() -> None:
    configs = list(SPACE)
    assert len(configs) == len(set(configs)) == SPACE.size


def test_tree_is_proposed_for_all_reduce_alone() -> None:
    for operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER):
        assert {family.algorithm for family in nccl_families(operation)} == {"ring"}


def test_a_tuner_cannot_choose_anything_for_alltoall() -> None:
    assert nccl_families(Operation.ALLTOALL) == ()


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
    assert family.at([99] * 4) == family.at([len(axis) - 1 for axis in family.axes])
    assert family.at([-1] * 4) == family.at([0] * 4)


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


def test_descriptions_are_for_people() -> None:
    assert Config("ring", "LL128", 16, 0, 0).describe() == "ring LL128 ch16"
    assert Config("tree", "Simple", 2, 256, 1 << 20).describe() == "tree Simple ch2 th256 buf1M"
    assert STOCK.describe() == "default"


def test_a_recorded_space_under_a_profile_is_what_was_recorded_under_it() -> None:
    under = [Config("ring", "LL", count, 128) for count in (1, 4)]
    space = space_of("record", [*under, Config("ring", "LL", 4, 256), STOCK])
    assert list(with_profile(space, ProcessProfile(nthreads=128))) == under
    assert list(with_profile(space, ProcessProfile(nthreads=64))) == []
    assert list(with_profile(space, ProcessProfile())) == [STOCK]
