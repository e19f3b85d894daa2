"""Outliers among the measurements, and the ends at fault.

A figure is compared with its class: it is low if it is below the class's median by more than 15 %
and by more than four standard deviations of the class. The deviation is estimated from the better
half, since faults only make figures worse. One bad port among few spoils half of their pairs, so a
class of fewer than 24 ports uses the better quartile instead of the median, with a margin of 20 %,
and networks of equal line rate pool their samples. The better quartile is also used if it differs
from the median by more than the margin, as many pairs are bad then. If even more are bad, the line
rate decides: if a tenth of a class reach it and are apart from the rest, they are the reference.

The fault is that of an *end*: a port as sender, or as receiver. An end is cleared of a low figure
by any other measurement in which it reached the figure that was expected, with any peer and in any
class: a port with 24 GB/s between racks, like all ports there, is not cleared of 24 GB/s inside its
rack. A low figure of which both ends are cleared points to the path between them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from probes.network.port_groups import LinkClass
from probes.network.ports import PortPair

BANDWIDTH_FLOOR = 0.15
FEW_PORTS_FLOOR = 0.20
LATENCY_FLOOR = 0.50
LATENCY_FLOOR_US = 5.0
_DEVIATIONS = 4.0
_MAX_MARGIN = 0.5
"""Largest margin: half of a class's bandwidth is low, however much the class scatters."""
_MAD_TO_DEVIATION = 1.4826
"""Standard deviation over median absolute deviation, for normal noise."""
_OUTER_TO_DEVIATION = 2.1
"""Standard deviation over the median distance of the better quarter from the better quartile."""
_ENOUGH_PORTS = 24
_REACHES_LINE_RATE = 0.85
_ENOUGH_GOOD = 0.1
"""Share of a class's pairs that must reach the line rate to become the reference: two thirds of
the ports may be bad, since both ends of a pair have to be good."""


class Quantity(StrEnum):
    """Measured quantity."""

    BANDWIDTH = "bandwidth"
    LATENCY = "latency"


class Role(StrEnum):
    """Role of a port in a measurement."""

    SENDS = "sends"
    RECEIVES = "receives"
    EITHER = "either"
    """Either role, for a round trip."""


class End(NamedTuple):
    """A port in one role."""

    port: int
    role: Role


@dataclass(frozen=True, slots=True)
class Sample:
    """A figure of a measurement."""

    pair: PortPair
    link_class: LinkClass
    figure: float


@dataclass(frozen=True, slots=True)
class Reference:
    """Expected figure of a class, and the limit beyond which a figure is an outlier."""

    figure: float
    limit: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A measurement with its two ends; higher scores are better, so that of a latency is < 0."""

    pair: PortPair
    ends: tuple[End, End]
    score: float
    needed: float
    """Score below which the measurement is low."""
    expected: float

    @property
    def low(self) -> bool:
        """Whether the measurement is an outlier."""
        return self.score < self.needed


@dataclass(frozen=True)
class Diagnosis:
    """Suspect ends, and the best score of every end."""

    best: Mapping[End, float]
    """Best score of every end."""
    low: tuple[Judged, ...]
    """Outliers in the order of time."""
    suspects: Mapping[End, tuple[Judged, ...]]
    """Ends with the low measurements of which they are not cleared."""
    between: Mapping[PortPair, tuple[Judged, ...]]
    """Low measurements of which both ends are cleared, by pair."""
    recovered: tuple[PortPair, ...]
    """Pairs that were low and are normal in their last measurement."""

    def alone(self, end: End) -> tuple[Judged, ...]:
        """Low measurements of a suspect whose peer is cleared, so only the suspect is at fault."""
        return tuple(
            item
            for item in self.suspects.get(end, ())
            if all(self.clears(peer, item) for peer in item.ends if peer != end)
        )

    def clears(self, end: End, item: Judged) -> bool:
        """Whether the end reached the needed score in another measurement."""
        return self.best.get(end, item.score) >= item.needed


def references(samples: Sequence[Sample], quantity: Quantity) -> dict[LinkClass, Reference]:
    """Return the expected figure and limit of each class without faults."""
    own: dict[LinkClass, list[Sample]] = {}
    pooled: dict[tuple[str, float, str], list[Sample]] = {}
    for sample in samples:
        key = sample.link_class
        own.setdefault(key, []).append(sample)
        pool = (key.distance.value, key.line_rate_gb_per_s, key.tool)
        pooled.setdefault(pool, []).append(sample)
    pooled_references = {
        key: _reference(members, quantity, key[1]) for key, members in pooled.items()
    }
    return {
        key: _reference(members, quantity, key.line_rate_gb_per_s)
        if _port_count(members) >= _ENOUGH_PORTS
        else pooled_references[key.distance.value, key.line_rate_gb_per_s, key.tool]
        for key, members in own.items()
    }


def _port_count(samples: Iterable[Sample]) -> int:
    return len({port for s in samples for port in (s.pair.client, s.pair.server)})


def _reference(
    samples: Sequence[Sample], quantity: Quantity, line_rate_gb_per_s: float
) -> Reference:
    """Estimate from the best figure of every pair, so that repeating bad pairs changes nothing."""
    more_is_better = quantity is Quantity.BANDWIDTH
    best: dict[PortPair, float] = {}
    for sample in samples:
        known = best.setdefault(sample.pair, sample.figure)
        best[sample.pair] = (max if more_is_better else min)(known, sample.figure)
    figures = sorted(best.values(), reverse=more_is_better)
    quartile = figures[len(figures) // 4]
    if _port_count(samples) < _ENOUGH_PORTS:
        centre, deviation, floor = quartile, 0.0, FEW_PORTS_FLOOR
    else:
        centre, floor = statistics.median(figures), BANDWIDTH_FLOOR
        deviation = _MAD_TO_DEVIATION * _median_distance(figures, centre, 2)
        if abs(quartile - centre) > floor * quartile:
            centre = quartile
            deviation = _OUTER_TO_DEVIATION * _median_distance(figures, centre, 4)
    good = _at_line_rate(figures, line_rate_gb_per_s) if more_is_better else []
    if good and statistics.median(figures) < (1 - floor) * statistics.median(good):
        centre = statistics.median(good)
        deviation = _MAD_TO_DEVIATION * _median_distance(good, centre, 2)
    margin = _DEVIATIONS * deviation
    if more_is_better:
        return Reference(centre, centre - min(max(margin, floor * centre), _MAX_MARGIN * centre))
    return Reference(centre, centre + max(LATENCY_FLOOR_US, LATENCY_FLOOR * centre, margin))


def _at_line_rate(figures: Sequence[float], line_rate_gb_per_s: float) -> Sequence[float]:
    """Return the best figures that reach the line rate; none if they are only a tail of all."""
    count = sum(figure >= _REACHES_LINE_RATE * line_rate_gb_per_s for figure in figures)
    good, rest = figures[:count], figures[count:]
    enough = good and rest and len(good) >= _ENOUGH_GOOD * len(figures)
    if not enough or line_rate_gb_per_s <= 0:
        return []
    low, high = statistics.median(rest), statistics.median(good)
    third = (high - low) / 3
    between = sum(low + third < figure < high - third for figure in figures)
    return good if 2 * between < len(good) else []


def _median_distance(figures: Sequence[float], centre: float, share: int) -> float:
    """Return the median distance from `centre` of the better 1/`share` of the sorted figures."""
    better = figures[: (len(figures) + share - 1) // share]
    return statistics.median(abs(figure - centre) for figure in better)


def judge(
    samples: Sequence[Sample], expected: Mapping[LinkClass, Reference], quantity: Quantity
) -> list[Judged]:
    """Compare every sample with the reference of its class."""
    sign = 1.0 if quantity is Quantity.BANDWIDTH else -1.0
    roles = (
        (Role.SENDS, Role.RECEIVES)
        if quantity is Quantity.BANDWIDTH
        else (Role.EITHER, Role.EITHER)
    )
    return [
        Judged(
            pair=sample.pair,
            ends=(End(sample.pair.client, roles[0]), End(sample.pair.server, roles[1])),
            score=sign * sample.figure,
            needed=sign * expected[sample.link_class].limit,
            expected=expected[sample.link_class].figure,
        )
        for sample in samples
    ]


def diagnose(judged: Sequence[Judged]) -> Diagnosis:
    """Find the ends that no measurement clears; measurements are in the order of time."""
    best: dict[End, float] = {}
    for item in judged:
        for end in item.ends:
            best[end] = max(best.get(end, item.score), item.score)
    suspects: dict[End, list[Judged]] = {}
    between: dict[PortPair, list[Judged]] = {}
    recovered: dict[PortPair, None] = {}
    for item in judged:
        if not item.low:
            if between.pop(item.pair, None):
                recovered[item.pair] = None
            continue
        uncleared = [end for end in item.ends if best[end] < item.needed]
        for end in uncleared:
            suspects.setdefault(end, []).append(item)
        if not uncleared:
            between.setdefault(item.pair, []).append(item)
            recovered.pop(item.pair, None)
    return Diagnosis(
        best=best,
        low=tuple(item for item in judged if item.low),
        suspects={end: tuple(items) for end, items in suspects.items()},
        between={pair: tuple(items) for pair, items in between.items()},
        recovered=tuple(recovered),
    )
