"""A topology with the figures of the P2P benchmark, which replace the static ones.

- A direct link between two GPUs gets the bandwidth of their copy engines, and the one-way latency
  of a flag.
- A GPU's link to its NVSwitch gets the bandwidth of its best pair, since the link limits every
  pair, and half of a flag's latency. A pair far below it, or below its expected class, gets a
  `PairLimit`.
- A GPU's link into the PCIe tree gets its bandwidth with host memory, or with a neighbour if that
  is higher.
- A PCIe pair far below its links gets a `PairLimit`; where a pair exceeds its links, those with an
  assumed bandwidth are raised.

Copies of equal GPUs differ by noise. Figures of NVSwitch and PCIe links within 5 % of their common
median become that median, so that noise does not distinguish links.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from probes.p2p.classify import (
    MOST,
    PCIE_LEAST,
    PairClass,
    PairFinding,
    compare_pair,
    expected_pair,
)
from probes.p2p.figures import (
    corrupt_pairs,
    flag_latencies_us,
    match_gpus,
    not_measured,
    shared_links,
)
from probes.p2p.report import Figure, P2pQuantity, P2pReport
from probes.topology.bandwidth_class import pcie_gb_per_s
from probes.topology.graph import DeviceKind, Link, LinkKind, PairLimit, Provenance, Topology
from probes.topology.paths import Path, local_path
from tuccl.errors import InvalidTopologyError

_FASTEST_MBPS_PER_LANE = 480
"""PCIe 6, in the unit of `pcie_gb_per_s`."""
_NOISE = 0.05
_Key = TypeVar("_Key", bound=Hashable)
_Pair = tuple[str, str]


def apply_p2p(topology: Topology, report: P2pReport) -> Topology:
    """Apply measured figures to the topology of the measured host.

    Its notes state the pairs whose measured class is not the expected one, and failed measurements.

    Raises:
        InvalidTopologyError: the topology has several hosts, so the measured one is ambiguous.
    """
    if topology.node_count > 1:
        raise InvalidTopologyError(
            f"topology '{topology.name}': {topology.node_count} hosts; P2P figures belong to one, "
            "apply them before hosts are merged"
        )
    gpu_names, notes = match_gpus(topology, report)
    pairs = tuple(_findings(topology, report, gpu_names))
    measured = {(pair.src, pair.dst): pair.copy_engine for pair in pairs if pair.copy_engine}
    disagreements = [pair.disagreement for pair in pairs if pair.disagreement]
    disagreements += corrupt_pairs(report, gpu_names)
    latency = flag_latencies_us(report, gpu_names)
    paths = {pair: path for pair in measured if (path := local_path(topology, *pair)) is not None}
    confirmed = _confirmed_paths(pairs, paths)
    changed = _direct_links(paths, measured, latency)
    changed |= _nvswitch_links(paths, measured, latency, topology)
    uplinks, uplink_notes = _uplinks(topology, report, gpu_names, confirmed, measured)
    changed |= uplinks
    changed = _raise_assumed(confirmed, measured, changed)
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
    notes = (*notes, *shared_links(report, gpu_names), *not_measured(report, gpu_names))
    notes = (*topology.notes, *disagreements, *uplink_notes, *notes, *report.notes)
    return replace(topology, notes=notes)


def _confirmed_paths(
    pairs: tuple[PairFinding, ...], paths: Mapping[_Pair, Path]
) -> dict[_Pair, Path]:
    """Paths without those of pairs whose bandwidth indicates NVLinks that the topology lacks."""
    unseen = {
        (pair.src, pair.dst)
        for pair in pairs
        if pair.measured is PairClass.NVLINK and pair.expected is not PairClass.NVLINK
    }
    return {pair: path for pair, path in paths.items() if pair not in unseen}


def _findings(
    topology: Topology, report: P2pReport, gpu_names: Mapping[int, str]
) -> Iterator[PairFinding]:
    order = {gpu.name: rank for rank, gpu in enumerate(topology.gpus)}
    ranked = sorted(gpu_names, key=lambda index: order[gpu_names[index]])
    for a in ranked:
        for b in ranked:
            if a != b:
                figure = report.figure(P2pQuantity.COPY_ENGINE, a, b)
                expected = expected_pair(topology, gpu_names[a], gpu_names[b])
                access = report.has_peer_access(a, b)
                yield compare_pair(gpu_names[a], gpu_names[b], expected, figure, peer_access=access)


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
    paths: Mapping[_Pair, Path],
    measured: Mapping[_Pair, Figure],
    latency: Mapping[_Pair, float],
) -> dict[Link, Link]:
    return {
        path.links[0]: _with(path.links[0], measured[pair], latency.get(pair))
        for pair, path in paths.items()
        if len(path.links) == 1
    }


def _nvswitch_links(
    paths: Mapping[_Pair, Path],
    measured: Mapping[_Pair, Figure],
    latency: Mapping[_Pair, float],
    topology: Topology,
) -> dict[Link, Link]:
    best: dict[Link, Figure] = {}
    latencies: list[float] = []
    for pair, path in paths.items():
        if topology.device[path.links[0].dst].kind is not DeviceKind.NVSWITCH:
            continue
        latencies += [latency[pair]] if pair in latency else []
        for link in path.links:
            best[link] = max(best.get(link, measured[pair]), measured[pair], key=_speed)
    half = statistics.median(latencies) / 2 if latencies else None
    return {
        link: _with(link, figure, half)
        for lanes in sorted({link.lanes for link in best})
        for link, figure in _with_common_medians(
            {k: v for k, v in best.items() if k.lanes == lanes}
        ).items()
    }


def _speed(figure: Figure) -> float:
    return figure.median


def _with_common_medians(figures: Mapping[_Key, Figure]) -> dict[_Key, Figure]:
    """Replace figures within noise of their median by it, then repeat with the remaining ones."""
    result: dict[_Key, Figure] = {}
    remaining = dict(figures)
    while remaining:
        median = statistics.median_low(figure.median for figure in remaining.values())
        group = {
            key: figure
            for key, figure in remaining.items()
            if abs(figure.median - median) <= _NOISE * median
        }
        common = Figure.of(tuple(figure.median for figure in group.values()))
        for key, figure in group.items():
            result[key] = Figure(common.median, max(common.spread, figure.spread))
            del remaining[key]
    return result


def _uplinks(
    topology: Topology,
    report: P2pReport,
    gpu_names: Mapping[int, str],
    paths: Mapping[_Pair, Path],
    measured: Mapping[_Pair, Figure],
) -> tuple[dict[Link, Link], list[str]]:
    """Return each GPU's link towards the host with its bandwidth to and from host memory."""
    figures: dict[Link, Figure] = {}
    notes = []
    for index, gpu in sorted(gpu_names.items(), key=lambda item: item[1]):
        for quantity, outwards in (
            (P2pQuantity.GPU_TO_HOST, True),
            (P2pQuantity.HOST_TO_GPU, False),
        ):
            figure = report.figure(quantity, index)
            path = _host_path(topology, gpu, outwards=outwards)
            if figure is None or path is None:
                continue
            uplink = path.links[0 if outwards else -1]
            promise = path.bandwidth_gb_per_s
            if PCIE_LEAST * promise <= figure.median <= MOST * promise:
                if promise < uplink.bandwidth_gb_per_s:
                    continue  # a later link is the limit, so this link may be faster
            else:
                notes.append(_host_note(path, uplink, figure))
                if _is_beyond_pcie(uplink, figure):
                    continue
            # A neighbour may be reached faster than host memory.
            over = [
                measured[pair] for pair, pair_path in paths.items() if uplink in pair_path.links
            ]
            figures[uplink] = max([figure, *over], key=_speed)
    changed = {}
    for kind, lanes in sorted({(link.kind, link.lanes) for link in figures}):
        same = {k: v for k, v in figures.items() if (k.kind, k.lanes) == (kind, lanes)}
        changed.update(
            {link: _with(link, figure) for link, figure in _with_common_medians(same).items()}
        )
    return changed, notes


def _host_note(path: Path, own: Link, figure: Figure) -> str:
    outcome = f"{own.src} -> {own.dst} takes the measurement"
    if _is_beyond_pcie(own, figure):
        outcome = "more than PCIe allows, so there is another path that the topology lacks"
    return (
        f"{path.devices[0]} -> {path.devices[-1]}: its links promise "
        f"{path.bandwidth_gb_per_s:.4g} GB/s, copies with host memory do {figure.median:.4g}: "
        f"{outcome}."
    )


def _is_beyond_pcie(link: Link, figure: Figure) -> bool:
    """Whether it is faster than PCIe of any generation with the lanes of this link."""
    limit = MOST * pcie_gb_per_s(_FASTEST_MBPS_PER_LANE, link.lanes)
    return link.kind is LinkKind.PCIE and figure.median > limit


def _host_path(topology: Topology, gpu: str, *, outwards: bool) -> Path | None:
    """Return the path to or from the nearest CPU."""
    cpus = [device.name for device in topology.devices if device.kind is DeviceKind.CPU]
    ends = [(gpu, cpu) if outwards else (cpu, gpu) for cpu in cpus]
    paths = [path for pair in ends if (path := local_path(topology, *pair)) is not None]
    return min(paths, key=lambda path: (len(path.links), path.devices), default=None)


def _raise_assumed(
    paths: Mapping[_Pair, Path], measured: Mapping[_Pair, Figure], changed: dict[Link, Link]
) -> dict[Link, Link]:
    """Raise assumed bandwidths on the paths of pairs that measured faster.

    The bandwidth between sockets counts as assumed: it is an estimate by the CPU's model.
    """
    raised = dict(changed)
    for pair, path in paths.items():
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
    topology: Topology, measured: Mapping[_Pair, Figure], slow: set[_Pair]
) -> tuple[PairLimit, ...]:
    """Return limits of pairs that are slower than their measured links; other limits are kept.

    The margin is noise for pairs that contradict their expected class, else `PCIE_LEAST`.
    """
    limits = [limit for limit in topology.limits if (limit.src, limit.dst) not in measured]
    bare = replace(topology, limits=())
    for (src, dst), figure in measured.items():
        path = local_path(bare, src, dst)
        if path is None or len(path.links) == 1:
            continue
        least = 1 - _NOISE if (src, dst) in slow else PCIE_LEAST
        if figure.median < least * path.bandwidth_gb_per_s:
            limits.append(PairLimit(src, dst, figure.median, figure.spread))
    return tuple(limits)
