"""Configurations that a search begins with, and those around a good one."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.search.config import Config
from tuccl.search.space import AXES, Family, Space

_OWN = {"nthreads": (0, 512), "buffer_bytes": (0, 4 << 20), "min_nchannels": (0,)}
"""NCCL's own values of what holds per process, as the value 0 or spelled out."""


def opening(space: Space) -> list[Config]:
    """Two of each family: NCCL's own values with the most channels, and the middle of the axes."""
    points = [
        family.at(positions)
        for place in (_own_positions, _middle_positions)
        for family in space.families
        for positions in [place(family)]
    ]
    return [config for config in dict.fromkeys(points) if config in space]


def star(space: Space, config: Config) -> list[Config]:
    """Configurations that differ on one axis, at distances 1, 2, 4, ...; then other families'."""
    index, positions = space.positions(config)
    family = space.families[index]
    found = [
        family.at(moved)
        for axis in range(len(AXES))
        for moved in _moved(positions, axis, len(family.axes[axis]))
    ]
    found += [other.at(positions) for other in space.families if other is not family]
    return [other for other in found if other in space]


def _moved(positions: tuple[int, ...], axis: int, length: int) -> Iterator[tuple[int, ...]]:
    distance = 1
    while distance < length:
        for place in (positions[axis] - distance, positions[axis] + distance):
            if 0 <= place < length:
                yield (*positions[:axis], place, *positions[axis + 1 :])
        distance *= 2


def _own_positions(family: Family) -> list[int]:
    positions = [len(family.nchannels) - 1]
    for name, axis in zip(AXES[1:], family.axes[1:], strict=True):
        own = [axis.index(value) for value in _OWN[name] if value in axis]
        positions.append(own[0] if own else len(axis) - 1)
    return positions


def _middle_positions(family: Family) -> list[int]:
    return [len(axis) // 2 for axis in family.axes]
