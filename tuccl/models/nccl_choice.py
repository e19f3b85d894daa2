"""NCCL's own choice and its sizing: the fixed cost model for all of its algorithms.

Constants and formulas are NCCL 2.30's (`src/graph/tuning.cc`): a latency and a bandwidth per
algorithm and protocol, a table of corrections for trees; the least `latency + bytes / bandwidth`
wins. NVLS needs one node, its trees several, both GPUs with multicast. CollNet needs several nodes
whose network sums, and a variable that lets NCCL use it. Channels and threads shrink with the
message (`src/enqueue.cc`), and messages are dealt to channels in cells of at least 16 KiB of
traffic. This module says what NCCL picks; `tuccl.models.nccl_model` says how long it takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.errors import ConfigurationFailedError
from tuccl.models.figures import MOST_HEADS, Fabric, Generation, MachineFigures
from tuccl.search.trials.config import Config, ProcessProfile, Settings
from tuccl.search.trials.cost_table import Pair
from tuccl.search.trials.presets import allowed_on_most

_PROTOCOLS = tuple(NcclProtocol)
_SIMPLE = _PROTOCOLS.index(NcclProtocol.SIMPLE)
_RING, _TREE, _PAT = NcclAlgorithm.RING, NcclAlgorithm.TREE, NcclAlgorithm.PAT
_NVLS, _NVLS_TREE = NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE
_MULTICAST = (_NVLS, _NVLS_TREE)
_DIRECT, _CHAIN = NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.COLLNET_CHAIN
_SUMMING = (_DIRECT, _CHAIN)
MODELLED = (_TREE, _RING, *_SUMMING, *_MULTICAST, _PAT)
"""Algorithms that the model knows."""
NVLS_OFF = (("NCCL_NVLS_ENABLE", "0"),)
COLLNET_ON = (("NCCL_COLLNET_ENABLE", "1"),)
MODELLED_SETTINGS = frozenset(NVLS_OFF + COLLNET_ON)
"""The variables beyond the axes of profiles that the model knows, each with the value."""
_BASE_US = {_TREE: (6.8, 14.0, 8.4), _RING: (6.6, 14.0, 8.4)}
_PAT_BASE_US = 8.0
_PAT_RANK_US = 2.8
_PAT_PIPELINED_HOPS = 3.5
_PAT_SHARE = 0.75
_MULTICAST_US = 25.0
_NVLS_TREE_NET_US = 20.9
_SUMMING_HOP_US = {_DIRECT: 3.7, _CHAIN: 2.8}
"""Inside a node, over NVLink and PCIe alike."""
_SUMMING_NET_US = {_DIRECT: 31.0, _CHAIN: 30.0}
_DIRECT_PEER_US = 0.4
_DIRECT_HALF_SHARE = 0.9
_DIRECT_SM90_SHARE = 0.85
_SUMMING_THRESHOLD_BYTES = 512
"""Bytes of a thread below which CollNet uses fewer channels."""
_FEWEST_SWITCHED_CHANNELS = 16
_NVLS_EFFICIENCY = {Generation.HOPPER: 0.85, Generation.BLACKWELL: 0.74}
_NVLS_TREE_GB_PER_S = {Generation.HOPPER: (57.7, 45.5), Generation.BLACKWELL: (96.0, 80.0)}
"""Most of a head, by two and more nodes."""
_NVLS_CHANNELS = {Generation.HOPPER: (16, 16), Generation.BLACKWELL: (24, 32)}
"""By one node and several (`src/transport/nvls.cc`)."""
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
_MOST_CHANNELS = 64
_SYNC_WARP_THREADS = 32
BYTES_PER_THREAD = {NcclProtocol.LL: 8, NcclProtocol.LL128: 8, NcclProtocol.SIMPLE: 64}
"""Bytes that a thread moves in one pass; smaller messages use fewer channels and threads."""
_PAYLOAD_BYTES = {NcclProtocol.LL: 512 << 9, NcclProtocol.LL128: 4_915_200 * 15 // 16}
"""Payload of the protocol's own buffer, without flags; NCCL_BUFFSIZE is for Simple alone."""
_OWN_BUFFER_BYTES = 4 << 20
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
        ConfigurationFailedError: for algorithms that this model does not know, and those of
            multicast or CollNet where there is none.
    """
    pair = None if config.is_default else (config.builtin, config.nccl_protocol)
    if pair is not None and pair[0] not in MODELLED:
        raise ConfigurationFailedError(f"{pair[0].value} is not in the model of NCCL")
    machine = under(config.profile.settings, machine)
    needs = (*_MULTICAST, *_SUMMING)
    if pair is not None and pair[0] in needs and not _exists(operation, pair[0], machine):
        raise ConfigurationFailedError(f"{pair[0].value} is not in the model of NCCL here")
    if pair is None or not _exists(operation, pair[0], machine):
        pair = _cheapest(operation, size_bytes, machine)
    profile = config.profile
    return _sized(operation, size_bytes, pair, machine, profile, config.nchannels)


def under(settings: Settings, machine: MachineFigures) -> MachineFigures:
    """Return what NCCL has of a machine under variables that the model knows."""
    if set(NVLS_OFF) & set(settings):
        machine = replace(machine, multicast=None)
    return replace(machine, uses_summing=True) if set(COLLNET_ON) & set(settings) else machine


def _exists(operation: Collective, algorithm: NcclAlgorithm, machine: MachineFigures) -> bool:
    if algorithm is _TREE:
        return operation is Collective.ALL_REDUCE
    if algorithm is _PAT:
        return operation.divides and operation.asks_tuner and machine.shape.ranks_per_node == 1
    if algorithm in _MULTICAST:
        return _multicasts(operation, algorithm, machine)
    return algorithm not in _SUMMING or _sums(operation, algorithm, machine)


def _multicasts(operation: Collective, algorithm: NcclAlgorithm, machine: MachineFigures) -> bool:
    """Whether NCCL has NVLS, or its trees, for an operation."""
    if machine.multicast is None:
        return False
    if algorithm is _NVLS_TREE:
        return machine.shape.nodes > 1 and operation is Collective.ALL_REDUCE
    halves = operation.divides and machine.shape.ranks <= MOST_HEADS
    return machine.shape.nodes == 1 and (operation is Collective.ALL_REDUCE or halves)


def _sums(operation: Collective, algorithm: NcclAlgorithm, machine: MachineFigures) -> bool:
    """Whether NCCL has CollNet for an operation; its halves want a NIC for each GPU."""
    found = machine.summing
    if found is None or not machine.uses_summing:
        return False
    if operation is Collective.ALL_REDUCE:
        return algorithm is _CHAIN or found.heads > 0
    halves = operation.divides and operation.asks_tuner
    return algorithm is _DIRECT and halves and found.heads >= machine.shape.ranks_per_node


def allowed_pairs(
    operation: Collective, machine: MachineFigures, *, ll128: bool = True
) -> tuple[Pair, ...]:
    """Return what NCCL's cost table allows, as far as the model knows it.

    Args:
        operation: The collective.
        machine: The machine.
        ll128: See `allowed_on_most`.
    """
    found = allowed_on_most(operation, machine.shape, ll128=ll128)
    if not operation.asks_tuner:
        return found
    more = (each for each in (*_SUMMING, *_MULTICAST) if _exists(operation, each, machine))
    return (*found, *((algorithm, NcclProtocol.SIMPLE) for algorithm in more))


def _cheapest(
    operation: Collective, size_bytes: int, machine: MachineFigures
) -> tuple[NcclAlgorithm, NcclProtocol]:
    """Algorithm and protocol of the least time by NCCL's own cost model."""
    _, algorithm, index = min(
        (_estimate_us(operation, size_bytes, algorithm, index, machine), algorithm, index)
        for algorithm in MODELLED
        if _exists(operation, algorithm, machine)
        for index in (range(len(_PROTOCOLS)) if algorithm in _BASE_US else (_SIMPLE,))
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
    if algorithm in _MULTICAST:
        return _sized_multicast(operation, size_bytes, algorithm, machine, profile, tuner_channels)
    if algorithm in _SUMMING:
        return _sized_summing(size_bytes, algorithm, machine, profile)
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
    simple = profile.buffer_bytes or _OWN_BUFFER_BYTES
    return Choice(
        algorithm,
        protocol,
        _dealt_channels(operation, size_bytes, protocol, machine.shape.ranks, channels),
        max(threads, _LEAST_THREADS),
        _PAYLOAD_BYTES.get(protocol, simple),
    )


def _sized_multicast(
    operation: Collective,
    size_bytes: int,
    algorithm: NcclAlgorithm,
    machine: MachineFigures,
    profile: ProcessProfile,
    tuner_channels: int,
) -> Choice:
    """The same for NVLS, which has channels of its own for every size, and its own chunks."""
    opened = max(multicast_channels(machine), profile.min_nchannels)
    channels = min(tuner_channels or opened, opened)
    protocol, ranks = NcclProtocol.SIMPLE, machine.shape.ranks
    dealt = _dealt_channels(operation, size_bytes, protocol, ranks, channels)
    return Choice(algorithm, protocol, dealt, _MOST_THREADS, _OWN_BUFFER_BYTES)


def _sized_summing(
    size_bytes: int, algorithm: NcclAlgorithm, machine: MachineFigures, profile: ProcessProfile
) -> Choice:
    """The same for CollNet, whose channels all work on a part of each call."""
    opened = max(machine.channels, profile.min_nchannels)
    if _chain_inside_gb_per_s(machine) > machine.channel_gb_per_s * machine.channels:
        opened = min(_MOST_CHANNELS, opened + opened // 2)
    channels, threads = opened, _MOST_THREADS
    if algorithm is _DIRECT:
        heads = 1 if machine.summing is None else max(1, machine.summing.heads)
        channels = _direct_channels(size_bytes, opened, heads)
    else:
        while channels > 1 and size_bytes < channels * threads * _SUMMING_THRESHOLD_BYTES:
            channels -= 1
        while threads % 128 == 0 and size_bytes < channels * threads * _SUMMING_THRESHOLD_BYTES:
            threads //= 2
    return Choice(algorithm, NcclProtocol.SIMPLE, channels, threads, _OWN_BUFFER_BYTES)


def _direct_channels(size_bytes: int, opened: int, heads: int) -> int:
    """Channels of CollNetDirect (`src/enqueue.cc`): below 16 the threshold halves with them."""
    channels, threshold = opened, _SUMMING_THRESHOLD_BYTES
    least, is_small = _FEWEST_SWITCHED_CHANNELS, True
    while least >= 1 and is_small:
        is_small = size_bytes < channels * _MOST_THREADS * heads * threshold
        while is_small and channels > least:
            if channels == least + least // 2:
                threshold //= 2
            channels -= 1
            is_small = size_bytes < channels * _MOST_THREADS * heads * threshold
        least //= 2
    return channels


def multicast_channels(machine: MachineFigures) -> int:
    """Return the channels that NCCL opens for NVLS by itself, which reach its peak."""
    return _NVLS_CHANNELS[machine.generation][machine.shape.nodes > 1]


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
    pair: Pair,
    machine: MachineFigures,
) -> float:
    """NCCL's own estimate of an allowed pair in us, as it hands it to a tuner."""
    algorithm, protocol = pair
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
    corrected = _TREE, *([_NVLS_TREE] if machine.generation is Generation.BLACKWELL else [])
    if algorithm in corrected and step < len(_TREE_CORRECTION[index]):
        bandwidth *= _TREE_CORRECTION[index][step]
    per_cell = size_bytes / (machine.graph_channels * machine.shape.ranks)
    is_ring_simple = algorithm is _RING and index == _SIMPLE
    if is_ring_simple and operation is Collective.ALL_REDUCE and machine.shape.nodes > 1:
        latency *= 1.4 if per_cell >= 64 else 1.0
    return latency + size_bytes / (1000.0 * bandwidth)


def _bandwidth_gb_per_s(
    operation: Collective, algorithm: NcclAlgorithm, index: int, machine: MachineFigures
) -> float:
    """Algorithm bandwidth that NCCL expects."""
    if algorithm in _MULTICAST:
        return _multicast_gb_per_s(operation, machine)
    if algorithm is _CHAIN:
        return _chain_inside_gb_per_s(machine) / 2.0
    if algorithm is _DIRECT:
        return _direct_gb_per_s(operation, machine)
    shape, channels = machine.shape, machine.graph_channels
    scale = min(shape.nodes, 3) - 1
    total = machine.channels * machine.channel_gb_per_s
    llmax = _LL_MAX_GB_PER_S[machine.generation if shape.nodes == 1 else Generation.VOLTA][scale]
    reach = _chain_inside_gb_per_s(machine) if shape.nodes == 2 else total
    if algorithm is _PAT:  # Its graph is the tree's.
        return _PAT_SHARE * reach
    if algorithm is _TREE:
        tree = channels * _TREE_GB_PER_S[machine.generation][scale]
        busy = min(reach * 0.92, tree)
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


def _chain_inside_gb_per_s(machine: MachineFigures) -> float:
    """Bandwidth inside nodes of trees of two nodes, and of CollNet's chains.

    The search gives them up to twice the network's speed there.
    """
    total = machine.channels * machine.channel_gb_per_s
    return min(2.0 * total, max(total, machine.usable_gb_per_s))


def _direct_gb_per_s(operation: Collective, machine: MachineFigures) -> float:
    """The same for CollNetDirect; GPUs without a NIC of their own slow all_reduce down."""
    found, per_node = machine.summing, machine.shape.ranks_per_node
    if found is None or found.heads == 0:
        raise ConfigurationFailedError("the model has no CollNetDirect here")
    if operation is not Collective.ALL_REDUCE:
        return per_node * min(found.inside_gb_per_s, found.between_gb_per_s * _DIRECT_HALF_SHARE)
    ratio = per_node / found.heads
    ratio -= (ratio - 1.0) / 2.0
    modern = machine.generation in {Generation.HOPPER, Generation.BLACKWELL}
    share = _DIRECT_SM90_SHARE if modern else 1.0
    return share * found.heads * found.inside_gb_per_s / ratio / 2.0


def _multicast_gb_per_s(operation: Collective, machine: MachineFigures) -> float:
    """The same for NVLS and its trees.

    Reducing and multicasting of all_reduce overlap, so a head's bandwidth counts twice.
    """
    shape, found = machine.shape, machine.multicast
    if found is None:
        raise ConfigurationFailedError("the model has no multicast here")
    inside = found.head_gb_per_s * _NVLS_EFFICIENCY[machine.generation]
    inside *= (found.heads - 1) / found.heads
    if operation is not Collective.ALL_REDUCE:
        return found.heads * inside * (shape.ranks - 1) / shape.ranks
    head = 2.0 * inside
    if shape.nodes > 1:
        between = found.nic_gb_per_s * (2.0 if shape.nodes == 2 else 1.0)
        most = _NVLS_TREE_GB_PER_S[machine.generation][shape.nodes > 2]
        head = min(head, between, most)
    return found.heads * head * shape.ranks / ring_steps(operation, shape.ranks)


def _latency_us(
    operation: Collective, algorithm: NcclAlgorithm, index: int, machine: MachineFigures
) -> float:
    shape = machine.shape
    levels = int(math.log2(shape.nodes))
    waits_us = machine.network_latency_us * (2.0 if index == _SIMPLE else 1.0)
    if algorithm in _MULTICAST:
        return _MULTICAST_US + 2.0 * levels * (_NVLS_TREE_NET_US + waits_us)
    if algorithm in _SUMMING:
        return _summing_us(algorithm, machine) + waits_us
    if algorithm is _PAT:  # With one rank a node NCCL takes the tree's latency over the network.
        hop_us = (_NET_US[_TREE][index] + waits_us) / _PAT_PIPELINED_HOPS
        return _PAT_BASE_US + levels * hop_us + shape.ranks * _PAT_RANK_US
    intra = _HOP_US[machine.fabric][algorithm][index]
    inter = _NET_US[algorithm][index] + waits_us
    base = _BASE_US[algorithm][index]
    if algorithm is _TREE:
        per_node = max(1, shape.ranks // shape.nodes)
        return base + 2.0 * ((per_node - 1) * intra + math.log2(shape.nodes) * inter)
    steps = ring_steps(operation, shape.ranks)
    if operation.has_root:
        return base + steps * (intra if shape.nodes == 1 else inter)
    network_steps = operation.passes * (shape.nodes - 1)
    overhead = (3.0 if index == _SIMPLE else 1.0) if shape.nodes > 1 else 0.0
    return base + (steps - network_steps) * max(intra, overhead) + network_steps * inter


def _summing_us(algorithm: NcclAlgorithm, machine: MachineFigures) -> float:
    """NCCL's latency of CollNet, without that of the network itself."""
    peers = machine.shape.ranks_per_node - 1
    hop_us = _SUMMING_HOP_US[algorithm]
    inside = peers * hop_us if algorithm is _CHAIN else min(1, peers) * hop_us
    inside += peers * _DIRECT_PEER_US if algorithm is _DIRECT else 0.0
    return 2.0 * inside + (_SUMMING_NET_US[algorithm] if peers else _NET_US[_TREE][_SIMPLE])


def ring_steps(operation: Collective, ranks: int) -> int:
    """Steps of a ring: 2(n - 1) for all_reduce, n - 1 for its halves, n for rooted operations.

    At least one, so that a single rank needs no case of its own.
    """
    if operation.has_root:
        return ranks
    return max(1, operation.passes * (ranks - 1))
