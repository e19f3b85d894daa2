"""The benchmark's findings under the names of a topology's GPUs, and what is to be said of them.

GPUs are matched by PCI address, because CUDA_VISIBLE_DEVICES hides and reorders them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from probes.nccl_xml.nics import shortened
from probes.p2p.report import P2pReport, What
from probes.topology.graph import Topology

_UNDISTURBED = 0.75
"""Of a pair's figure alone: with less beside others it shares its way."""
_MOST_NAMED = 4


def places_by_address(
    topology: Topology, report: P2pReport
) -> tuple[dict[int, str], tuple[str, ...]]:
    """Names of the benchmark's GPUs, and a note on those that only one of both knows."""
    known = {_address(gpu.bus_id): gpu.name for gpu in topology.gpus if gpu.bus_id}
    places = {
        place: known[_address(gpu.bus_id)]
        for place, gpu in enumerate(report.gpus)
        if _address(gpu.bus_id) in known
    }
    strange = [
        gpu.bus_id for place, gpu in enumerate(report.gpus) if place not in places and gpu.bus_id
    ]
    missed = [gpu.name for gpu in topology.gpus if gpu.name not in places.values()]
    notes = []
    if strange:
        notes.append(f"GPUs that were measured but not seen otherwise: {shortened(strange)}.")
    if missed:
        notes.append(
            f"GPUs that CUDA does not show (CUDA_VISIBLE_DEVICES?), so that nothing was measured "
            f"of them: {shortened(missed)}."
        )
    return places, tuple(notes)


def _address(bus_id: str) -> tuple[int, str]:
    """Comparable: domains are written with four digits or eight."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return int(domain, 16), rest
    except ValueError:
        return -1, bus_id


def corrupt_pairs(report: P2pReport, places: Mapping[int, str]) -> list[str]:
    """One sentence for every pair that delivers wrong data."""
    return [
        f"{places[a]} and {places[b]}: data that was copied between them did not arrive as it was "
        "sent, so no figure is taken; P2P through an IOMMU or ACS does this (turn ACS off, or set "
        "NCCL_P2P_DISABLE=1)."
        for a, b in sorted(report.corrupt_pairs)
        if a in places and b in places
    ]


def flag_latencies_us(report: P2pReport, places: Mapping[int, str]) -> dict[tuple[str, str], float]:
    """One way between GPUs."""
    return {
        (places[a], places[b]): figure.median
        for a in places
        for b in places
        if a != b and (figure := report.flag_latency_us(a, b)) is not None
    }


def shared_links(report: P2pReport, places: Mapping[int, str]) -> list[str]:
    """One sentence on pairs that are slower while others copy, though these share no GPU."""
    slowed = []
    for a, b in itertools.permutations(sorted(places), 2):
        alone = report.figure(What.COPY_ENGINE, a, b)
        beside = report.figure(What.COPY_ENGINE_CONCURRENT, a, b)
        if alone and beside and beside.median < _UNDISTURBED * alone.median:
            figures = f"{alone.median:.3g} GB/s alone, {beside.median:.3g} beside others"
            slowed.append(f"{places[a]} -> {places[b]} ({figures})")
    more = f" and {len(slowed) - _MOST_NAMED} more" if len(slowed) > _MOST_NAMED else ""
    named = ", ".join(f"'{pair}'" for pair in slowed[:_MOST_NAMED])
    words = "Copies that share a link on their way slow each other down when they run at once"
    return [f"{words}: {named}{more}."] if slowed else []


def not_measured(report: P2pReport, places: Mapping[int, str]) -> list[str]:
    """One sentence for every cause."""
    causes: dict[str, list[str]] = {}
    for place, gpu in enumerate(report.gpus):
        if gpu.error:
            causes.setdefault(gpu.error, []).append(places.get(place, gpu.bus_id or "a GPU"))
    for failure in report.failures:
        if not failure.is_corrupt or len(failure.gpus) == 1:
            names = " -> ".join(places.get(place, f"GPU {place}") for place in failure.gpus)
            causes.setdefault(failure.detail, []).append(f"{names} ({failure.what})")
    return [f"Not measured: {shortened(what)}: {why}." for why, what in causes.items()]
