"""The benchmark's findings with the names of a topology's GPUs, and notes about them.

GPUs are matched by PCI address, because CUDA_VISIBLE_DEVICES hides and reorders them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from probes.nccl_xml.nics import shortened
from probes.p2p.report import P2pQuantity, P2pReport
from probes.topology.graph import Topology

_UNDISTURBED = 0.75
"""Share of a pair's bandwidth alone; below it, copies of other pairs share its links."""
_MAX_NAMED = 4


def match_gpus(topology: Topology, report: P2pReport) -> tuple[dict[int, str], tuple[str, ...]]:
    """Return names by the benchmark's index, and notes on GPUs that either side lacks."""
    known = {_address(gpu.bus_id): gpu.name for gpu in topology.gpus if gpu.bus_id}
    gpu_names = {
        index: known[_address(gpu.bus_id)]
        for index, gpu in enumerate(report.gpus)
        if _address(gpu.bus_id) in known
    }
    unknown = [
        gpu.bus_id for index, gpu in enumerate(report.gpus) if index not in gpu_names and gpu.bus_id
    ]
    unmeasured = [gpu.name for gpu in topology.gpus if gpu.name not in gpu_names.values()]
    notes = []
    if unknown:
        notes.append(f"GPUs that were measured but are not in the topology: {shortened(unknown)}.")
    if unmeasured:
        notes.append(
            "GPUs that CUDA does not show (CUDA_VISIBLE_DEVICES?) and that were not measured: "
            f"{shortened(unmeasured)}."
        )
    return gpu_names, tuple(notes)


def _address(bus_id: str) -> tuple[int, str]:
    """Parse the domain, which is written with four digits or eight, to compare bus ids."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return int(domain, 16), rest
    except ValueError:
        return -1, bus_id


def corrupt_pairs(report: P2pReport, gpu_names: Mapping[int, str]) -> list[str]:
    """Return a sentence for every pair that delivers wrong data."""
    return [
        f"{gpu_names[a]} and {gpu_names[b]}: data that was copied between them did not arrive as "
        "it was sent, so no figure is taken; P2P through an IOMMU or ACS does this (turn ACS off, "
        "or set NCCL_P2P_DISABLE=1)."
        for a, b in sorted(report.corrupt_pairs)
        if a in gpu_names and b in gpu_names
    ]


def flag_latencies_us(
    report: P2pReport, gpu_names: Mapping[int, str]
) -> dict[tuple[str, str], float]:
    """Return the one-way latency between GPUs, by names."""
    return {
        (gpu_names[a], gpu_names[b]): figure.median
        for a in gpu_names
        for b in gpu_names
        if a != b and (figure := report.flag_latency_us(a, b)) is not None
    }


def shared_links(report: P2pReport, gpu_names: Mapping[int, str]) -> list[str]:
    """Return a sentence on pairs that slow down while pairs without a common GPU copy."""
    slowed = []
    for a, b in itertools.permutations(sorted(gpu_names), 2):
        alone = report.figure(P2pQuantity.COPY_ENGINE, a, b)
        concurrent = report.figure(P2pQuantity.COPY_ENGINE_CONCURRENT, a, b)
        if alone and concurrent and concurrent.median < _UNDISTURBED * alone.median:
            figures = f"{alone.median:.3g} GB/s alone, {concurrent.median:.3g} beside others"
            slowed.append(f"{gpu_names[a]} -> {gpu_names[b]} ({figures})")
    more = f" and {len(slowed) - _MAX_NAMED} more" if len(slowed) > _MAX_NAMED else ""
    named = ", ".join(f"'{pair}'" for pair in slowed[:_MAX_NAMED])
    claim = "Copies that share a link on their way slow each other down when they run at once"
    return [f"{claim}: {named}{more}."] if slowed else []


def not_measured(report: P2pReport, gpu_names: Mapping[int, str]) -> list[str]:
    """Return a sentence for every cause of a missing measurement."""
    causes: dict[str, list[str]] = {}
    for index, gpu in enumerate(report.gpus):
        if gpu.error:
            causes.setdefault(gpu.error, []).append(gpu_names.get(index, gpu.bus_id or "a GPU"))
    for failure in report.failures:
        if not failure.is_corrupt or len(failure.gpus) == 1:
            label = " -> ".join(gpu_names.get(index, f"GPU {index}") for index in failure.gpus)
            causes.setdefault(failure.detail, []).append(f"{label} ({failure.quantity})")
    return [f"Not measured: {shortened(items)}: {cause}." for cause, items in causes.items()]
