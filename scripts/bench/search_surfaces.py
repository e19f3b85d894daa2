"""Synthetic surfaces over the paper's space: Table IV, 3,600 configurations, three regimes.

Large messages are limited by bandwidth, small ones by latency, medium ones by both. A collective
moves its bytes through channels that each carry what their threads and the protocol allow, up to
the wire; the buffer cuts them into steps that each cost a latency, and the last ones are not
overlapped. On top lies a fixed ruggedness that no model knows: neighbours differ by about half
a per cent. Samples have 5 % noise, and the first ones of a configuration are slow: warming up
costs it up to 15 % of one sample, as little as nothing, differently for each.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from dataclasses import dataclass

import numpy as np

from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config

MAX_REPEATS = 27
_NOISE = 0.05
_WARM_UP = 0.15
_RUGGED = 0.004
_WIRE_GB_PER_S = 22.0


@dataclass(frozen=True, slots=True)
class _Cost:
    step_us: float
    efficiency: float
    thread_gb_per_s: float


_PROTOCOLS = {
    "LL": _Cost(step_us=1.1, efficiency=0.5, thread_gb_per_s=0.013),
    "LL128": _Cost(step_us=1.9, efficiency=0.93, thread_gb_per_s=0.011),
    "Simple": _Cost(step_us=5.5, efficiency=1.0, thread_gb_per_s=0.016),
}
REGIMES = {"large": 1 << 30, "medium": 16 << 20, "small": 128 << 10}
"""Message size of each regime."""


def exact_us(config: Config, size_bytes: int, rugged: float = 1.0) -> float:
    """Time without noise, with the ruggedness scaled by `rugged`."""
    cost = _PROTOCOLS[config.protocol]
    channels = config.nchannels
    threads = config.nthreads
    # More threads per channel carry more, with less and less gain; too many disturb each other.
    carried = cost.thread_gb_per_s * threads / (1.0 + (threads / 420.0) ** 2)
    bandwidth = cost.efficiency * _WIRE_GB_PER_S
    rate = bandwidth * math.tanh(channels * carried / bandwidth) * (1.0 - 0.015 * channels)
    slot = max(config.buffer_bytes / 8.0, 64.0)
    steps = size_bytes / channels / slot
    # Steps are overlapped eight deep; a slot that is too large leaves the pipe empty at both ends.
    per_step_us = cost.step_us * (0.12 + 0.0006 * threads / 32.0)
    latency_us = 6.0 * cost.step_us + steps * per_step_us + 0.8 * channels + 0.004 * threads
    fill_us = min(slot, size_bytes / channels) * channels / (rate * 1e3) * 2.0
    spill = 1.0 + 0.02 * max(0.0, math.log2(config.buffer_bytes * channels / (8 << 20)))
    smooth_us = latency_us + fill_us + size_bytes / (rate * 1e3) * spill
    return smooth_us * math.exp(
        rugged * _RUGGED * _standard_normal(f"{size_bytes}:{config.describe()}")
    )


class Surface:
    """Measures one regime; noise depends on seed, configuration and sample number."""

    def __init__(self, size_bytes: int, rugged: float, seed: int) -> None:
        self._size_bytes = size_bytes
        self._rugged = rugged
        self._seed = seed

    def __call__(self, config: Config, repeats: int) -> Measured:
        """Return the first `repeats` samples.

        Every sample costs the same, so that very slow configurations do not dominate the cost of
        the grid.
        """
        exact = exact_us(config, self._size_bytes, self._rugged)
        key = zlib.crc32(config.describe().encode())
        rng = np.random.default_rng([self._seed, self._size_bytes, key])
        warm_up = _WARM_UP * rng.random()
        factors = np.exp(rng.normal(0.0, _NOISE, repeats))
        factors[0] += warm_up
        samples = tuple(float(exact * factor) for factor in factors)
        return Measured(samples, float(repeats))


def _standard_normal(text: str) -> float:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest, "little") + 0.5) / 2.0**64
    return math.sqrt(2.0) * _inverse_erf(2.0 * uniform - 1.0)


def _inverse_erf(value: float) -> float:
    """Winitzki's approximation, 2008: relative error under 0.4 %."""
    constant = 0.147
    logarithm = math.log(1.0 - value * value)
    half = 2.0 / (math.pi * constant) + logarithm / 2.0
    return math.copysign(math.sqrt(math.sqrt(half * half - logarithm / constant) - half), value)
