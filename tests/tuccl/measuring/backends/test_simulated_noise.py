from statistics import median

import numpy as np

from tuccl.measuring.backends.simulated import noisy_samples


def test_samples_depend_on_their_number_not_on_how_they_were_asked_for() -> None:
    whole = noisy_samples(100.0, "subject", 1, 0.01, 0, 30)
    parts = noisy_samples(100.0, "subject", 1, 0.01, 0, 11) + noisy_samples(
        100.0, "subject", 1, 0.01, 11, 19
    )
    assert whole == parts


def test_other_seeds_and_other_subjects_give_other_noise() -> None:
    first = noisy_samples(100.0, "a", 1, 0.01, 0, 5)
    assert first != noisy_samples(100.0, "a", 2, 0.01, 0, 5)
    assert first != noisy_samples(100.0, "b", 1, 0.01, 0, 5)


def test_the_middle_is_the_true_time_and_the_spread_is_as_asked() -> None:
    samples = noisy_samples(100.0, "subject", 0, 0.01, 0, 4000)
    assert abs(median(samples) - 100.0) < 0.1
    quartiles = np.percentile(samples, [25, 75])
    assert abs((quartiles[1] - quartiles[0]) / 1.35 - 1.0) < 0.1


def test_no_spread_no_noise() -> None:
    assert noisy_samples(7.0, "subject", 0, 0.0, 3, 2) == (7.0, 7.0)
