"""What is out of line, and whose fault it is.

A figure is judged by its class: below the class's median by more than 15 %, and by more than four
standard deviations of the class, it is low. The deviation is estimated from the better half, since
faults only make figures worse. One bad port among few spoils half of their pairs, so in a class of
less than 24 ports the better quartile stands for the median, with a margin of 20 %; networks of
equal line rate lend each other their samples there. In a class of which the better quartile is
itself out of the median's line, so many are bad that it does so, too. Where even more are bad, the
line rate tells: if a tenth of a class reach it and stand apart from the rest, they are its usual.

The fault lies with an *end*: a port while it sends, or while it receives. An end is cleared of a
low figure by any other measurement in which it did what that one should have done, whoever the
partner and whichever the class: a port that does 24 GB/s between racks, as all do there, is not
cleared of 24 GB/s inside its rack. A low figure of which both ends are cleared points to what lies
between them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from probes.network.port_groups import LinkClass
from probes.network.results import PortPair

BANDWIDTH_FLOOR = 0.15
FEW_PORTS_FLOOR = 0.20
LATENCY_FLOOR = 0.50
LATENCY_FLOOR_US = 5.0
_DEVIATIONS = 4.0
_MOST_SPREAD = 0.5
"""However much a class scatters, less than half of its bandwidth is low."""
_MAD_TO_DEVIATION = 1.4826
"""Standard deviation over median absolute deviation, for normal noise."""
_OUTER_TO_DEVIATION = 2.1
"""Standard deviation over the median distance of the better quarter from the better quartile."""
_ENOUGH_PORTS = 24
_REACHES_LINE_RATE = 0.85
_ENOUGH_GOOD = 0.1
"""Share of a class's pairs that must reach the line rate to be taken as usual: two thirds of the
ports may be bad, since both ends of a pair have to be good."""


class Quantity(StrEnum):
    """What was measured."""

    BANDWIDTH = "bandwidth"
    LATENCY = "latency"


class Role(StrEnum):
    """What a port does in a measurement."""

    SENDS = "sends"
    RECEIVES = "receives"
    EITHER = "either"
    """For a round trip both are the same."""


class End(NamedTuple):
    """A port in one role."""

    port: int
    role: Role


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of one measurement."""

    pair: PortPair
    link_class: LinkClass
    figure: float


@dataclass(frozen=True, slots=True)
class Reference:
    """What a class does, and from where on a figure is out of line."""

    figure: float
    limit: float


@dataclass(frozen=True, slots=True)
class Judged:
    """One measurement by its two ends. More score is better, so a latency's is negative."""

    pair: PortPair
    ends: tuple[End, End]
    score: float
    needed: float
    """Less than this is low."""
    expected: float

    @property
    def low(self) -> bool:
        """Whether it is out of line."""
        return self.score < self.needed


@dataclass(frozen=True)
class Diagnosis:
    """Who is suspect, and what every end can do."""

    best: Mapping[End, float]
    """Best score of every end."""
    low: tuple[Judged, ...]
    """Measurements out of line, in the order of time."""
    suspects: Mapping[End, tuple[Judged, ...]]
    """Ends with the low measurements of which they are not cleared."""
    between: Mapping[PortPair, tuple[Judged, ...]]
    """Low measurements of which both ends are cleared, by pair."""
    recovered: tuple[PortPair, ...]
    """Pairs that were low and are fine at their last try."""

    def alone(self, end: End) -> tuple[Judged, ...]:
        """Low measurements of a suspect whose other end is cleared: they tell about it alone."""
        return tuple(
            item
            for item in self.suspects.get(end, ())
            if all(self.clears(other, item) for other in item.ends if other != end)
        )

    def clears(self, end: End, item: Judged) -> bool:
        """Whether the end did elsewhere what this measurement should have given."""
        return self.best.get(end, item.score) >= item.needed


def references(samples: Sequence[Sample], quantity: Quantity) -> dict[LinkClass, Reference]:
    """What each class does when nothing is wrong."""
    own: dict[LinkClass, list[Sample]] = {}
    pooled: dict[tuple[str, float, str], list[Sample]] = {}
    for sample in samples:
        key = sample.link_class
        own.setdefault(key, []).append(sample)
        alike = (key.distance.value, key.line_rate_gb_per_s, key.tool)
        pooled.setdefault(alike, []).append(sample)
    lent = {key: _reference(members, quantity, key[1]) for key, members in pooled.items()}
    return {
        key: _reference(members, quantity, key.line_rate_gb_per_s)
        if _port_count(members) >= _ENOUGH_PORTS
        else lent[key.distance.value, key.line_rate_gb_per_s, key.tool]
        for key, members in own.items()
    }


def _port_count(samples: Iterable[Sample]) -> int:
    return len({port for s in samples for port in (s.pair.client, s.pair.server)})


def _reference(
    samples: Sequence[Sample], quantity: Quantity, line_rate_gb_per_s: float
) -> Reference:
    """From the best figure of every pair, so that repeating the bad ones moves nothing."""
    more_is_better = quantity is Quantity.BANDWIDTH
    best: dict[PortPair, float] = {}
    for sample in samples:
        known = best.setdefault(sample.pair, sample.figure)
        best[sample.pair] = (max if more_is_better else min)(known, sample.figure)
    figures = sorted(best.values(), reverse=more_is_better)
    quartile = figures[len(figures) // 4]
    if _port_count(samples) < _ENOUGH_PORTS:
        middle, deviation, floor = quartile, 0.0, FEW_PORTS_FLOOR
    else:
        middle, floor = statistics.median(figures), BANDWIDTH_FLOOR
        deviation = _MAD_TO_DEVIATION * _median_distance(figures, middle, 2)
        if abs(quartile - middle) > floor * quartile:
            middle = quartile
            deviation = _OUTER_TO_DEVIATION * _median_distance(figures, middle, 4)
    good = _at_line_rate(figures, line_rate_gb_per_s) if more_is_better else []
    if good and statistics.median(figures) < (1 - floor) * statistics.median(good):
        middle = statistics.median(good)
        deviation = _MAD_TO_DEVIATION * _median_distance(good, middle, 2)
    margin = _DEVIATIONS * deviation
    if more_is_better:
        return Reference(middle, middle - min(max(margin, floor * middle), _MOST_SPREAD * middle))
    return Reference(middle, middle + max(LATENCY_FLOOR_US, LATENCY_FLOOR * middle, margin))


def _at_line_rate(figures: Sequence[float], line_rate_gb_per_s: float) -> Sequence[float]:
    """Those of the best figures that reach the line rate; none if they are but a tail of all."""
    count = sum(figure >= _REACHES_LINE_RATE * line_rate_gb_per_s for figure in figures)
    good, rest = figures[:count], figures[count:]
    enough = good and rest and len(good) >= _ENOUGH_GOOD * len(figures)
    if not enough or line_rate_gb_per_s <= 0:
        return []
    low, high = statistics.median(rest), statistics.median(good)
    third = (high - low) / 3
    between = sum(low + third < figure < high - third for figure in figures)
    return good if 2 * between < len(good) else []


def _median_distance(figures: Sequence[float], middle: float, share: int) -> float:
    """From the middle, of the better half or quarter of the figures (the first of them)."""
    better = figures[: (len(figures) + share - 1) // share]
    return statistics.median(abs(figure - middle) for figure in better)


def judge(
    samples: Sequence[Sample], expected: Mapping[LinkClass, Reference], quantity: Quantity
) -> list[Judged]:
    """Compare every sample with its class."""
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
    """Find the ends that no measurement clears; the measurements come in the order of time."""
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
