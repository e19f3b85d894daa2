"""A machine of pure noise, for benchmarks of the rules on noise.

A call's logarithmic time is its true one, plus a deviation of the start for all calls, one of the
start for this call, and one of the sample; one sample in fifty is disturbed by up to 10 %. Where
launches alternate, every second one takes twice as long. The machine has the interface of a
measurement log, so `Spending` and its callers run unchanged.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config, ProcessProfile, Task

SAMPLE_S = 0.01
RESTART_S = 1.0
STOCK_US = 20.0
_DISTURBED_SHARE = 0.02
_DISTURBED = 0.1
_ALTERNATION = 2.0
_NOISIER = 5.0
_HANGING_SHARE = 0.25
_HANG = 10.0


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithmic times."""

    name: str
    sample: float
    """Deviation from launch to launch."""
    common: float
    """Deviation from start to start of all calls alike; it cancels in ratios of one start."""
    own: float
    """Deviation from start to start of each call of each key."""
    alternating: int = 0
    """Period of the keys of which every second launch takes twice as long; 0: no such keys."""
    noisier: tuple[int, ...] = ()
    """Indices of keys that vary five times as much from start to start."""
    hanging: tuple[int, ...] = ()
    """Indices of keys of which a call takes ten times as long in one of four starts."""


NVSWITCH = Noise("NVSwitch", sample=0.002, common=0.002, own=0.003)
"""Noise of starts that differ by some tenths of a per cent."""
TCP = Noise("TCP", sample=0.10, common=0.08, own=0.05, alternating=3)
"""Noise over loopback on four H200: ratios of one start were 6.6 to 7.4 % off those of others."""
UNEVEN = Noise("uneven", sample=0.03, common=0.05, own=0.02, noisier=(2, 3))
"""Noise in which two keys differ from start to start far more than others."""
HANGING = Noise("hanging", sample=0.03, common=0.05, own=0.02, hanging=(2,))
"""Noise in which one key takes ten times as long in some starts, as all_reduce of 16 MB in rounds
did on four ranks of one GPU (docs/lab/across-hosts.md)."""


@dataclass
class NoisyMachine:
    """A simulated machine with the interface of a measurement log."""

    noise: Noise
    tasks: tuple[Task, ...]
    speed: Mapping[tuple[Task, Config], float]
    """Speedup over stock NCCL's choice; 1 where absent."""
    seed: int
    up: ProcessProfile = field(default_factory=ProcessProfile)
    launches: int = 0
    starts: int = 0
    _samples: dict[tuple[Task, Config], list[float]] = field(default_factory=dict)
    _seconds: dict[tuple[Task, Config], float] = field(default_factory=dict)
    _shifts: dict[tuple[Task, Config] | None, float] = field(default_factory=dict)
    """Factors of the current start by call; under None, the factor of all calls."""

    def __post_init__(self) -> None:
        """Seed the random numbers."""
        self._random = random.Random(self.seed)  # noqa: S311 - a simulation's

    def measure(self, task: Task, config: Config, repeats: int) -> Measured:
        """Return the first samples, as `MeasurementLog.measure` does."""
        samples_us = self._samples.setdefault((task, config), [])
        seconds = self._seconds.setdefault((task, config), 0.0)
        if len(samples_us) < repeats:
            if config.profile != self.up:
                self.up = config.profile
                self._shifts.clear()
                self.starts += 1
                seconds += RESTART_S
            seconds += SAMPLE_S * (repeats - len(samples_us))
            while len(samples_us) < repeats:
                samples_us.append(self._launch_us(task, config))
            self._seconds[task, config] = seconds
        return Measured(tuple(samples_us[:repeats]), seconds, RESTART_S)

    def check(self, task: Task, config: Config) -> None:
        """Accept all data."""

    def _launch_us(self, task: Task, config: Config) -> float:
        self.launches += 1
        gauss, noise = self._random.gauss, self.noise
        common = self._shifts.setdefault(None, gauss(0.0, noise.common))
        if (task, config) not in self._shifts:
            noisier = self.tasks.index(task) in noise.noisier
            shift = gauss(0.0, noise.own * (_NOISIER if noisier else 1.0))
            hangs = self.tasks.index(task) in noise.hanging
            if hangs and self._random.random() < _HANGING_SHARE:
                shift += math.log(_HANG)
            self._shifts[task, config] = shift
        log = common + self._shifts[task, config] + gauss(0.0, noise.sample)
        factor = math.exp(log) / self.speed.get((task, config), 1.0)
        if self._random.random() < _DISTURBED_SHARE:
            factor *= 1.0 + _DISTURBED * self._random.random()
        every = noise.alternating
        if every and self.tasks.index(task) % every == 0 and self.launches % 2:
            factor *= _ALTERNATION
        return STOCK_US * factor
