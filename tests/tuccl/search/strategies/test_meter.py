"""The cost that a search is charged, and the samples that it knows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuccl.search.strategies.surfaces import Noisy, measure_of
from tuccl.errors import BudgetSpentError, ConfigurationFailedError
from tuccl.search.strategies.meter import Meter
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config

A = Config("ring", "LL", 1, 256, 1 << 20)
B = Config("ring", "LL", 2, 256, 1 << 20)
OTHER_PROFILE = Config("ring", "LL", 2, 512, 1 << 20)
EXACT = measure_of({A: 100.0, B: 200.0, OTHER_PROFILE: 50.0})


def test_samples_that_a_configuration_has_are_not_charged_again() -> None:
    meter = Meter(EXACT, 9)
    assert meter.reach(A, 1) == 100.0
    assert meter.spent_s == pytest.approx(100e-6)
    meter.reach(A, 3)
    assert meter.spent_s == pytest.approx(300e-6)
    meter.reach(A, 2)
    assert meter.spent_s == pytest.approx(300e-6)
    assert (meter.count(A), meter.repeats, meter.tried) == (3, 3, 1)


def test_what_cannot_be_afforded_is_not_measured() -> None:
    noisy = Noisy(0)
    meter = Meter(noisy, 27, budget_s=20 * 1e-3)
    first_us = meter.reach(A, 1)
    assert not meter.affords(A, 27 + int(20e-3 / (first_us * 1e-6)))
    with pytest.raises(BudgetSpentError, match=r"0\.0\d\d of 0\.020 s are spent"):
        meter.reach(A, 1000)
    assert noisy.asked == [(A, 1)]


def test_a_failure_is_charged_kept_with_its_reason_and_never_tried_again() -> None:
    asked = []

    def fails(config: Config, repeats: int) -> Measured:
        asked.append((config, repeats))
        raise ConfigurationFailedError("hung for 5 s", seconds=8.0)

    meter = Meter(fails, 9, budget_s=100.0)
    assert math.isinf(meter.reach(A, 1))
    assert math.isinf(meter.reach(A, 9))
    assert asked == [(A, 1)]
    assert meter.failures == {A: "hung for 5 s"}
    assert meter.spent_s == 8.0
    assert meter.best(3) == []


def test_a_configuration_that_fails_later_is_no_longer_among_the_best() -> None:
    def fails_later(config: Config, repeats: int) -> Measured:
        if repeats > 1:
            raise ConfigurationFailedError("crashed")
        return EXACT(config, repeats)

    meter = Meter(fails_later, 9)
    meter.reach(A, 1)
    meter.reach(A, 3)
    assert meter.configs == []
    assert meter.tried == 1


def test_fewer_samples_than_asked_for_settle_a_configuration() -> None:
    asked = []

    def cut_short(config: Config, repeats: int) -> Measured:
        asked.append(repeats)
        return Measured((400.0,), 1e-3)

    meter = Meter(cut_short, 27)
    assert meter.reach(A, 9) == 400.0
    assert meter.reach(A, 27) == 400.0
    assert asked == [9]
    assert meter.settled(A, 27)


def test_the_error_comes_from_the_deviations_of_all_configurations() -> None:
    # Two configurations that are each 2 % to either side of their median: mean deviation of the
    # samples 2 * 0.02 per 2 degrees; the prior is worth one sample of 3 %.
    times = {A: (98.0, 100.0, 102.0), B: (196.0, 200.0, 204.0)}
    meter = Meter(lambda config, repeats: Measured(times[config][:repeats], repeats * 1.0), 3)
    sigma = math.sqrt(math.pi / 2.0)
    assert meter.error(1) == pytest.approx(0.03 * sigma)
    meter.reach(A, 3)
    meter.reach(B, 3)
    assert meter.error(1) == pytest.approx((0.08 + 0.03) / 5.0 * sigma)
    assert meter.error(9) == pytest.approx(meter.error(1) * sigma / 3.0)
    assert meter.bound_us(A, 2.0) == pytest.approx(100.0 * math.exp(2.0 * meter.error(3)))


def test_five_per_cent_of_noise_are_seen_as_five_per_cent() -> None:
    meter = Meter(Noisy(0, 0.05), 27)
    for channels in (1, 2, 4, 8, 16):
        meter.reach(Config("ring", "LL", channels, 256, 1 << 20), 27)
    assert meter.error(1) == pytest.approx(0.05, rel=0.2)


@given(st.lists(st.tuples(st.sampled_from([A, B, OTHER_PROFILE]), st.integers(1, 9)), max_size=20))
def test_the_charge_is_that_of_the_samples_in_whatever_order(
    steps: list[tuple[Config, int]],
) -> None:
    meter = Meter(EXACT, 9)
    for config, repeats in steps:
        meter.reach(config, repeats)
    spent_s = sum(meter.count(config) * meter.time_us(config) * 1e-6 for config in meter.configs)
    assert meter.spent_s == pytest.approx(spent_s)
    assert meter.repeats == sum(meter.count(config) for config in meter.configs)
