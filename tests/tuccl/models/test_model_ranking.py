"""The model's order of configurations."""

from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.models.figures import Fabric, Generation, figures_of
from tuccl.models.model_ranking import modelled_opening
from tuccl.models.nccl_choice import nccl_choice
from tuccl.search.trials.config import Config, Task

H200_X4 = figures_of(Shape(4, 1, 4), Fabric.NVLINK, Generation.HOPPER, 450.0)
SHAPE = Shape(4, 1, 4)
CONFIGS = [
    Config(algorithm, protocol, nchannels)
    for algorithm in ("ring", "tree")
    for protocol in ("LL", "LL128", "Simple")
    for nchannels in (1, 8, 24)
]


def test_small_messages_are_for_ll_and_large_ones_for_many_channels_of_simple() -> None:
    small = modelled_opening(H200_X4, Task(Collective.ALL_REDUCE, 4096, SHAPE), CONFIGS, 3)
    assert {config.protocol for config in small} == {"LL"}
    large = modelled_opening(H200_X4, Task(Collective.ALL_REDUCE, 1 << 30, SHAPE), CONFIGS, 1)
    assert large == (Config("ring", "Simple", 24),)


def test_schedules_and_what_the_model_does_not_know_are_left_out() -> None:
    strangers = [Config("schedule:abc", "Simple", 4, 256, 1 << 20), Config("nvls", "Simple", 8)]
    task = Task(Collective.ALL_REDUCE, 1 << 20, SHAPE)
    assert modelled_opening(H200_X4, task, [*strangers, CONFIGS[0]], 4) == (CONFIGS[0],)


def test_beside_computation_an_opening_spares_multiprocessors() -> None:
    task = Task(Collective.ALL_REDUCE, 1 << 24, SHAPE)
    alone = modelled_opening(H200_X4, task, CONFIGS, 3)
    beside = modelled_opening(H200_X4, task, CONFIGS, 3, computation_us=10_000.0)
    assert max(config.nchannels for config in alone) == 24
    assert max(config.nchannels for config in beside) < 24


@given(st.permutations(CONFIGS), st.integers(1, 12), st.integers(10, 30))
def test_an_opening_has_one_configuration_of_each_launch_whatever_their_order(
    configs: list[Config], count: int, exponent: int
) -> None:
    task = Task(Collective.ALL_REDUCE, 1 << exponent, SHAPE)
    opening = modelled_opening(H200_X4, task, configs, count)
    launches = [nccl_choice(task.operation, task.size_bytes, config, H200_X4) for config in opening]
    assert len(set(launches)) == len(opening) <= count
    assert opening == modelled_opening(H200_X4, task, CONFIGS, len(CONFIGS))[:count]
