"""Configurations that a search begins with, and those around a good one."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.search.trials.config import Config
from tuccl.search.trials.space import AXES, Space, nearest_to_own


def opening(space: Space) -> list[Config]:
    """One of each family: NCCL's own values with the most channels."""
    points = (
        family.config(
            nearest_to_own(name, axis) for name, axis in zip(AXES, family.axes, strict=True)
        )
        for family in space.families
    )
    return [config for config in points if config not in space.absent]


def middles(space: Space) -> list[Config]:
    """One of each family: the middle of every axis."""
    points = (family.at([len(axis) // 2 for axis in family.axes]) for family in space.families)
    return [config for config in points if config not in space.absent]


def star(space: Space, config: Config) -> list[Config]:
    """Configurations that differ on one axis, at distances 1, 2, 4, ..."""
    index, positions = space.positions(config)
    family = space.families[index]
    found = (
        family.at(moved)
        for axis in range(len(AXES))
        for moved in _moved(positions, axis, len(family.axes[axis]))
    )
    return [point for point in found if point not in space.absent]


def _moved(positions: tuple[int, ...], axis: int, length: int) -> Iterator[tuple[int, ...]]:
    distance = 1
    while distance < length:
        for place in (positions[axis] - distance, positions[axis] + distance):
            if 0 <= place < length:
                yield (*positions[:axis], place, *positions[axis + 1 :])
        distance *= 2
