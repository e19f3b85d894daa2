"""Model of the executor: its cost per launch, step and byte.

The constants were read off measurements of NCCL's own kernels on four H200 before any executor ran
there; `tuccl calibrate` leaves them alone. A hop over the network costs what a hop of NCCL's
costs, whose proxies carry it.

`kernel_us` is the time of a kernel for one pattern, which sends to all peers at once. On four H200,
where a kernel that follows itself is launched in 1.9 us, the times of the best parameters are 5 %
off those in docs/lab/executor.md (median of 26 keys from 1 KB to 64 MB; 19 % at most).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lookup_tables.table import NcclProtocol
from sketches.sketch import EdgeKind, Sketch
from synthesizer.simulate.simulator import ExecutionModel
from tuccl.models.figures import MachineFigures
from tuccl.models.model_constants import ModelConstants

SLOTS = 8
"""Slots of a connection's buffer."""
_LAUNCH_US = 2.5
_STEP_US = {NcclProtocol.LL: 0.45, NcclProtocol.LL128: 0.60, NcclProtocol.SIMPLE: 1.10}
_WIRE_EFFICIENCY = {NcclProtocol.LL: 0.40, NcclProtocol.LL128: 0.73, NcclProtocol.SIMPLE: 0.77}


@dataclass(frozen=True, slots=True)
class KernelParameters:
    """Parameters of a kernel for one pattern."""

    protocol: NcclProtocol
    nchannels: int
    """Thread blocks."""
    nthreads: int


def kernel_us(
    parameters: KernelParameters,
    *,
    sent_bytes: float,
    steps: int,
    launches: int,
    wires_gb_per_s: float,
    launch_us: float,
) -> float:
    """Time of a kernel for one pattern.

    Args:
        parameters: Parameters of the kernel.
        sent_bytes: Bytes that a rank sends to all its peers together.
        steps: Steps in sequence.
        launches: Launches into which it is cut.
        wires_gb_per_s: Bandwidth of a GPU's links to all peers.
        launch_us: Time of a launch.
    """
    protocol = parameters.protocol
    copy = parameters.nchannels * threadblock_gb_per_s(protocol, parameters.nthreads)
    gb_per_s = min(copy, wires_gb_per_s * _WIRE_EFFICIENCY[protocol])
    return launches * (launch_us + steps * _STEP_US[protocol]) + sent_bytes / (1e3 * gb_per_s)


def stage_us(
    parameters: KernelParameters,
    *,
    handovers: float,
    chunk_bytes: float,
    wire_us: float,
    launches: int,
    launch_us: float,
) -> float:
    """Time of a stage's kernel, whose threads take the steps of their rank in order.

    Args:
        parameters: Parameters of the kernel.
        handovers: Chunks that are sent and received one after the other.
        chunk_bytes: Bytes of a chunk.
        wire_us: Time of all chunks on the links, at the nominal rate.
        launches: Launches into which it is cut.
        launch_us: Time of a launch.
    """
    protocol = parameters.protocol
    copy = parameters.nchannels * threadblock_gb_per_s(protocol, parameters.nthreads)
    data_us = max(handovers * chunk_bytes / (1e3 * copy), wire_us / _WIRE_EFFICIENCY[protocol])
    return launches * (launch_us + handovers * _STEP_US[protocol]) + data_us


def execution_model(
    protocol: NcclProtocol, nthreads: int, instances: int, slot_bytes: int
) -> ExecutionModel:
    """The executor with these parameters."""
    return ExecutionModel(
        launch_us=_LAUNCH_US,
        step_overhead_us=_STEP_US[protocol],
        threadblock_gb_per_s=threadblock_gb_per_s(protocol, nthreads),
        wire_efficiency=_WIRE_EFFICIENCY[protocol],
        slot_bytes=slot_bytes,
        instances=instances,
    )


def with_network_hops(sketch: Sketch, machine: MachineFigures, constants: ModelConstants) -> Sketch:
    """The sketch whose edges over the network have the latency of NCCL's hops."""
    waits = constants.network_latencies - 1.0
    added_us = constants.network_hop_us + waits * machine.network_latency_us
    edges = tuple(
        replace(edge, alpha_us=edge.alpha_us + max(0.0, added_us))
        if edge.kind is EdgeKind.NETWORK
        else edge
        for edge in sketch.edges
    )
    return replace(sketch, edges=edges)


def threadblock_gb_per_s(protocol: NcclProtocol, nthreads: int) -> float:
    """Payload bandwidth of one thread block."""
    if protocol is NcclProtocol.LL:
        return 0.0185 * nthreads
    if protocol is NcclProtocol.LL128:
        return 18.0 * min(1.0, nthreads / 320.0)
    return 28.0 * nthreads / (nthreads + 128.0)
