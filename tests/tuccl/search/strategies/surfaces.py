"""Surfaces whose optimum is known, for tests of strategies."""

import zlib
from math import log2

import numpy as np

from lookup_tables.table import NcclProtocol
from tuccl.search.strategies.meter import Measure
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Family, Space

_PROTOCOL_FACTOR = {"LL": 1.3, "LL128": 1.1, "Simple": 1.0}


def surface_us(config: Config) -> float:
    """Best at Simple, 8 channels, 416 threads, 1 MiB."""
    channels = 1.0 + 0.3 * abs(log2(config.nchannels) - 3.0)
    threads = 1.0 + 0.002 * abs(config.nthreads - 416)
    buffers = 1.0 + 0.05 * abs(log2(config.buffer_bytes) - 20.0)
    return 100.0 * _PROTOCOL_FACTOR[config.protocol] * channels * threads * buffers


class Noisy:
    """Noise that depends on the configuration and the sample's number only; a sample costs its
    time."""

    def __init__(self, seed: int, spread: float = 0.05) -> None:
        self.seed = seed
        self.spread = spread
        self.asked: list[tuple[Config, int]] = []

    def __call__(self, config: Config, repeats: int) -> Measured:
        self.asked.append((config, repeats))
        rng = np.random.default_rng([self.seed, zlib.crc32(repr(config).encode())])
        factors = np.exp(rng.normal(0.0, self.spread, repeats))
        samples = tuple(float(surface_us(config) * factor) for factor in factors)
        return Measured(samples, sum(samples) * 1e-6)


def measure_of(samples_us: dict[Config, float]) -> Measure:
    """Exact times."""

    def measure(config: Config, repeats: int) -> Measured:
        return Measured((samples_us[config],) * repeats, samples_us[config] * repeats * 1e-6)

    return measure


def paper_space(algorithm: str) -> Space:
    """Table IV of TuCCL for one algorithm: 3 x 4 x 20 x 15 = 3,600 configurations."""
    channels = tuple(2**i for i in range(1, 5))
    threads = tuple(32 * i for i in range(1, 21))
    buffers = tuple(128 * 2**i for i in range(1, 16))
    return Space(
        "paper-table-iv",
        tuple(
            Family(algorithm, protocol.value, channels, threads, buffers)
            for protocol in NcclProtocol
        ),
    )
