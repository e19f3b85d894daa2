import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import DEFAULT_ALGORITHM, PHASES_PREFIX, STOCK, Config
from tuccl.search.trials.presets import (
    UNSLICED,
    executor_families,
    nccl_space,
    pattern_families,
    phased_families,
)
from tuccl.search.trials.space import Space, space_of, with_channels_up_to

NCCL = nccl_space(Collective.ALL_GATHER, Shape(4, 4, 1))
IN_ROUNDS = phased_families("c", 1 << 30, (UNSLICED,), in_rounds=True)
SCHEDULES = Space("executor", (*executor_families(["a"]), *pattern_families(["b"]), *IN_ROUNDS))


def test_without_a_bound_a_space_is_as_it_was() -> None:
    assert with_channels_up_to(NCCL, None) is NCCL


@given(st.sampled_from([NCCL, SCHEDULES]), st.integers(1, 64))
def test_no_configuration_asks_for_more(space: Space, most: int) -> None:
    bounded = with_channels_up_to(space, most)
    for config in bounded:
        assert max(config.nchannels, config.min_nchannels) <= most
        assert config.nchannels > 0 or config.algorithm == DEFAULT_ALGORITHM
    assert all(count <= most for count in bounded.between_min_nchannels)


@pytest.mark.long
@given(st.sampled_from([NCCL, SCHEDULES]), st.integers(8, 64))
def test_whatever_asks_for_few_enough_stays(space: Space, most: int) -> None:
    fits = {c for c in space if c.nchannels <= most and c.min_nchannels <= most}
    assert set(with_channels_up_to(space, most)) == fits


def test_a_family_of_large_counts_takes_the_largest_power_of_two_below() -> None:
    # Schedules in rounds have 8 to 64 thread blocks at 1 GB.
    family = with_channels_up_to(Space("", IN_ROUNDS), 7).families[0]
    assert family.nchannels == (4,)
    assert Config(f"{PHASES_PREFIX}c", "LL128", 4, 512, UNSLICED) in Space("", (family,))


def test_the_own_choice_of_nccl_stays() -> None:
    assert STOCK in with_channels_up_to(NCCL, 1)


def test_a_record_loses_what_asks_for_more_or_for_the_own_count_of_nccl() -> None:
    few, many = Config("ring", "LL", 4), Config("ring", "LL", 8)
    own, least = Config("ring", "LL", 0), Config("ring", "Simple", 4, min_nchannels=32)
    recorded = space_of("record", (STOCK, few, many, own, least))
    bounded = with_channels_up_to(recorded, 4)
    assert set(bounded) == {STOCK, few}
    assert bounded.recorded
