"""`P2pFigures`: the benchmark's figures with the names of a topology's GPUs.

A topology has one bandwidth and one latency per link; these are the other figures: bandwidth of
kernels, latency of a write, copies with host memory, one GPU with all others at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from probes.inputs.messages import listed, shortened
from probes.p2p.report import Figure, P2pQuantity, P2pReport
from probes.topology.graph import Topology

_UNDISTURBED = 0.75
"""Share of a pair's bandwidth alone; below it, copies of other pairs share its links."""


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
    named = listed([f"'{pair}'" for pair in slowed], 4)
    claim = "Copies that share a link on their way slow each other down when they run at once"
    return [f"{claim}: {named}."] if slowed else []


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


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Figures from one GPU to another, as in `P2pQuantity`; None if not measured."""

    src: str
    """Name in the topology, like `dst`."""
    dst: str
    copy_engine_gb_per_s: Figure | None
    kernel_write_gb_per_s: Figure | None
    kernel_read_gb_per_s: Figure | None
    write_latency_us: Figure | None
    flag_latency_us: Figure | None
    """One-way latency, equal in both directions."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """Figures of one GPU with host memory, and with all other GPUs at once."""

    gpu: str
    to_host_gb_per_s: Figure | None
    from_host_gb_per_s: Figure | None
    fan_out_gb_per_s: Figure | None
    fan_in_gb_per_s: Figure | None


@dataclass(frozen=True, slots=True)
class P2pFigures:
    """Figures of one host in the order of its GPUs; pairs and GPUs without any are left out."""

    pairs: tuple[PairFigures, ...]
    gpus: tuple[GpuFigures, ...]

    def on_node(self, node: int) -> P2pFigures:
        """Return the figures with the names of a node of a cluster."""

        def renamed(name: str) -> str:
            return f"n{node}/{name.partition('/')[2]}"

        return P2pFigures(
            tuple(
                replace(pair, src=renamed(pair.src), dst=renamed(pair.dst)) for pair in self.pairs
            ),
            tuple(replace(gpu, gpu=renamed(gpu.gpu)) for gpu in self.gpus),
        )


def p2p_figures(topology: Topology, report: P2pReport) -> P2pFigures:
    """Return the report's figures for the GPUs of the measured host."""
    indices = {name: index for index, name in match_gpus(topology, report)[0].items()}
    names = [gpu.name for gpu in topology.gpus if gpu.name in indices]
    pairs = [
        _pair(report, (src, indices[src]), (dst, indices[dst]))
        for src in names
        for dst in names
        if src != dst
    ]
    gpus = [_gpu(report, name, indices[name]) for name in names]
    return P2pFigures(tuple(filter(None, pairs)), tuple(filter(None, gpus)))


def _pair(report: P2pReport, src: tuple[str, int], dst: tuple[str, int]) -> PairFigures | None:
    (src_name, a), (dst_name, b) = src, dst
    pair = PairFigures(
        src=src_name,
        dst=dst_name,
        copy_engine_gb_per_s=report.figure(P2pQuantity.COPY_ENGINE, a, b),
        kernel_write_gb_per_s=report.figure(P2pQuantity.KERNEL_WRITE, a, b),
        kernel_read_gb_per_s=report.figure(P2pQuantity.KERNEL_READ, a, b),
        write_latency_us=report.figure(P2pQuantity.WRITE_LATENCY, a, b),
        flag_latency_us=report.flag_latency_us(a, b),
    )
    return None if pair == PairFigures(src_name, dst_name, None, None, None, None, None) else pair


def _gpu(report: P2pReport, name: str, index: int) -> GpuFigures | None:
    gpu = GpuFigures(
        gpu=name,
        to_host_gb_per_s=report.figure(P2pQuantity.GPU_TO_HOST, index),
        from_host_gb_per_s=report.figure(P2pQuantity.HOST_TO_GPU, index),
        fan_out_gb_per_s=report.figure(P2pQuantity.FAN_OUT, index),
        fan_in_gb_per_s=report.figure(P2pQuantity.FAN_IN, index),
    )
    return None if gpu == GpuFigures(name, None, None, None, None) else gpu
