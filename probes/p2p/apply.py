"""A topology with the figures of the P2P benchmark in it: the measurement wins.

- A direct link between two GPUs does what their copy engines reached, and its latency is the one
  way of a flag.
- A GPU's link to its NVSwitch does what its best pair reached, since every pair is held to it; half
  of a flag's way is the latency of each. A pair that stays far behind, or that is told to be
  slower than it looks, gets a `PairLimit`.
- A GPU's link into the PCIe tree does what it reached to and from host memory, or to a neighbour.
- A PCIe pair that stays far behind its links gets a `PairLimit`; where one exceeds them, those
  links whose figure was an assumption are raised.

Copies of equal GPUs differ by noise. Figures of NVSwitch and PCIe links within 5 % of their common
median become that median, so that noise makes nothing look different.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from probes.errors import InvalidTopologyError
from probes.p2p.classify import (
    MOST,
    PCIE_LEAST,
    PairClass,
    PairFinding,
    compare_pair,
    look_at,
)
from probes.p2p.named import (
    corrupt_pairs,
    flag_latencies_us,
    not_measured,
    places_by_address,
    shared_links,
)
from probes.p2p.report import Figure, P2pReport, What
from probes.topology.graph import DeviceKind, Link, LinkKind, PairLimit, Provenance, Topology
from probes.topology.link_figures import pcie_gb_per_s
from probes.topology.paths import Path, local_path

_FASTEST_MBPS_PER_LANE = 480
"""PCIe 6, in the unit of `pcie_gb_per_s`."""
_ALIKE = 0.05
_Key = TypeVar("_Key", bound=Hashable)
_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AppliedP2p:
    """A topology after the measurement."""

    topology: Topology
    """Its notes hold the disagreements and whatever could not be measured."""
    disagreements: tuple[str, ...]
    """Where look and measurement differ, one sentence each."""
    pairs: tuple[PairFinding, ...]
    """Every directed pair of GPUs that the benchmark saw, by their places in the topology."""


def apply_p2p(topology: Topology, report: P2pReport) -> AppliedP2p:
    """Put measured figures into the topology of the host that was measured.

    Raises:
        InvalidTopologyError: the topology holds several hosts, so it is not clear which was.
    """
    if topology.node_count > 1:
        raise InvalidTopologyError(
            f"topology '{topology.name}': {topology.node_count} hosts; P2P figures belong to one, "
            "apply them before hosts are merged"
        )
    places, notes = places_by_address(topology, report)
    pairs = tuple(_findings(topology, report, places))
    measured = {(pair.src, pair.dst): pair.copy_engine for pair in pairs if pair.copy_engine}
    told = [pair.disagreement for pair in pairs if pair.disagreement]
    told += corrupt_pairs(report, places)
    latency = flag_latencies_us(report, places)
    before = {pair: path for pair in measured if (path := local_path(topology, *pair)) is not None}
    as_seen = _by_the_way_seen(pairs, before)
    changed = _direct_links(before, measured, latency)
    changed |= _nvswitch_links(before, measured, latency, topology)
    uplinks, uplink_words = _uplinks(topology, report, places, as_seen, measured)
    changed |= uplinks
    changed = _raised(as_seen, measured, changed)
    links = tuple(changed.get(link, link) for link in topology.links)
    topology = replace(topology, links=links)
    slow = {
        (pair.src, pair.dst)
        for pair in pairs
        if pair.disagreement
        and pair.copy_engine
        and pair.copy_engine.median < pair.promised_gb_per_s
    }
    topology = replace(topology, limits=_limits(topology, measured, slow))
    told += uplink_words
    notes = (*notes, *shared_links(report, places), *not_measured(report, places))
    notes = (*topology.notes, *told, *notes, *report.notes)
    return AppliedP2p(replace(topology, notes=notes), tuple(told), pairs)


def _by_the_way_seen(
    pairs: tuple[PairFinding, ...], before: Mapping[_Pair, Path]
) -> dict[_Pair, Path]:
    """Routes without those pairs that plainly have another one: NVLinks that were not seen."""
    unseen = {
        (pair.src, pair.dst)
        for pair in pairs
        if pair.measured is PairClass.NVLINK and pair.look is not PairClass.NVLINK
    }
    return {pair: path for pair, path in before.items() if pair not in unseen}


def _findings(
    topology: Topology, report: P2pReport, places: Mapping[int, str]
) -> Iterator[PairFinding]:
    order = {gpu.name: rank for rank, gpu in enumerate(topology.gpus)}
    ranked = sorted(places, key=lambda place: order[places[place]])
    for a in ranked:
        for b in ranked:
            if a != b:
                figure = report.figure(What.COPY_ENGINE, a, b)
                look = look_at(topology, places[a], places[b])
                access = report.has_peer_access(a, b)
                yield compare_pair(places[a], places[b], look, figure, peer_access=access)


def _with(link: Link, figure: Figure, latency_us: float | None = None) -> Link:
    link = replace(
        link,
        bandwidth_gb_per_s=figure.median,
        provenance=Provenance.MEASURED,
        spread=figure.spread,
    )
    if latency_us is None:
        return link
    return replace(link, latency_us=latency_us, latency_provenance=Provenance.MEASURED)


def _direct_links(
    before: Mapping[_Pair, Path],
    measured: Mapping[_Pair, Figure],
    latency: Mapping[_Pair, float],
) -> dict[Link, Link]:
    return {
        path.links[0]: _with(path.links[0], measured[pair], latency.get(pair))
        for pair, path in before.items()
        if len(path.links) == 1
    }


def _nvswitch_links(
    before: Mapping[_Pair, Path],
    measured: Mapping[_Pair, Figure],
    latency: Mapping[_Pair, float],
    topology: Topology,
) -> dict[Link, Link]:
    best: dict[Link, Figure] = {}
    ways: list[float] = []
    for pair, path in before.items():
        if topology.device[path.links[0].dst].kind is not DeviceKind.NVSWITCH:
            continue
        ways += [latency[pair]] if pair in latency else []
        for link in path.links:
            best[link] = max(best.get(link, measured[pair]), measured[pair], key=_speed)
    half = statistics.median(ways) / 2 if ways else None
    return {
        link: _with(link, figure, half)
        for lanes in sorted({link.lanes for link in best})
        for link, figure in _levelled({k: v for k, v in best.items() if k.lanes == lanes}).items()
    }


def _speed(figure: Figure) -> float:
    return figure.median


def _levelled(figures: Mapping[_Key, Figure]) -> dict[_Key, Figure]:
    """Figures that differ by noise from their median become it, then those that are left over."""
    level: dict[_Key, Figure] = {}
    rest = dict(figures)
    while rest:
        middle = statistics.median_low(figure.median for figure in rest.values())
        alike = {
            key: figure
            for key, figure in rest.items()
            if abs(figure.median - middle) <= _ALIKE * middle
        }
        common = Figure.of(tuple(figure.median for figure in alike.values()))
        for key, figure in alike.items():
            level[key] = Figure(common.median, max(common.spread, figure.spread))
            del rest[key]
    return level


def _uplinks(
    topology: Topology,
    report: P2pReport,
    places: Mapping[int, str],
    before: Mapping[_Pair, Path],
    measured: Mapping[_Pair, Figure],
) -> tuple[dict[Link, Link], list[str]]:
    """Each GPU's own link towards the host, by its copies to and from host memory."""
    figures: dict[Link, Figure] = {}
    words = []
    for place, gpu in sorted(places.items(), key=lambda item: item[1]):
        for what, outwards in ((What.GPU_TO_HOST, True), (What.HOST_TO_GPU, False)):
            figure = report.figure(what, place)
            path = _host_path(topology, gpu, outwards=outwards)
            if figure is None or path is None:
                continue
            own = path.links[0 if outwards else -1]
            promise = path.bandwidth_gb_per_s
            if PCIE_LEAST * promise <= figure.median <= MOST * promise:
                if promise < own.bandwidth_gb_per_s:
                    continue  # held up further on, as it should be: this link may do more
            else:
                words.append(_host_words(path, own, figure))
                if _is_beyond_pcie(own, figure):
                    continue
            # A neighbour may be reached faster than host memory.
            over = [measured[pair] for pair, way in before.items() if own in way.links]
            figures[own] = max([figure, *over], key=_speed)
    changed = {}
    for kind, lanes in sorted({(link.kind, link.lanes) for link in figures}):
        same = {k: v for k, v in figures.items() if (k.kind, k.lanes) == (kind, lanes)}
        changed.update({link: _with(link, figure) for link, figure in _levelled(same).items()})
    return changed, words


def _host_words(path: Path, own: Link, figure: Figure) -> str:
    outcome = f"{own.src} -> {own.dst} takes the measurement"
    if _is_beyond_pcie(own, figure):
        outcome = "more than PCIe can, so there is another way that was not seen"
    return (
        f"{path.devices[0]} -> {path.devices[-1]}: its links promise "
        f"{path.bandwidth_gb_per_s:.4g} GB/s, copies with host memory do {figure.median:.4g}: "
        f"{outcome}."
    )


def _is_beyond_pcie(link: Link, figure: Figure) -> bool:
    """Faster than PCIe of any generation with the lanes of this link."""
    most = MOST * pcie_gb_per_s(_FASTEST_MBPS_PER_LANE, link.lanes)
    return link.kind is LinkKind.PCIE and figure.median > most


def _host_path(topology: Topology, gpu: str, *, outwards: bool) -> Path | None:
    """To or from the nearest CPU."""
    cpus = [device.name for device in topology.devices if device.kind is DeviceKind.CPU]
    ends = [(gpu, cpu) if outwards else (cpu, gpu) for cpu in cpus]
    paths = [path for pair in ends if (path := local_path(topology, *pair)) is not None]
    return min(paths, key=lambda path: (len(path.links), path.devices), default=None)


def _raised(
    before: Mapping[_Pair, Path], measured: Mapping[_Pair, Figure], changed: dict[Link, Link]
) -> dict[Link, Link]:
    """Assumed figures on the way of pairs that are faster than these say.

    The speed between sockets counts as assumed: it is a rule of thumb by the CPU's model.
    """
    raised = dict(changed)
    for pair, path in before.items():
        figure = measured[pair]
        if figure.median <= MOST * min(
            raised.get(link, link).bandwidth_gb_per_s for link in path.links
        ):
            continue
        for link in path.links:
            guessed = link.provenance is Provenance.ASSUMED or link.kind is LinkKind.UPI
            if guessed and raised.get(link, link).bandwidth_gb_per_s < figure.median:
                raised[link] = _with(link, figure)
    return raised


def _limits(
    topology: Topology, measured: Mapping[_Pair, Figure], told_slow: set[_Pair]
) -> tuple[PairLimit, ...]:
    """Of pairs that stay behind the links they now have; other devices' limits are kept.

    Far behind where look and measurement agree, beyond noise where a pair is told to be slow.
    """
    limits = [limit for limit in topology.limits if (limit.src, limit.dst) not in measured]
    bare = replace(topology, limits=())
    for (src, dst), figure in measured.items():
        path = local_path(bare, src, dst)
        if path is None or len(path.links) == 1:
            continue
        least = 1 - _ALIKE if (src, dst) in told_slow else PCIE_LEAST
        if figure.median < least * path.bandwidth_gb_per_s:
            limits.append(PairLimit(src, dst, figure.median, figure.spread))
    return tuple(limits)
