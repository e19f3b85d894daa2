"""Measurement noise of simulated times, seeded by what is measured, not by the order.

Multiplicative and skewed: most samples lie within the spread, one in fifty is disturbed. The spread
of repeated launches on NVLink machines is 0.2 to 0.6 %, over TCP several per cent.
"""

from __future__ import annotations

import hashlib

import numpy as np

_DISTURBED_SHARE = 0.02
_DISTURBED_SCALE = 0.10


def noisy_samples(
    time_us: float, subject: str, seed: int, spread: float, first: int, repeats: int
) -> tuple[float, ...]:
    """Samples `first` to `first + repeats - 1` around `time_us`.

    Args:
        time_us: The time without noise.
        subject: Names what is measured; equal subjects give equal noise.
        seed: Seed of the run.
        spread: Relative standard deviation of an undisturbed sample; 0 for no noise.
        first: Number of the first sample.
        repeats: Number of samples.
    """
    if spread == 0.0:
        return (time_us,) * repeats
    samples = []
    for number in range(first, first + repeats):
        digest = hashlib.blake2b(f"{seed}:{number}:{subject}".encode(), digest_size=16).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        factor = np.exp(spread * rng.standard_normal())
        if rng.random() < _DISTURBED_SHARE:
            factor *= 1.0 + _DISTURBED_SCALE * rng.random()
        samples.append(float(time_us * factor))
    return tuple(samples)
