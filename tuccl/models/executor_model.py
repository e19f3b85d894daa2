"""Model of the executor: its cost per launch, step and byte.

The constants were read off measurements of NCCL's own kernels on four H200 before any executor ran
there; `tuccl calibrate` leaves them alone. A hop over the network costs what a hop of NCCL's
costs, whose proxies carry it.
"""

from __future__ import annotations

from dataclasses import replace

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
