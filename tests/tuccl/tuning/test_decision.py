import numpy as np
import pytest

from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.trials.config import DEFAULT_ALGORITHM, STOCK, Config
from tuccl.tuning.decision import PAIRS, decide

RING = Config("ring", "LL", 4)
TREE = Config("tree", "LL", 4)
SCHEDULE = Config("schedule:00", "LL", 1, 128, 1 << 16)
PROFILE_DEFAULT = Config(DEFAULT_ALGORITHM, nthreads=256)


class Times:
    """Fixed times with a little noise, and the order in which samples were taken."""

    def __init__(self, times_us: dict[Config, float], spread: float = 0.001) -> None:
        self.times_us = times_us
        self.spread = spread
        self.order: list[tuple[Config, int]] = []

    def __call__(self, config: Config, repeats: int) -> tuple[float, ...]:
        self.order.append((config, repeats))
        rng = np.random.default_rng(sorted(self.times_us).index(config))
        return tuple(self.times_us[config] * np.exp(rng.normal(0.0, self.spread, repeats)))


def none_taken(_: Config) -> int:
    return 0


def test_a_faster_built_in_and_a_faster_schedule_are_both_kept() -> None:
    times = Times({STOCK: 100.0, RING: 80.0, TREE: 90.0, SCHEDULE: 60.0})
    decision = decide([RING, TREE], [SCHEDULE], STOCK, times, taken=none_taken)
    assert decision.builtin is not None
    assert decision.builtin.config == RING
    assert decision.schedule is not None
    assert decision.schedule.config == SCHEDULE
    assert abs(decision.schedule.ratio - 80.0 / 60.0) < 0.01, "against the built-in, not stock"
    assert abs(decision.profile_default_us - 100.0) < 1.0


def test_a_gain_within_the_noise_is_no_entry() -> None:
    times = Times({STOCK: 100.0, RING: 99.0}, spread=0.05)
    decision = decide([RING], [], STOCK, times, taken=none_taken)
    assert decision.builtin is None
    assert decision.rejected[0].config == RING


def test_a_gain_below_the_least_is_no_entry() -> None:
    times = Times({STOCK: 100.0, RING: 99.9}, spread=0.0)
    assert decide([RING], [], STOCK, times, taken=none_taken).builtin is None


def test_under_a_profile_the_reference_is_nccls_own_choice_under_it() -> None:
    times = Times({STOCK: 100.0, PROFILE_DEFAULT: 120.0, RING: 105.0})
    decision = decide([RING], [], PROFILE_DEFAULT, times, taken=none_taken)
    assert decision.builtin is not None, "it makes up for the loss by the profile"
    assert abs(decision.builtin.ratio - 120.0 / 105.0) < 0.01


def test_samples_are_fresh_and_taken_in_turn() -> None:
    times = Times({STOCK: 100.0, RING: 80.0})
    decide([RING], [], STOCK, times, taken=lambda _: 27)
    taken = [(config, repeats) for config, repeats in times.order if repeats > 27]
    assert {repeats for _, repeats in taken} == set(range(28, 28 + PAIRS))
    rounds = [{config for config, repeats in taken if repeats == n} for n in range(28, 28 + PAIRS)]
    assert all(configs == {STOCK, RING} for configs in rounds)
    assert taken == sorted(taken, key=lambda pair: pair[1])


@pytest.mark.parametrize("slow", [0, 1])
def test_an_effect_on_every_second_launch_proves_nothing(slow: int) -> None:
    launches: list[Config] = []
    samples: dict[Config, list[float]] = {STOCK: [], RING: []}

    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        while len(samples[config]) < repeats:
            samples[config].append(200.0 if len(launches) % 2 == slow else 100.0)
            launches.append(config)
        return tuple(samples[config])

    decision = decide([RING], [], STOCK, measure, taken=lambda _: 0)
    assert decision.builtin is None
    (rejected,) = decision.rejected
    assert rejected.lower_bound == 0.5
    assert [launches.count(config) for config in (STOCK, RING)] == [PAIRS, PAIRS]


@pytest.mark.parametrize("failing", [RING, STOCK])
def test_a_finalist_that_fails_is_left_out_and_a_reference_that_fails_is_an_error(
    failing: Config,
) -> None:
    times = Times({STOCK: 100.0, RING: 80.0, TREE: 90.0})

    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        if config == failing and repeats > 7:
            raise ConfigurationFailedError("it hung")
        return times(config, repeats)

    if failing == STOCK:
        with pytest.raises(MeasurementError, match="default stopped running: it hung"):
            decide([RING, TREE], [], STOCK, measure, none_taken)
    else:
        decision = decide([RING, TREE], [], STOCK, measure, none_taken)
        assert decision.builtin is not None
        assert decision.builtin.config == TREE


def test_a_finalist_that_the_backend_stops_is_left_out() -> None:
    times = Times({STOCK: 100.0, RING: 80.0, TREE: 900.0})

    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        return times(config, 1 if config == TREE else repeats)

    decision = decide([TREE, RING], [], STOCK, measure, taken=lambda _: 27)
    assert decision.builtin is not None
    assert decision.builtin.config == RING
    assert decision.rejected == ()
