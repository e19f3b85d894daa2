"""The ways that a process profile can be changed: axes of values, knobs, and values between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tuccl.search.trials.config import DEFAULT_ALGORITHM, ProcessProfile
from tuccl.search.trials.space import Knob, Space, ascending, nearest_to_own

VARIABLES = ("min_nchannels", "nthreads", "buffer_bytes")
Way = tuple[ProcessProfile, ...]
"""Profiles that follow each other along an axis, nearest first."""


@dataclass(frozen=True, slots=True)
class ProfileAxes:
    """Values that the per-process variables may take, each axis in ascending effect."""

    start: ProcessProfile
    """Where a race begins: NCCL's own values, as far as they can be measured."""
    nthreads: tuple[int, ...]
    buffer_bytes: tuple[int, ...]
    min_nchannels: tuple[int, ...]
    between_min_nchannels: tuple[int, ...] = ()
    knobs: tuple[Knob, ...] = ()

    @property
    def size(self) -> int:
        """Number of profiles without values between those of an axis."""
        count = len(self.nthreads) * len(self.buffer_bytes) * len(self.min_nchannels)
        for knob in self.knobs:
            count *= len(knob.values)
        return count

    @property
    def most(self) -> int:
        """Number of profiles with values between those of an axis."""
        channels = {*self.min_nchannels, *self.between_min_nchannels}
        return self.size // len(self.min_nchannels) * len(channels)

    def directions(self) -> tuple[str | Knob, ...]:
        """Variables and knobs, each of which can be changed alone."""
        return (*VARIABLES, *self.knobs)

    def ways(self, profile: ProcessProfile, direction: str | Knob) -> Iterator[Way]:
        """The ways from a profile along one axis, up and down.

        From a value between two of the axis both are next to it.
        """
        along = self._along(profile, direction)
        here = along.index(profile)
        for way in (along[here + 1 :], along[:here][::-1]):
            if way:
                yield way

    def gaps(self, profile: ProcessProfile) -> Iterator[Way]:
        """Profiles with a channel count between a profile's and the next on the axis, each gap."""
        axis, here = self.min_nchannels, profile.min_nchannels
        above = [value for value in axis if value > here]
        below = [value for value in axis if value < here]
        for low, high in ((here, above[:1]), (here, below[-1:])):
            for end in high:
                inside = [
                    value
                    for value in self.between_min_nchannels
                    if min(low, end) < value < max(low, end)
                ]
                nearest = sorted(inside, key=lambda value: abs(value - here))
                if nearest:
                    yield tuple(replace(profile, min_nchannels=value) for value in nearest)

    def _along(self, profile: ProcessProfile, direction: str | Knob) -> Way:
        if isinstance(direction, Knob):
            return tuple(direction.turned(profile, value) for value in direction.values)
        axis: tuple[int, ...] = getattr(self, direction)
        here: int = getattr(profile, direction)
        values = ascending(direction, (*axis, here))
        changes: list[dict[str, Any]] = [{direction: value} for value in values]
        return tuple(replace(profile, **change) for change in changes)


def profile_axes(spaces: Iterable[Space]) -> ProfileAxes:
    """The axes of joint spaces: whatever value some built-in algorithm may take in one of them."""
    found: dict[str, set[int]] = {variable: set() for variable in VARIABLES}
    between: set[int] = set()
    knobs: dict[Knob, None] = {}
    for space in spaces:
        between.update(space.between_min_nchannels)
        knobs.update(dict.fromkeys(space.knobs))
        for family in space.families:
            if family.algorithm != DEFAULT_ALGORITHM:
                for variable, values in found.items():
                    values.update(getattr(family, variable))
    axes = {variable: ascending(variable, values or {0}) for variable, values in found.items()}
    start: dict[str, Any] = {name: nearest_to_own(name, axis) for name, axis in axes.items()}
    return ProfileAxes(
        ProcessProfile(**start),
        **axes,
        between_min_nchannels=tuple(sorted(between)),
        knobs=tuple(knobs),
    )
