"""Error rates of the rules on noise, through the deciding code, with fixed seeds.

`scripts/bench/bench_statistics.py` computes them with more seeds.
"""

import pytest
from bench_statistics import entry_rates, profile_rates, run_rates
from noisy_machine import BIMODAL, DRIFT, HANGING, LANES, NVSWITCH, TCP, UNEVEN, Noise

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("noise", "found"),
    [
        (NVSWITCH, {1.03: 1.0, 1.10: 1.0, 2.0: 1.0}),
        (TCP, {1.10: 0.75, 2.0: 1.0}),
        (BIMODAL, {1.03: 0.5, 1.10: 0.8, 2.0: 1.0}),
        (DRIFT, {1.03: 0.9, 1.10: 1.0, 2.0: 1.0}),
        (UNEVEN, {1.03: 0.55, 1.10: 0.8, 2.0: 1.0}),
        (HANGING, {1.03: 0.6, 1.10: 1.0, 2.0: 1.0}),
    ],
    ids=lambda value: value.name if isinstance(value, Noise) else "",
)
def test_entries_are_gains_and_gains_become_entries(
    noise: Noise, found: dict[float, float]
) -> None:
    """Eight tables of 24 keys on three communicator shapes."""
    rates = entry_rates(noise, range(8))
    assert rates.entered[1.0].count <= 2, "of 72 keys that gain nothing; 1 % are 0.7"
    for gain, least in found.items():
        assert rates.entered[gain].value >= least


def test_a_profile_is_under_the_floor_if_a_key_is_and_rarely_otherwise() -> None:
    seeds = range(40)
    assert profile_rates(NVSWITCH, 1.0, seeds).held.count >= 37
    assert profile_rates(NVSWITCH, 0.995, seeds).held.count >= 36
    assert profile_rates(NVSWITCH, 0.985, seeds).held.count <= 3
    far_under = profile_rates(NVSWITCH, 0.97, seeds)
    assert far_under.held.count == far_under.cleared.count == 0


def test_where_starts_differ_much_no_profile_holds_by_luck() -> None:
    assert profile_rates(TCP, 0.97, range(40)).held.count <= 2


@pytest.mark.parametrize("runs", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_schedule_that_stalls_is_compared_with_another_that_does_not(runs: int) -> None:
    """Of two that look alike one takes 1.3 times as long in a job; 24 keys a run."""
    rates, mean = run_rates(LANES, range(runs), 120.0)
    assert rates.entered[2.0].value == 1.0
    assert float(mean.split()[0]) > 1.165, "1.150 where the better of a search's two alike is taken"
