from lookup_tables.table import Operation, Shape
from tuccl.profile import choose_profile
from tuccl.search.config import Config, ProcessProfile, Task

SHAPE = Shape(8, 1, 8)
SMALL = Task(Operation.ALL_REDUCE, 1 << 14, SHAPE)
LARGE = Task(Operation.ALL_REDUCE, 1 << 28, SHAPE)


def measure(small_by_threads: dict[int, float], large_by_threads: dict[int, float]):  # type: ignore[no-untyped-def]
    def samples(task: Task, config: Config, repeats: int) -> tuple[float, ...]:
        times = small_by_threads if task is SMALL else large_by_threads
        own_choice = 1.1 if config.is_default else 1.0
        return (times[config.nthreads] * own_choice,) * repeats

    return samples


FRESH = 27
RANKINGS = {
    SMALL: [Config("ring", "LL", 8, 128, 0)],
    LARGE: [Config("ring", "Simple", 8, 0, 0)],
}


def test_a_value_that_helps_one_key_and_costs_none_is_taken() -> None:
    timing = measure({0: 10.0, 128: 9.0}, {0: 100.0, 128: 100.0})
    assert choose_profile(RANKINGS, timing, FRESH) == ProcessProfile(nthreads=128)


def test_a_value_that_costs_another_key_more_than_stock_is_refused() -> None:
    timing = measure({0: 10.0, 128: 5.0}, {0: 100.0, 128: 130.0})
    assert choose_profile(RANKINGS, timing, FRESH) == ProcessProfile()


def test_a_gain_within_the_noise_leaves_the_variable_alone() -> None:
    timing = measure({0: 10.0, 128: 9.99}, {0: 100.0, 128: 100.0})
    assert choose_profile(RANKINGS, timing, FRESH) == ProcessProfile()


def test_environment_names_only_what_is_set() -> None:
    assert ProcessProfile().environment == {}
    assert ProcessProfile(256, 1 << 20).environment == {
        "NCCL_BUFFSIZE": "1048576",
        "NCCL_NTHREADS": "256",
    }


def test_a_configuration_under_a_profile_has_all_of_it() -> None:
    profile = ProcessProfile(256, 1 << 20, 32)
    for call in (Config("ring", "Simple", 4), Config("ring", "LL128", 4, 64, 0)):
        config = profile.applied_to(call)
        assert config.profile == profile
        assert (config.algorithm, config.protocol, config.nchannels) == ("ring", call.protocol, 4)


def test_a_gain_that_is_luck_does_not_set_a_variable() -> None:
    """Nine lucky samples make a value look 1 % better; the fresh ones do not confirm it."""

    def lucky(task: Task, config: Config, repeats: int) -> tuple[float, ...]:
        early = 9.9 if config.nthreads == 128 else 10.0
        return tuple(early if number < 9 else 10.0 for number in range(repeats))

    assert choose_profile(RANKINGS, lucky, FRESH) == ProcessProfile()
