"""How long a built-in algorithm takes: a model of what the kernel does, not of what NCCL expects.

Per call: a launch, then the hops of the algorithm one after another, each with what the threads
copy in one pass, then the rest of the data. Copying runs at the lesser of two rates: what a
channel's threads move, and what the wire carries under this protocol, shared by all channels; over
the network a channel uses one NIC, so few channels leave NICs idle. Pieces are an eighth of the
protocol's buffer; each costs a synchronisation, so small buffers waste time.

The constants were read off our own measurements on four H200 (NVLink 4, NCCL 2.28.9) and scale with
the link.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation
from tuccl.backends.figures import Fabric, MachineFigures
from tuccl.backends.nccl_choice import BYTES_PER_THREAD, Choice, ring_steps


@dataclass(frozen=True, slots=True)
class ProtocolCosts:
    """What one protocol costs."""

    launch_us: float
    """Kernel launch, argument fetch and the last flag."""
    nvlink_hop_us: float
    pci_hop_us: float
    network_hop_us: float
    """Without the latency of the network itself."""
    wire_efficiency: float
    """Share of the link's nominal bandwidth that payload reaches."""
    buffer_bytes: int
    """Payload that NCCL's own buffer holds."""


COSTS = {
    NcclProtocol.LL: ProtocolCosts(4.7, 0.77, 1.2, 3.5, 0.40, 256 << 10),
    NcclProtocol.LL128: ProtocolCosts(6.5, 2.33, 3.1, 5.0, 0.73, 4_608_000),
    NcclProtocol.SIMPLE: ProtocolCosts(13.6, 2.40, 3.6, 11.0, 0.77, 4 << 20),
}
_PIECES_PER_BUFFER = 8
_PIECE_SYNC_US = 0.8
_TREE_PENALTY = 0.75
"""Share of a ring's wire rate that a tree reaches: every rank both reduces and forwards."""


def channel_rate_gb_per_s(protocol: NcclProtocol, nthreads: int) -> float:
    """What one channel's threads move, payload."""
    if protocol is NcclProtocol.LL:
        return 0.0185 * nthreads
    if protocol is NcclProtocol.LL128:
        return 18.0 * min(1.0, nthreads / 320.0)
    return 28.0 * nthreads / (nthreads + 128.0)


def builtin_time_us(
    operation: Operation,
    size_bytes: int,
    choice: Choice,
    machine: MachineFigures,
    buffer_bytes: int = 0,
) -> float:
    """Time of one call in a sequence of back-to-back calls.

    Args:
        operation: The collective.
        size_bytes: As nccl-tests counts it.
        choice: Algorithm, protocol, channels and threads that run.
        machine: The machine.
        buffer_bytes: NCCL_BUFFSIZE and its kin, 0 for NCCL's own.
    """
    costs = COSTS[choice.protocol]
    hops, network_hops, traffic = _work(operation, size_bytes, choice.algorithm, machine)
    hop_us = costs.nvlink_hop_us if machine.fabric is Fabric.NVLINK else costs.pci_hop_us
    network_us = costs.network_hop_us + machine.network_latency_us
    latency_us = costs.launch_us + (hops - network_hops) * hop_us + network_hops * network_us
    rate = channel_rate_gb_per_s(choice.protocol, choice.nthreads)
    wire = _wire_gb_per_s(choice, machine)
    if choice.algorithm is NcclAlgorithm.TREE:
        rate, wire = rate * _TREE_PENALTY, wire * _TREE_PENALTY
    piece_bytes = (buffer_bytes or costs.buffer_bytes) / _PIECES_PER_BUFFER
    channel_bytes = traffic / choice.nchannels
    behind = max(0.0, channel_bytes - hops * choice.nthreads * BYTES_PER_THREAD[choice.protocol])
    syncs = max(0, math.ceil(channel_bytes / piece_bytes) - hops)
    channel_us = behind / (1e3 * rate) + syncs * _PIECE_SYNC_US
    return latency_us + max(channel_us, traffic / (1e3 * wire))


def _work(
    operation: Operation, size_bytes: int, algorithm: NcclAlgorithm, machine: MachineFigures
) -> tuple[int, int, float]:
    """Hops in sequence, those of them over the network, and bytes that one rank sends."""
    shape = machine.shape
    if algorithm is NcclAlgorithm.TREE:
        per_node = max(1, shape.ranks // shape.nodes)
        network_hops = 2 * math.ceil(math.log2(shape.nodes)) if shape.nodes > 1 else 0
        return 2 * (per_node - 1) + network_hops, network_hops, 2.0 * size_bytes
    steps = ring_steps(operation, shape.ranks)
    rounds = 2 if operation is Operation.ALL_REDUCE else 1
    rooted = operation in {Operation.BROADCAST, Operation.REDUCE}
    traffic = float(size_bytes) if rooted else steps * size_bytes / shape.ranks
    return steps, rounds * (shape.nodes - 1), traffic


def _wire_gb_per_s(choice: Choice, machine: MachineFigures) -> float:
    """Payload rate of the narrowest wire that a rank's traffic crosses."""
    costs = COSTS[choice.protocol]
    wire = machine.intra_gb_per_s
    if machine.shape.nodes > 1:
        used = min(choice.nchannels, machine.nics_per_node)
        wire = min(wire, used * machine.nic_gb_per_s / 0.9)
    return wire * costs.wire_efficiency
