"""What stock NCCL chooses: its own fixed cost model, for ring and tree.

Constants and formulas are NCCL 2.30's (`src/graph/tuning.cc`): a latency and a bandwidth per
algorithm and protocol, a table of corrections for tree; the least `latency + bytes / bandwidth`
wins. Channels and threads shrink with the message (`src/enqueue.cc`). The model says what NCCL
would pick, not how long it takes: that is `tuccl.backends.nccl_model`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation
from tuccl.backends.figures import Fabric, Generation, MachineFigures

_PROTOCOLS = tuple(NcclProtocol)
_RING, _TREE = NcclAlgorithm.RING, NcclAlgorithm.TREE
_BASE_US = {_TREE: (6.8, 14.0, 8.4), _RING: (6.6, 14.0, 8.4)}
_HOP_US = {
    Fabric.NVLINK: {_TREE: (0.6, 1.25, 4.0), _RING: (0.6, 1.9, 3.4)},
    Fabric.PCI: {_TREE: (1.0, 1.9, 4.0), _RING: (1.0, 2.5, 5.7)},
}
_NET_US = {_TREE: (5.0, 8.5, 14.0), _RING: (2.7, 4.0, 14.0)}
_LL_MAX_GB_PER_S = {
    Generation.VOLTA: (39.0, 39.0, 20.4),
    Generation.AMPERE: (87.7, 22.5, 19.0),
    Generation.HOPPER: (141.0, 45.0, 35.0),
    Generation.BLACKWELL: (282.0, 90.0, 70.0),
}
"""By one, two and more nodes; several nodes use the first row, whatever the GPU (Intel hosts)."""
_RING_LL128_GB_PER_S = {
    Generation.VOLTA: 20.0,
    Generation.AMPERE: 20.0,
    Generation.HOPPER: 36.7,
    Generation.BLACKWELL: 40.0,
}
_TREE_LL128_GB_PER_S = {
    Generation.VOLTA: (20.0, 20.0, 20.0),
    Generation.AMPERE: (20.0, 20.0, 20.0),
    Generation.HOPPER: (36.7, 36.7, 29.0),
    Generation.BLACKWELL: (55.6, 31.67, 20.0),
}
_TREE_GB_PER_S = {
    Generation.VOLTA: (26.5, 18.5, 10.0),
    Generation.AMPERE: (24.0, 23.6, 17.8),
    Generation.HOPPER: (38.7, 41.4, 36.0),
    Generation.BLACKWELL: (70.0, 42.8, 24.0),
}
_TREE_CORRECTION = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    + (1.0,) * 4,
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9)
    + (1.0,) * 2,
    (0.9,) * 7 + (0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""By protocol and log2(bytes / 64)."""
_DEFAULT_THREADS = {NcclProtocol.LL: 512, NcclProtocol.LL128: 640, NcclProtocol.SIMPLE: 512}
BYTES_PER_THREAD = {NcclProtocol.LL: 8, NcclProtocol.LL128: 8, NcclProtocol.SIMPLE: 64}
"""What a thread moves in one pass: below that, fewer channels and threads are used."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A built-in algorithm with everything that NCCL decides about it."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    nchannels: int
    nthreads: int


def stock_choice(operation: Operation, size_bytes: int, machine: MachineFigures) -> Choice:
    """What NCCL runs when nothing is set."""
    algorithms = (_TREE, _RING) if operation is Operation.ALL_REDUCE else (_RING,)
    _, algorithm, index = min(
        (_estimate_us(operation, size_bytes, algorithm, index, machine), algorithm, index)
        for algorithm in algorithms
        for index in range(len(_PROTOCOLS))
    )
    return shrink(size_bytes, algorithm, _PROTOCOLS[index], machine)


def shrink(
    size_bytes: int,
    algorithm: NcclAlgorithm,
    protocol: NcclProtocol,
    machine: MachineFigures,
    max_channels: int = 0,
    max_threads: int = 0,
) -> Choice:
    """Channels and threads that a message of this size gets (`src/enqueue.cc`).

    Args:
        size_bytes: As NCCL counts it.
        algorithm: Ring or tree.
        protocol: The protocol.
        machine: Its channel count is the upper limit.
        max_channels: Asked for by a tuner, 0 for none.
        max_threads: From NCCL_NTHREADS or NCCL_LL128_NTHREADS, 0 for none.
    """
    channels = min(max_channels or machine.channels, max(machine.channels, 1))
    threads = max_threads or _DEFAULT_THREADS[protocol]
    per_thread = BYTES_PER_THREAD[protocol]
    if protocol is NcclProtocol.LL and algorithm is _RING:
        per_thread *= machine.shape.ranks
    while channels > 1 and size_bytes < channels * threads * per_thread:
        channels -= 1
    while threads % 128 == 0 and size_bytes < channels * threads * per_thread:
        threads //= 2
    return Choice(algorithm, protocol, channels, threads)


def _estimate_us(
    operation: Operation,
    size_bytes: int,
    algorithm: NcclAlgorithm,
    index: int,
    machine: MachineFigures,
) -> float:
    bandwidth = _bandwidth_gb_per_s(operation, algorithm, index, machine)
    latency = _latency_us(operation, algorithm, index, machine)
    step = int(math.log2(max(size_bytes / 64, 1.0)))
    if algorithm is _TREE and step < len(_TREE_CORRECTION[index]):
        bandwidth *= _TREE_CORRECTION[index][step]
    per_cell = size_bytes / (machine.channels * machine.shape.ranks)
    is_ring_simple = algorithm is _RING and index == 2
    if is_ring_simple and operation is Operation.ALL_REDUCE and machine.shape.nodes > 1:
        latency *= 1.4 if per_cell >= 64 else 1.0
    return latency + size_bytes / (1000.0 * bandwidth)


def _bandwidth_gb_per_s(
    operation: Operation, algorithm: NcclAlgorithm, index: int, machine: MachineFigures
) -> float:
    """Algorithm bandwidth that NCCL expects."""
    shape, channels = machine.shape, machine.channels
    scale = min(shape.nodes, 3) - 1
    total = channels * machine.channel_gb_per_s
    llmax = _LL_MAX_GB_PER_S[machine.generation if shape.nodes == 1 else Generation.VOLTA][scale]
    if algorithm is _TREE:
        tree = channels * _TREE_GB_PER_S[machine.generation][scale]
        busy = min(total * 0.92, tree)
        ratio = 7.0 / 9.0 if shape.nodes == 1 else 120.0 / 128.0
        by_protocol = (
            min(busy / 3.8, llmax),
            min(busy * ratio, channels * _TREE_LL128_GB_PER_S[machine.generation][scale]),
            busy,
        )
        return by_protocol[index] / 2.0
    ring128 = channels * _RING_LL128_GB_PER_S[machine.generation]
    by_protocol = (min(llmax, total / 2.0), min(total * 0.92, ring128), total)
    return by_protocol[index] * shape.ranks / ring_steps(operation, shape.ranks)


def _latency_us(
    operation: Operation, algorithm: NcclAlgorithm, index: int, machine: MachineFigures
) -> float:
    shape = machine.shape
    intra = _HOP_US[machine.fabric][algorithm][index]
    inter = _NET_US[algorithm][index] + machine.network_latency_us * (2.0 if index == 2 else 1.0)
    base = _BASE_US[algorithm][index]
    if algorithm is _TREE:
        per_node = max(1, shape.ranks // shape.nodes)
        return base + 2.0 * ((per_node - 1) * intra + math.log2(shape.nodes) * inter)
    steps = ring_steps(operation, shape.ranks)
    if operation in {Operation.BROADCAST, Operation.REDUCE}:
        return base + steps * (intra if shape.nodes == 1 else inter)
    rounds = 2 if operation is Operation.ALL_REDUCE else 1
    network_steps = rounds * (shape.nodes - 1)
    overhead = (3.0 if index == 2 else 1.0) if shape.nodes > 1 else 0.0
    return base + (steps - network_steps) * max(intra, overhead) + network_steps * inter


def ring_steps(operation: Operation, ranks: int) -> int:
    """Steps of a ring: 2(n - 1) for all_reduce, n - 1 for its halves, n for rooted operations."""
    if operation is Operation.ALL_REDUCE:
        return 2 * (ranks - 1)
    if operation in {Operation.BROADCAST, Operation.REDUCE}:
        return ranks
    return ranks - 1
