"""`P2pFigures`: the benchmark's figures with the names of a topology's GPUs.

A topology has one bandwidth and one latency per link; these are the other figures: bandwidth of
kernels, latency of a write, copies with host memory, one GPU with all others at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from probes.p2p.named import match_gpus
from probes.p2p.report import Figure, P2pQuantity, P2pReport
from probes.topology.graph import Topology


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Figures from one GPU to another, as in `P2pQuantity`; None where not measured."""

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
