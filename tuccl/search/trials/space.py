"""`Space`: the configurations that may be proposed, as data.

A space is a list of families. A family is one algorithm under one protocol with the values that its
parameters may take, so a combination that the runtime refuses (PAT with LL, 32 threads) cannot be
written down, and is never proposed. What a product of axes cannot say, such as a point that a
record lacks, is listed as absent.

Counts are ordinals: a model sees the position of a value on the axis, not an unordered label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import product

import numpy as np

from tuccl.search.trials.config import (
    DEFAULT_ALGORITHM,
    PHASES_PREFIX,
    SCHEDULE_PREFIX,
    SCHEDULE_PREFIXES,
    Config,
    ProcessProfile,
    Settings,
)

AXES = ("nchannels", "nthreads", "buffer_bytes", "min_nchannels", "chunk_bytes")
"""The ordinal parameters, as fields of `Config` and of `Family`."""


class Scope(StrEnum):
    """Lifetime of a parameter's value: it changes per call, communicator or process."""

    CALL = "call"
    COMMUNICATOR = "communicator"
    PROCESS = "process"


BUILTIN_SCOPES = {
    "algorithm": Scope.CALL,
    "protocol": Scope.CALL,
    "nchannels": Scope.CALL,
    "nthreads": Scope.PROCESS,
    "buffer_bytes": Scope.PROCESS,
    "min_nchannels": Scope.COMMUNICATOR,
    "chunk_bytes": Scope.CALL,
}
"""Scopes of NCCL's built-ins: the tuner plugin answers per call, `ncclConfig_t.minCTAs` belongs to
a communicator (a job that sets nothing gets it from the environment), the rest is read once."""
EXECUTOR_SCOPES = dict.fromkeys(BUILTIN_SCOPES, Scope.CALL)
_OWN_VALUE = {
    "nchannels": 1 << 20,
    "nthreads": 512,
    "buffer_bytes": 4 << 20,
    "min_nchannels": 0,
    "chunk_bytes": 1 << 30,
}
"""Values that 0, NCCL's own choice, stands for: its place on the axis is beside that value."""
SPELLED_OUT = ProcessProfile(nthreads=_OWN_VALUE["nthreads"])
"""Nearly what NCCL does by itself, but another profile, for which workers start anew."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A choice between sets of variables that NCCL reads once per process.

    Threads, buffer size and least channels become axes of families. A space that lists another
    knob lets the race of process profiles turn it; searches of single keys never do.
    """

    values: tuple[Settings, ...]
    """In ascending effect; `()` is NCCL's own."""
    between: tuple[Settings, ...] = ()
    """Further values, which are tried beside the best alone."""
    is_asked: bool = False
    """Whether a user asked for it."""
    comes_first: bool = False
    """Whether it is turned before threads, buffers and channels, as it may gain most."""

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that it sets."""
        return frozenset(name for settings in self.values for name, _ in settings)

    @property
    def coarse_to_fine(self) -> tuple[Settings, ...]:
        """Its values but NCCL's own: the last and the first, then the middle of each gap."""
        others = [value for value in self.values if value]
        order = dict.fromkeys((len(others) - 1, 0))
        gaps = [(0, len(others) - 1)]
        for low, high in gaps:
            middle = (low + high) // 2
            order.setdefault(middle)
            if high - low > 1:
                gaps += [(low, middle), (middle, high)]
        return tuple(others[index] for index in order)

    def value_in(self, profile: ProcessProfile) -> Settings:
        """Its value in a profile."""
        return tuple(pair for pair in profile.settings if pair[0] in self.variables)

    def turned(self, profile: ProcessProfile, value: Settings) -> ProcessProfile:
        """The profile with another value."""
        kept = [pair for pair in profile.settings if pair[0] not in self.variables]
        return replace(profile, settings=tuple(sorted([*kept, *value])))


@dataclass(frozen=True, slots=True)
class Family:
    """One algorithm under one protocol, with the values its parameters may take."""

    algorithm: str
    protocol: str
    nchannels: tuple[int, ...]
    nthreads: tuple[int, ...]
    buffer_bytes: tuple[int, ...]
    min_nchannels: tuple[int, ...] = (0,)
    settings: Settings = ()
    """Further variables of the process, the same for all its configurations."""
    chunk_bytes: tuple[int, ...] = (0,)

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """Values along each of `AXES`, in ascending effect."""
        counts = self.nchannels, self.nthreads, self.buffer_bytes, self.min_nchannels
        return *counts, self.chunk_bytes

    @property
    def scopes(self) -> dict[str, Scope]:
        """Scope of each parameter."""
        return EXECUTOR_SCOPES if self.algorithm.startswith(SCHEDULE_PREFIXES) else BUILTIN_SCOPES

    @property
    def size(self) -> int:
        """Number of configurations."""
        count = 1
        for axis in self.axes:
            count *= len(axis)
        return count

    def at(self, positions: Sequence[int]) -> Config:
        """The configuration at a position of each axis; positions beyond an end mean that end."""
        return self.config(
            axis[min(max(position, 0), len(axis) - 1)]
            for axis, position in zip(self.axes, positions, strict=True)
        )

    def config(self, values: Iterable[int]) -> Config:
        """The configuration with these values along `AXES`."""
        nchannels, nthreads, buffer_bytes, min_nchannels, chunk_bytes = values
        return Config(
            self.algorithm,
            self.protocol,
            nchannels,
            nthreads,
            buffer_bytes,
            min_nchannels,
            self.settings,
            chunk_bytes,
        )

    def under(self, profile: ProcessProfile) -> Family:
        """The family under one process profile: what can change from call to call is left."""
        if self.algorithm.startswith(SCHEDULE_PREFIX):
            return self
        if self.algorithm.startswith(PHASES_PREFIX):
            return replace(self, settings=profile.variables)
        axes = (
            axis if self.scopes[name] is Scope.CALL else (getattr(profile, name),)
            for name, axis in zip(AXES, self.axes, strict=True)
        )
        return _family((self.algorithm, self.protocol, profile.settings), axes)


@dataclass(frozen=True)
class Space:
    """All configurations that may be proposed for one task."""

    name: str
    families: tuple[Family, ...]
    absent: frozenset[Config] = frozenset()
    """Points of the families' products that do not exist."""
    recorded: bool = False
    """Whether nothing can be tried beside these points, under another process profile either."""
    between_min_nchannels: tuple[int, ...] = ()
    """Counts between those of the axis, which only the race of process profiles tries, at last."""
    knobs: tuple[Knob, ...] = ()
    """Further choices per process, which only the race of process profiles tries."""

    @cached_property
    def size(self) -> int:
        """Number of configurations."""
        return sum(family.size for family in self.families) - len(self.absent)

    @cached_property
    def longest_axes(self) -> tuple[int, ...]:
        """Most values that each of `AXES` has in any family."""
        lengths = [tuple(len(axis) for axis in family.axes) for family in self.families]
        return tuple(max(column) for column in zip(*lengths, strict=True))

    @cached_property
    def configs(self) -> tuple[Config, ...]:
        """All configurations, in order."""
        return tuple(self)

    @cached_property
    def row_of(self) -> dict[Config, int]:
        """Index of each configuration in `configs`."""
        return {config: row for row, config in enumerate(self.configs)}

    @cached_property
    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """Index of the family, and positions on `AXES`, a row per configuration."""
        found = [self.positions(config) for config in self.configs]
        families = np.array([family for family, _ in found])
        return families, np.array([positions for _, positions in found]).reshape(-1, len(AXES))

    @cached_property
    def _index_of(self) -> dict[tuple[str, str, Settings], int]:
        return {
            (family.algorithm, family.protocol, family.settings): index
            for index, family in enumerate(self.families)
        }

    def __contains__(self, config: object) -> bool:
        if not isinstance(config, Config) or config in self.absent:
            return False
        index = self._index_of.get(_family_of(config))
        return index is not None and all(
            value in axis
            for value, axis in zip(_values(config), self.families[index].axes, strict=True)
        )

    def __iter__(self) -> Iterator[Config]:
        for family in self.families:
            for values in product(*family.axes):
                config = family.config(values)
                if config not in self.absent:
                    yield config

    def positions(self, config: Config) -> tuple[int, tuple[int, ...]]:
        """Index of the family and position on each axis.

        Raises:
            KeyError: for a configuration of no family.
        """
        index = self._index_of[_family_of(config)]
        axes = self.families[index].axes
        return index, tuple(
            axis.index(value) for value, axis in zip(_values(config), axes, strict=True)
        )

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Configurations one step away on one axis, then those of the other families."""
        index, positions = self.positions(config)
        family = self.families[index]
        for axis, step in product(range(len(AXES)), (-1, 1)):
            moved = list(positions)
            moved[axis] += step
            if 0 <= moved[axis] < len(family.axes[axis]):
                yield from self._present(family.at(moved))
        for neighbour in self.families:
            if neighbour is not family:
                yield from self._present(neighbour.at(positions))

    def line(self, config: Config, axis: int) -> list[Config]:
        """The configurations that differ from this one on one axis at most, in its order."""
        index, positions = self.positions(config)
        family = self.families[index]
        moved = (
            family.at((*positions[:axis], step, *positions[axis + 1 :]))
            for step in range(len(family.axes[axis]))
        )
        return [point for point in moved if point not in self.absent]

    def _present(self, config: Config) -> Iterator[Config]:
        if config not in self.absent:
            yield config


def with_profile(space: Space, profile: ProcessProfile) -> Space:
    """The space under one process profile: built-ins keep what can change from call to call."""
    if space.recorded:
        kept = (config for config in space if not config.needs_profile or config.profile == profile)
        return space_of(f"{space.name}, one profile", kept)
    families = tuple(family.under(profile) for family in space.families)
    forced = Space(f"{space.name}, one profile", families)
    return replace(forced, absent=frozenset(config for config in space.absent if config in forced))


def space_of(name: str, configs: Iterable[Config]) -> Space:
    """Exactly these configurations, in families of the values that occur.

    For records: a point that was not recorded cannot be proposed.
    """
    present = set(configs)
    found: dict[tuple[str, str, Settings], list[tuple[int, ...]]] = {}
    for config in sorted(present):
        found.setdefault(_family_of(config), []).append(_values(config))
    families = []
    for names, rows in found.items():
        columns = zip(AXES, zip(*rows, strict=True), strict=True)
        families.append(_family(names, (ascending(axis, column) for axis, column in columns)))
    whole = Space(name, tuple(families), recorded=True)
    return replace(whole, absent=frozenset(config for config in whole if config not in present))


def _family(names: tuple[str, str, Settings], axes: Iterable[tuple[int, ...]]) -> Family:
    algorithm, protocol, settings = names
    nchannels, nthreads, buffer_bytes, min_nchannels, chunk_bytes = axes
    counts = nchannels, nthreads, buffer_bytes, min_nchannels
    return Family(algorithm, protocol, *counts, settings, chunk_bytes)


def _family_of(config: Config) -> tuple[str, str, Settings]:
    return config.algorithm, config.protocol, config.settings


def _values(config: Config) -> tuple[int, ...]:
    return tuple(getattr(config, axis) for axis in AXES)


def ascending(axis: str, values: Iterable[int]) -> tuple[int, ...]:
    """Values sorted by effect: 0 stands beside the value that it stands for."""
    return tuple(sorted(set(values), key=lambda value: (value or _OWN_VALUE[axis], value == 0)))


def nearest_to_own(axis: str, values: Iterable[int]) -> int:
    """NCCL's own value if it is among them, else the value nearest to it."""
    return min(values, key=lambda value: (value != 0, abs(value - _OWN_VALUE[axis]), value))


def with_channels_up_to(space: Space, most: int | None) -> Space:
    """Return the configurations that ask for at most so many channels.

    A channel of NCCL is a thread block, and takes the place of computation on a multiprocessor
    while the call lasts; so does each thread block of a schedule's kernel. Alone a call is usually
    fastest with many; beside computation it may cost the job more than it gains (AutoCCL, NSDI
    2025). Jobs bound NCCL's share by NCCL_MAX_CTAS; this bounds a search.

    NCCL's own choice stays: it is what every key is compared with, and what a key without an entry
    runs. A family whose counts are all above the bound takes the largest power of two below it.

    Args:
        space: A space of a backend or of a record.
        most: Channels of NCCL, thread blocks of a schedule's kernel; None sets no bound.
    """
    if most is None:
        return space
    if space.recorded:
        return space_of(space.name, (config for config in space if _asks_for(config) <= most))
    bounded = replace(
        space,
        families=tuple(_bounded(family, most) for family in space.families),
        between_min_nchannels=tuple(n for n in space.between_min_nchannels if n <= most),
    )
    return replace(bounded, absent=frozenset(each for each in space.absent if each in bounded))


def _bounded(family: Family, most: int) -> Family:
    return replace(
        family,
        nchannels=_up_to(family.nchannels, most),
        min_nchannels=_up_to(family.min_nchannels, most),
    )


def _up_to(counts: Sequence[int], most: int) -> tuple[int, ...]:
    return tuple(n for n in counts if n <= most) or (1 << most.bit_length() - 1,)


def _asks_for(config: Config) -> float:
    """The channels of a configuration; without end for a setting that has NCCL's own count."""
    if config.nchannels == 0 and config.algorithm != DEFAULT_ALGORITHM:
        return float("inf")
    return max(config.nchannels, config.min_nchannels)
