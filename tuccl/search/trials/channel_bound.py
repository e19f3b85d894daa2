"""The part of a space whose calls take a bounded share of a GPU.

A channel of NCCL is a thread block, and takes the place of computation on a multiprocessor for as
long as the call lasts; so does each thread block of a schedule's kernel. Alone a call is usually
fastest with many of them; beside computation it may cost the job more than it gains (AutoCCL, NSDI
2025, on the interference of both). Jobs bound NCCL's share by NCCL_MAX_CTAS; this is the same for a
search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuccl.search.trials.config import DEFAULT_ALGORITHM, Config
from tuccl.search.trials.space import Family, Space, space_of


def with_channels_up_to(space: Space, most: int | None) -> Space:
    """Return the configurations that ask for so many channels at most.

    NCCL's own choice stays: it is what every key is compared with, and what a key without an entry
    runs. A family whose counts are all above the bound takes the largest power of two below it.

    Args:
        space: A space of a backend or of a record.
        most: Channels of NCCL, thread blocks of a schedule's kernel; None: as many as there are.
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
