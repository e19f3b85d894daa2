"""A machine of pure noise, for benchmarks of the rules on noise.

A call's logarithmic time is its true one, plus a deviation of the start for all calls, one of the
start for this call, a drift of its key, and one of the sample; one sample in fifty is disturbed by
up to 10 %. Where launches alternate, every second one takes twice as long. The machine has the
interface of a measurement log, so `Spending` and its callers run unchanged.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lookup_tables.table import Shape
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config, ProcessProfile, Task

RESTART_S = 3.0
STOCK_US = 20.0
_DISTURBED_SHARE = 0.02
_DISTURBED = 0.1
_ALTERNATION = 2.0
_NOISIER = 5.0
_HANGING_SHARE = 0.25
_HANG = 10.0
_SLOW_MODE = 0.15
_STALLED = 3.0
_STALLED_SHARE = 4.0 / 15.0
_LANES_STALL_SHARE = 0.15


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
    own_of: Mapping[Shape, float] = field(default_factory=dict)
    """The same of single communicator shapes."""
    alternating: int = 0
    """Period of the keys of which every second launch takes twice as long; 0: no such keys."""
    bimodal: int = 0
    """Period of the keys each of whose calls takes 15 % longer in every second start, by chance."""
    drift: float = 0.0
    """Largest slow change of a key's time, all of its calls alike, over `drift_s`."""
    drift_s: float = 100.0
    noisier: tuple[int, ...] = ()
    """Indices of keys that vary five times as much from start to start."""
    hanging: tuple[int, ...] = ()
    """Indices of keys of which a call takes ten times as long in one of four starts."""
    stalling: tuple[int, ...] = ()
    """Indices of keys whose gaining calls take three times as long in 4 of 15 launches."""
    schedules: float = 1.0
    """How much more than other calls schedules vary from launch to launch and from start to start.
    """
    stalling_schedule: str = ""
    """Name of the schedule whose calls take three times as long in 15 % of the launches."""


NODE, RAIL, WHOLE = Shape(2, 1, 2), Shape(2, 2, 1), Shape(4, 2, 2)
NVSWITCH = Noise("NVSwitch", sample=0.002, common=0.002, own=0.003)
"""Noise of starts that differ by some tenths of a per cent."""
TCP = Noise(
    "TCP",
    sample=0.10,
    common=0.08,
    own=0.06 / math.sqrt(2.0),
    own_of={NODE: 0.024 / math.sqrt(2.0), RAIL: 0.07 / math.sqrt(2.0)},
    alternating=5,
)
"""Noise of two nodes of two H100 over TCP: a ratio of one start deviated by 2.4 % on NVLink, 7 %
along the rails, 6 % on the whole machine."""
BIMODAL = Noise("bimodal", sample=0.02, common=0.03, own=0.01, bimodal=3)
"""Noise in which processes run a call in one of two modes."""
DRIFT = Noise("drift", sample=0.02, common=0.03, own=0.01, drift=0.15)
"""Noise in which each key becomes faster and slower by itself, as clocks and other users change."""
UNEVEN = Noise("uneven", sample=0.03, common=0.05, own=0.02, noisier=(2, 3))
"""Noise in which two keys differ from start to start far more than others."""
HANGING = Noise("hanging", sample=0.03, common=0.05, own=0.02, hanging=(2,))
"""Noise in which one key takes ten times as long in some starts, as all_reduce of 16 MB in rounds
did on four ranks of one GPU (docs/lab/across-hosts.md)."""
STALLING = Noise("stalling", sample=0.02, common=0.03, own=0.01, stalling=(1, 3, 9, 11, 17, 19))
"""Noise in which the gaining calls of some keys stall now and then."""
CROWDED = Noise("crowded", sample=0.07, common=0.08, own=0.065 / math.sqrt(2.0), schedules=4.0)
"""Noise of two nodes of two H100 over TCP whose cores others used, too: a ratio of one start
deviated by 7 % for NCCL's settings and by 27 % for schedules, which keep more cores busy."""


def flat(_task: Task) -> float:
    """Return the seconds of a sample where all keys take as long."""
    return 0.01


LANES = Noise(
    "lanes",
    sample=0.04,
    common=0.08,
    own=0.06 / math.sqrt(2.0),
    stalling_schedule="a",
)
"""Noise of four H200 as 2 x 2 over TCP, where schedules of eight lanes a rail stalled in 7 to 27 %
of their launches, those of four lanes in 1 to 3 %, and the median was alike."""


def time_with_stalls(noise: Noise, config: Config) -> float:
    """Return a call's mean time over its time without stalls, by which a job waits for it."""
    if not noise.stalling_schedule or config.schedule != noise.stalling_schedule:
        return 1.0
    return 1.0 + _LANES_STALL_SHARE * (_STALLED - 1.0)


@dataclass
class NoisyMachine:
    """A simulated machine with the interface of a measurement log."""

    noise: Noise
    tasks: tuple[Task, ...]
    speed: Callable[[Task, Config], float]
    """Speedup over stock NCCL's choice."""
    seed: int
    sample_s: Callable[[Task], float] = flat
    """Seconds of a sample at stock NCCL's speed."""
    up: ProcessProfile = field(default_factory=ProcessProfile)
    runs_jobs: bool = False
    """It has no jobs with a whole table."""
    launches: int = 0
    starts: int = 0
    seconds: float = 0.0
    """Seconds of all measurements."""
    _samples: dict[tuple[Task, Config], list[float]] = field(default_factory=dict)
    _seconds: dict[tuple[Task, Config], float] = field(default_factory=dict)
    _shifts: dict[tuple[Task, Config] | None, float] = field(default_factory=dict)
    """Factors of the current start by call; under None, the factor of all calls."""
    _must_restart: bool = False

    def __post_init__(self) -> None:
        """Seed the random numbers."""
        self._random = random.Random(self.seed)  # noqa: S311 - a simulation's
        self._index = {task: index for index, task in enumerate(self.tasks)}
        self._drifts = {
            task: (self._random.uniform(0.0, self.noise.drift), self._random.uniform(0.0, math.tau))
            for task in self.tasks
        }

    def measure(self, task: Task, config: Config, repeats: int) -> Measured:
        """Return the first samples, as `MeasurementLog.measure` does."""
        samples_us = self._samples.setdefault((task, config), [])
        before_s = self._seconds.setdefault((task, config), 0.0)
        if len(samples_us) < repeats:
            other = config.needs_profile and config.profile != self.up
            seconds = 0.0
            if other or self._must_restart:
                self.up = config.profile if config.needs_profile else self.up
                self._must_restart = False
                self._shifts.clear()
                self.starts += 1
                seconds += RESTART_S
            speed = self.speed(task, config)
            seconds += self.sample_s(task) / speed * (repeats - len(samples_us))
            while len(samples_us) < repeats:
                samples_us.append(self._launch_us(task, config, speed))
            self._seconds[task, config] = before_s + seconds
            self.seconds += seconds
        return Measured(tuple(samples_us[:repeats]), self._seconds[task, config], RESTART_S)

    def restart(self) -> None:
        """Let the next new sample come from a new start."""
        self._must_restart = True

    def check(self, task: Task, config: Config) -> None:
        """Accept all data."""

    def key_of(self, task: Task) -> Task:
        """Return the key that a call between two sizes is like: the one below."""
        if task in self._index:
            return task
        alike = [key for key in self.tasks if key.shape == task.shape]
        below = [key for key in alike if key.size_bytes <= task.size_bytes]
        return max(below, key=lambda key: key.size_bytes)

    def _launch_us(self, task: Task, config: Config, speed: float) -> float:
        self.launches += 1
        gauss, noise = self._random.gauss, self.noise
        common = self._shifts.setdefault(None, gauss(0.0, noise.common))
        if (task, config) not in self._shifts:
            self._shifts[task, config] = self._shift(task)
        size, phase = self._drifts[self.key_of(task)]
        drift = size * math.sin(phase + math.tau * self.seconds / noise.drift_s)
        wider = noise.schedules if config.is_schedule else 1.0
        log = common + wider * (self._shifts[task, config] + gauss(0.0, noise.sample)) + drift
        factor = math.exp(log) / speed
        if self._random.random() < _DISTURBED_SHARE:
            factor *= 1.0 + _DISTURBED * self._random.random()
        every, index = noise.alternating, self._index[self.key_of(task)]
        if every and index % every == 0 and self.launches % 2:
            factor *= _ALTERNATION
        if index in noise.stalling and speed > 1.0 and self._random.random() < _STALLED_SHARE:
            factor *= _STALLED
        is_stalling = bool(config.schedule) and config.schedule == noise.stalling_schedule
        if is_stalling and self._random.random() < _LANES_STALL_SHARE:
            factor *= _STALLED
        return STOCK_US * factor

    def _shift(self, task: Task) -> float:
        """Return the deviation of a call in a start."""
        noise, index = self.noise, self._index[self.key_of(task)]
        own = noise.own_of.get(task.shape, noise.own)
        shift = self._random.gauss(0.0, own * (_NOISIER if index in noise.noisier else 1.0))
        if index in noise.hanging and self._random.random() < _HANGING_SHARE:
            shift += math.log(_HANG)
        if noise.bimodal and index % noise.bimodal == 0 and self._random.random() < 0.5:
            shift += _SLOW_MODE
        return shift
