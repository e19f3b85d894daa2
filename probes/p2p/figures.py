"""`P2pFigures`: what the benchmark measured, under the names of a topology's GPUs.

A topology keeps one bandwidth and one latency of a link; here is the rest: what kernels reach, what
a write costs, copies with host memory, one GPU with all others at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from probes.p2p.named import places_by_address
from probes.p2p.report import Figure, P2pReport, What
from probes.topology.graph import Topology


@dataclass(frozen=True, slots=True)
class PairFigures:
    """From one GPU to another; None where there is no figure. `What` says what each is of."""

    src: str
    """Name in the topology, as `dst`."""
    dst: str
    copy_engine_gb_per_s: Figure | None
    kernel_write_gb_per_s: Figure | None
    kernel_read_gb_per_s: Figure | None
    write_latency_us: Figure | None
    flag_latency_us: Figure | None
    """One way; the same in both directions."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU with host memory, and with all other GPUs at once."""

    gpu: str
    to_host_gb_per_s: Figure | None
    from_host_gb_per_s: Figure | None
    fan_out_gb_per_s: Figure | None
    fan_in_gb_per_s: Figure | None


@dataclass(frozen=True, slots=True)
class P2pFigures:
    """Of one host, in the order of its GPUs; whatever has no figure at all is left out."""

    pairs: tuple[PairFigures, ...]
    gpus: tuple[GpuFigures, ...]

    def on_node(self, node: int) -> P2pFigures:
        """The figures of a host that becomes another one of a cluster."""

        def moved(name: str) -> str:
            return f"n{node}/{name.partition('/')[2]}"

        return P2pFigures(
            tuple(replace(pair, src=moved(pair.src), dst=moved(pair.dst)) for pair in self.pairs),
            tuple(replace(gpu, gpu=moved(gpu.gpu)) for gpu in self.gpus),
        )


def p2p_figures(topology: Topology, report: P2pReport) -> P2pFigures:
    """The report's figures for the GPUs of the host that was measured."""
    places = {name: place for place, name in places_by_address(topology, report)[0].items()}
    names = [gpu.name for gpu in topology.gpus if gpu.name in places]
    pairs = [
        _pair(report, (one, places[one]), (other, places[other]))
        for one in names
        for other in names
        if one != other
    ]
    gpus = [_gpu(report, name, places[name]) for name in names]
    return P2pFigures(tuple(filter(None, pairs)), tuple(filter(None, gpus)))


def _pair(report: P2pReport, src: tuple[str, int], dst: tuple[str, int]) -> PairFigures | None:
    (one, a), (other, b) = src, dst
    pair = PairFigures(
        src=one,
        dst=other,
        copy_engine_gb_per_s=report.figure(What.COPY_ENGINE, a, b),
        kernel_write_gb_per_s=report.figure(What.KERNEL_WRITE, a, b),
        kernel_read_gb_per_s=report.figure(What.KERNEL_READ, a, b),
        write_latency_us=report.figure(What.WRITE_LATENCY, a, b),
        flag_latency_us=report.flag_latency_us(a, b),
    )
    return None if pair == PairFigures(one, other, None, None, None, None, None) else pair


def _gpu(report: P2pReport, name: str, place: int) -> GpuFigures | None:
    gpu = GpuFigures(
        gpu=name,
        to_host_gb_per_s=report.figure(What.GPU_TO_HOST, place),
        from_host_gb_per_s=report.figure(What.HOST_TO_GPU, place),
        fan_out_gb_per_s=report.figure(What.FAN_OUT, place),
        fan_in_gb_per_s=report.figure(What.FAN_IN, place),
    )
    return None if gpu == GpuFigures(name, None, None, None, None) else gpu
