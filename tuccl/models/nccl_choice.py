"""NCCL's own choice and its sizing: the fixed cost model for ring and tree.

Constants and formulas are NCCL 2.30's (`src/graph/tuning.cc`): a latency and a bandwidth per
algorithm and protocol, a table of corrections for tree; the least `latency + bytes / bandwidth`
wins. Channels and threads shrink with the message (`src/enqueue.cc`), and messages are dealt to
channels in cells of at least 16 KiB of traffic. This module says what NCCL picks;
`tuccl.models.nccl_model` says how long it takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.errors import ConfigurationFailedError
from tuccl.models.figures import Fabric, Generation, MachineFigures
from tuccl.search.trials.config import Config, ProcessProfile

_PROTOCOLS = tuple(NcclProtocol)
_RING, _TREE = NcclAlgorithm.RING, NcclAlgorithm.TREE
MODELLED = (_TREE, _RING, NcclAlgorithm.PAT)
"""Algorithms that the model knows."""
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
_THREADS = {NcclProtocol.LL: 512, NcclProtocol.LL128: 640, NcclProtocol.SIMPLE: 512}
_MOST_THREADS = 640
_LEAST_THREADS = 96
_SYNC_WARP_THREADS = 32
BYTES_PER_THREAD = {NcclProtocol.LL: 8, NcclProtocol.LL128: 8, NcclProtocol.SIMPLE: 64}
"""Bytes that a thread moves in one pass; smaller messages use fewer channels and threads."""
_PAYLOAD_BYTES = {NcclProtocol.LL: 512 << 9, NcclProtocol.LL128: 4_915_200 * 15 // 16}
"""Payload of the protocol's own buffer, without flags; NCCL_BUFFSIZE is for Simple alone."""
_SIMPLE_BUFFER_BYTES = 4 << 20
_CELL_TRAFFIC_BYTES = 16 << 10
"""Least traffic of a channel; measured so on NCCL 2.28.9."""
_CELL_GRAIN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Choice:
    """A built-in algorithm as NCCL runs it."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    nchannels: int
    nthreads: int
    """Threads of a channel's thread block."""
    buffer_bytes: int
    """Payload bytes of the protocol's buffer."""


def nccl_choice(
    operation: Collective, size_bytes: int, config: Config, machine: MachineFigures
) -> Choice:
    """Return what NCCL runs under a configuration of a built-in algorithm.

    A tuner's algorithm that the communicator does not have (PAT where nodes have several ranks) is
    left out by NCCL, which then chooses itself, the tuner's channels kept.

    Raises:
        ConfigurationFailedError: for algorithms that this model does not know.
    """
    pair = None if config.is_default else (config.builtin, config.nccl_protocol)
    if pair is not None and pair[0] not in MODELLED:
        raise ConfigurationFailedError(f"{pair[0].value} is not in the model of NCCL")
    if pair is None or not _exists(operation, pair[0], machine):
        pair = _cheapest(operation, size_bytes, machine)
    profile = config.profile
    return _sized(operation, size_bytes, pair, machine, profile, config.nchannels)


def _exists(operation: Collective, algorithm: NcclAlgorithm, machine: MachineFigures) -> bool:
    if algorithm is _TREE:
        return operation is Collective.ALL_REDUCE
    if algorithm is NcclAlgorithm.PAT:
        return operation.divides and operation.asks_tuner and machine.shape.ranks_per_node == 1
    return True


def _cheapest(
    operation: Collective, size_bytes: int, machine: MachineFigures
) -> tuple[NcclAlgorithm, NcclProtocol]:
    """Algorithm and protocol of the least time by NCCL's own cost model."""
    algorithms = (_TREE, _RING) if operation is Collective.ALL_REDUCE else (_RING,)
    _, algorithm, index = min(
        (_estimate_us(operation, size_bytes, algorithm, index, machine), algorithm, index)
        for algorithm in algorithms
        for index in range(len(_PROTOCOLS))
    )
    return algorithm, _PROTOCOLS[index]


def _sized(
    operation: Collective,
    size_bytes: int,
    pair: tuple[NcclAlgorithm, NcclProtocol],
    machine: MachineFigures,
    profile: ProcessProfile,
    tuner_channels: int,
) -> Choice:
    """The choice with channels and threads for a message of this size (`src/enqueue.cc`).

    NCCL lowers the channels until each has as much as its threads move in one pass, then halves the
    threads. A tuner's channel count replaces the former, not the latter.
    """
    algorithm, protocol = pair
    opened = max(machine.channels, profile.min_nchannels, 1)
    # NCCL_NTHREADS does not reach LL128: it has a variable of its own.
    own = _THREADS[protocol]
    threads = profile.nthreads or own if protocol is not NcclProtocol.LL128 else own
    per_thread = BYTES_PER_THREAD[protocol]
    if protocol is NcclProtocol.LL and algorithm is _RING:
        per_thread *= machine.shape.ranks
    channels = max(1, min(opened, size_bytes // (threads * per_thread)))
    while threads % 128 == 0 and size_bytes < channels * threads * per_thread:
        threads //= 2
    if tuner_channels:
        channels = min(tuner_channels, opened)
    if algorithm is not _RING:
        threads = _MOST_THREADS
    elif protocol is NcclProtocol.SIMPLE:
        threads += _SYNC_WARP_THREADS
    simple = profile.buffer_bytes or _SIMPLE_BUFFER_BYTES
    return Choice(
        algorithm,
        protocol,
        _dealt_channels(operation, size_bytes, protocol, machine.shape.ranks, channels),
        max(threads, _LEAST_THREADS),
        _PAYLOAD_BYTES.get(protocol, simple),
    )


def _dealt_channels(
    operation: Collective, size_bytes: int, protocol: NcclProtocol, ranks: int, channels: int
) -> int:
    """Channels that get data when whole cells are dealt to at most `channels`."""
    parts = operation.parts(ranks) if operation.asks_tuner else 1
    traffic, rank_bytes = parts * operation.passes, size_bytes // parts
    traffic *= 4 if protocol is NcclProtocol.LL else 1
    grain = _CELL_GRAIN_BYTES
    cell_bytes = math.ceil(math.ceil(_CELL_TRAFFIC_BYTES / traffic) / grain) * grain
    cells = max(1, math.ceil(rank_bytes / cell_bytes))
    return math.ceil(cells / math.ceil(cells / channels))


def nccl_estimate_us(
    operation: Collective,
    size_bytes: int,
    pair: tuple[NcclAlgorithm, NcclProtocol],
    machine: MachineFigures,
) -> float | None:
    """NCCL's own estimate, as it hands it to a tuner; None where this model has none (PAT)."""
    algorithm, protocol = pair
    if algorithm not in _BASE_US:
        return None
    return _estimate_us(operation, size_bytes, algorithm, _PROTOCOLS.index(protocol), machine)


def _estimate_us(
    operation: Collective,
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
    per_cell = size_bytes / (machine.graph_channels * machine.shape.ranks)
    is_ring_simple = algorithm is _RING and index == 2
    if is_ring_simple and operation is Collective.ALL_REDUCE and machine.shape.nodes > 1:
        latency *= 1.4 if per_cell >= 64 else 1.0
    return latency + size_bytes / (1000.0 * bandwidth)


def _bandwidth_gb_per_s(
    operation: Collective, algorithm: NcclAlgorithm, index: int, machine: MachineFigures
) -> float:
    """Algorithm bandwidth that NCCL expects."""
    shape, channels = machine.shape, machine.graph_channels
    scale = min(shape.nodes, 3) - 1
    total = machine.channels * machine.channel_gb_per_s
    llmax = _LL_MAX_GB_PER_S[machine.generation if shape.nodes == 1 else Generation.VOLTA][scale]
    if algorithm is _TREE:
        tree = channels * _TREE_GB_PER_S[machine.generation][scale]
        # The search gives trees of two nodes up to twice the network's speed inside the node.
        reach = min(2.0 * total, max(total, machine.usable_gb_per_s))
        busy = min((reach if shape.nodes == 2 else total) * 0.92, tree)
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
    operation: Collective, algorithm: NcclAlgorithm, index: int, machine: MachineFigures
) -> float:
    shape = machine.shape
    intra = _HOP_US[machine.fabric][algorithm][index]
    inter = _NET_US[algorithm][index] + machine.network_latency_us * (2.0 if index == 2 else 1.0)
    base = _BASE_US[algorithm][index]
    if algorithm is _TREE:
        per_node = max(1, shape.ranks // shape.nodes)
        return base + 2.0 * ((per_node - 1) * intra + math.log2(shape.nodes) * inter)
    steps = ring_steps(operation, shape.ranks)
    if operation.has_root:
        return base + steps * (intra if shape.nodes == 1 else inter)
    network_steps = operation.passes * (shape.nodes - 1)
    overhead = (3.0 if index == 2 else 1.0) if shape.nodes > 1 else 0.0
    return base + (steps - network_steps) * max(intra, overhead) + network_steps * inter


def ring_steps(operation: Collective, ranks: int) -> int:
    """Steps of a ring: 2(n - 1) for all_reduce, n - 1 for its halves, n for rooted operations.

    At least one, so that a single rank needs no case of its own.
    """
    if operation.has_root:
        return ranks
    return max(1, operation.passes * (ranks - 1))
