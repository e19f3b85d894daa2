"""`Space`: the configurations that may be proposed, as data.

A space is a list of families. A family is one algorithm under one protocol with the values that its
parameters may take, so a combination that the runtime refuses (PAT with LL, 64 threads with LL128)
cannot be written down, and is never proposed. The ranges of NCCL's parameters are from NCCL 2.30
(`src/include/comm.h`, `src/enqueue.cc`): threads 64 to 512 by 32, LL128 160 to 640.

Counts are ordinals: a model sees the position of a value on the axis, not an unordered label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation
from tuccl.search.config import SCHEDULE_PREFIX, Config, ProcessProfile

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Family:
    """One algorithm under one protocol, with the values its parameters may take."""

    algorithm: str
    protocol: str
    nchannels: tuple[int, ...]
    nthreads: tuple[int, ...]
    buffer_bytes: tuple[int, ...]
    min_nchannels: int = 0
    """Of every configuration of the family."""

    @property
    def axes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Values of nchannels, nthreads and buffer_bytes, each in ascending effect."""
        return self.nchannels, self.nthreads, self.buffer_bytes

    @property
    def size(self) -> int:
        """Number of configurations."""
        return len(self.nchannels) * len(self.nthreads) * len(self.buffer_bytes)

    def at(self, positions: Sequence[int]) -> Config:
        """The configuration at a position of each axis; positions beyond an end mean that end."""
        channels, threads, buffer_bytes = (
            axis[min(max(position, 0), len(axis) - 1)]
            for axis, position in zip(self.axes, positions, strict=True)
        )
        return self.config(channels, threads, buffer_bytes)

    def config(self, nchannels: int, nthreads: int, buffer_bytes: int) -> Config:
        """The configuration with these values."""
        return Config(
            algorithm=self.algorithm,
            protocol=self.protocol,
            nchannels=nchannels,
            nthreads=nthreads,
            buffer_bytes=buffer_bytes,
            min_nchannels=self.min_nchannels,
        )


@dataclass(frozen=True)
class Space:
    """All configurations that may be proposed for one task."""

    name: str
    families: tuple[Family, ...]

    @cached_property
    def size(self) -> int:
        """Number of configurations."""
        return sum(family.size for family in self.families)

    @cached_property
    def longest_axes(self) -> tuple[int, int, int]:
        """Most values that nchannels, nthreads and buffer_bytes have in any family."""
        lengths = [tuple(len(axis) for axis in family.axes) for family in self.families]
        channels, threads, buffers = (max(column) for column in zip(*lengths, strict=True))
        return channels, threads, buffers

    @cached_property
    def _family_of(self) -> dict[tuple[str, str], Family]:
        return {(family.algorithm, family.protocol): family for family in self.families}

    def __contains__(self, config: object) -> bool:
        if not isinstance(config, Config):
            return False
        family = self._family_of.get((config.algorithm, config.protocol))
        return (
            family is not None
            and config.min_nchannels == family.min_nchannels
            and all(value in axis for value, axis in zip(_values(config), family.axes, strict=True))
        )

    def __iter__(self) -> Iterator[Config]:
        for family in self.families:
            for values in product(*family.axes):
                yield family.config(*values)

    def positions(self, config: Config) -> tuple[int, tuple[int, int, int]]:
        """Index of the family and position on each axis.

        Raises:
            KeyError: for a configuration outside the space.
        """
        family = self._family_of[config.algorithm, config.protocol]
        channels, threads, buffers = (
            axis.index(value) for value, axis in zip(_values(config), family.axes, strict=True)
        )
        return self.families.index(family), (channels, threads, buffers)

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Configurations one step away on one axis, then those of another protocol."""
        index, positions = self.positions(config)
        family = self.families[index]
        for axis, step in product(range(3), (-1, 1)):
            moved = list(positions)
            moved[axis] += step
            if 0 <= moved[axis] < len(family.axes[axis]):
                yield family.at(moved)
        for other in self.families:
            if other.algorithm == config.algorithm and other.protocol != config.protocol:
                yield other.at(positions)

    def random(self, rng: np.random.Generator) -> Config:
        """Uniform over families, then over the values of each axis."""
        family = self.families[int(rng.integers(len(self.families)))]
        return family.at([int(rng.integers(len(axis))) for axis in family.axes])


def _values(config: Config) -> tuple[int, int, int]:
    return config.nchannels, config.nthreads, config.buffer_bytes


_LL, _LL128, _SIMPLE = (protocol.value for protocol in NcclProtocol)
_NCCL_CHANNELS = (1, 2, 4, 8, 16, 24, 32)
_NCCL_THREADS = {
    _LL: (64, 128, 192, 256, 384, 0),
    _LL128: (0,),
    _SIMPLE: (64, 128, 192, 256, 384, 0),
}
"""NCCL_NTHREADS; 0 is NCCL's own count, 512: it stands last on the axis. LL128 has its own
variable and gains nothing from fewer threads."""
_NCCL_BUFFERS = {_LL: (0,), _LL128: (0,), _SIMPLE: (1 * MIB, 2 * MIB, 0, 8 * MIB, 16 * MIB)}
"""0 is NCCL's own size, 4 MiB: it stands where 4 MiB would."""

_BUILTIN_ALGORITHMS = {
    Operation.ALL_REDUCE: (NcclAlgorithm.RING, NcclAlgorithm.TREE),
    Operation.ALL_GATHER: (NcclAlgorithm.RING,),
    Operation.REDUCE_SCATTER: (NcclAlgorithm.RING,),
    Operation.BROADCAST: (NcclAlgorithm.RING,),
    Operation.REDUCE: (NcclAlgorithm.RING,),
    Operation.ALLTOALL: (),
}


def nccl_families(operation: Operation) -> tuple[Family, ...]:
    """Built-in algorithms that every NCCL since 2.19 has for this operation."""
    return tuple(
        Family(algorithm.value, protocol, _NCCL_CHANNELS, threads, _NCCL_BUFFERS[protocol])
        for algorithm in _BUILTIN_ALGORITHMS[operation]
        for protocol, threads in _NCCL_THREADS.items()
    )


def executor_families(schedules: Sequence[str]) -> tuple[Family, ...]:
    """Schedules, by content hash, under every protocol."""
    threads = {_LL: (64, 128, 256, 512), _LL128: (160, 320, 640), _SIMPLE: (128, 256, 512)}
    buffers = tuple(64 * KIB << i for i in range(8))
    return tuple(
        Family(
            f"{SCHEDULE_PREFIX}{schedule}", protocol, (1, 2, 4, 8, 16), threads[protocol], buffers
        )
        for schedule in schedules
        for protocol in threads
    )


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


def with_profile(space: Space, profile: ProcessProfile) -> Space:
    """The space under one process profile: built-ins keep what can change from call to call."""
    families = tuple(
        family
        if family.algorithm.startswith(SCHEDULE_PREFIX)
        else replace(
            family,
            nthreads=(profile.nthreads,),
            buffer_bytes=(profile.buffer_bytes,),
            min_nchannels=profile.min_nchannels,
        )
        for family in space.families
    )
    return Space(f"{space.name}, one profile", families)
