"""Time of a built-in algorithm: a model of the kernel, not of NCCL's own expectation.

A call is a launch, the hops of the algorithm in sequence, and the data. The data are limited by the
copy rate of a channel's threads and by the wires under the protocol, which all channels share;
where both limits are close, the time exceeds either. In a ring all ranks send all the time: a rank
sends `steps` pieces of 1/n. In a tree a piece goes up and down rank by rank before the next ones
overlap with it, so large pieces delay the start; LL hands over lines, not pieces. Every slice of
the buffer after the first costs a synchronisation. Over the network a channel uses one NIC, so few
channels leave NICs idle. NVLS reduces and multicasts in the switches: a GPU's links carry the whole
message once, and the share of which it is the head once more. CollNet sends a node's sum into the
network once, which returns that of all nodes: inside a node by way of heads, or along a chain.

`Work` counts what a call does, `work_time_us` prices it with given constants; both take arrays as
well as numbers, so that thousands of measured times can be fitted at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.models.figures import Fabric, Generation, MachineFigures
from tuccl.models.model_constants import SHIPPED, ModelConstants
from tuccl.models.nccl_choice import (
    BYTES_PER_THREAD,
    Choice,
    multicast_channels,
    ring_steps,
)

Quantity = float | npt.NDArray[np.float64]

_CLOCK = {
    Generation.VOLTA: 0.77,
    Generation.AMPERE: 0.71,
    Generation.HOPPER: 1.0,
    Generation.BLACKWELL: 1.0,
}
"""SM clock as a share of Hopper's 1.98 GHz (data sheets: V100 1.53, A100 1.41, B200 1.97)."""
_STEPS_PER_BUFFER = 8
_RING_SIMPLE_SLICE_STEPS = 2
"""Steps of the buffer that a ring hands over at once with Simple (NCCL 2.28, src/device)."""
_TREE_LL128_FILL = ((22.4, 128 << 10), (5.6, 32 << 10))
"""Pieces of LL128 are halved while a channel has fewer of them, down to so many bytes."""
_CHAIN_FILL = ((64, 128 << 10), (8, 64 << 10), (1, 32 << 10))
"""The same of CollNetChain, for each rank of the chain (NCCL 2.30, src/enqueue.cc)."""
_PEER_CHANNELS = 2
"""Channels of a message to another node, with one NIC (NCCL 2.28, src/graph/paths.cc)."""
_PEER_SHARE = 0.4
"""Share of the rate of a thread over TCP that sends and receives between two ranks reach:
two faked nodes of two H200 carried 23 MB from each GPU at 1.1 to 1.7 GB/s in a communicator."""
_SEND_THREADS = 512
_MULTICAST_HOPS = 4
"""Steps of NVLS in sequence: into the own buffer, out of the switch, into all buffers, out of the
own. With the constants of Simple they take NCCL's 25 us (NCCL 2.30, src/graph/tuning.cc)."""
_SUMMING_HOPS = 2
"""Hops over the network of CollNet: to the switch that sums, and back."""
_SUMMING_SHARE = 0.8
"""Share of a NIC's rate at which switches sum: 20 GB/s of HDR's 25 (NVIDIA/nccl issue 320)."""
_WORKS_AS_TREE = (NcclAlgorithm.TREE, NcclAlgorithm.COLLNET_CHAIN)
"""Algorithms whose ranks pass sums up and results down."""
_SHARPNESS = 2.0
"""Order of the norm by which the times of two limits combine."""


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of what a call does; no constant of the model enters them."""

    hops: Quantity
    """Hops over NVLink, in sequence."""
    pci_hops: Quantity
    network_hops: Quantity
    network_latency_us: Quantity
    """Latency of the network in all its hops together."""
    clock: Quantity
    """SM clock over Hopper's."""
    threads: Quantity
    fill_bytes: Quantity
    """Bytes that a channel moves before its pieces overlap."""
    fill_wire_us: Quantity
    """Time of these bytes on the wires inside a node, all channels at the nominal rate."""
    bytes: Quantity
    """Bytes that a channel moves after that."""
    wire_us: Quantity
    network_us: Quantity
    """Time on the NICs that the channels use, at the nominal rate."""
    socket_bytes: Quantity
    """Bytes that each thread of NCCL moves over TCP; 0 where NICs move data themselves."""
    syncs: Quantity
    """Slices after the first."""
    launches: Quantity
    """GPUs for which one host thread launches kernels; 0 where a graph does."""


def builtin_time_us(
    operation: Collective,
    size_bytes: int,
    choice: Choice,
    machine: MachineFigures,
    constants: ModelConstants = SHIPPED,
    launches: int = 0,
) -> float:
    """Time of one call in a sequence of back-to-back calls.

    Args:
        operation: The collective.
        size_bytes: Size as nccl-tests counts it.
        choice: Algorithm, protocol, channels and threads.
        machine: The machine.
        constants: Constants of the model.
        launches: GPUs for which one host thread launches kernels; 0 for CUDA graphs.
    """
    work = work_of(operation, size_bytes, choice, machine, launches)
    return float(work_time_us(work, choice.algorithm, choice.protocol, constants))


def work_of(
    operation: Collective,
    size_bytes: int,
    choice: Choice,
    machine: MachineFigures,
    launches: int = 0,
) -> Work:
    """Count what a call does."""
    if choice.algorithm is NcclAlgorithm.TREE:
        return _tree_work(size_bytes, choice, machine, launches)
    if choice.algorithm in {NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE}:
        return _multicast_work(operation, size_bytes, choice, machine, launches)
    if choice.algorithm is NcclAlgorithm.COLLNET_CHAIN:
        return _chain_work(size_bytes, choice, machine, launches)
    if choice.algorithm is NcclAlgorithm.COLLNET_DIRECT:
        return _direct_work(operation, size_bytes, choice, machine, launches)
    return _ring_work(operation, size_bytes, choice, machine, launches)


def send_receive_work(
    messages: int,
    message_bytes: float,
    network_us: float,
    rank_bytes: float,
    peer_bytes: float,
    machine: MachineFigures,
) -> Work:
    """Count what a group of sends and receives between nodes does.

    Args:
        messages: Messages of the rank that has most; each after the first costs a further hop.
        message_bytes: Bytes of the largest message.
        network_us: Time of all messages on the network, at the nominal rate.
        rank_bytes: Bytes of the rank that sends or receives most.
        peer_bytes: Bytes of the two ranks that have most for each other, one way.
        machine: The machine.
    """
    return Work(
        *(0.0, 0.0, float(messages), machine.network_latency_us),
        clock=_CLOCK[machine.generation],
        threads=_SEND_THREADS,
        fill_bytes=0.0,
        fill_wire_us=0.0,
        bytes=message_bytes / _PEER_CHANNELS,
        wire_us=0.0,
        network_us=network_us,
        socket_bytes=max(rank_bytes, peer_bytes / _PEER_SHARE) if machine.sockets else 0.0,
        syncs=0,
        launches=0,
    )


def work_time_us(
    work: Work, algorithm: NcclAlgorithm, protocol: NcclProtocol, constants: ModelConstants
) -> Quantity:
    """Time of calls of one algorithm and protocol."""
    costs = constants.of(protocol)
    is_tree = algorithm in _WORKS_AS_TREE
    hop_us = (costs.tree_hop_us if is_tree else costs.hop_us) / work.clock
    network_us = work.network_hops * constants.network_hop_us
    waits_us = network_us + work.network_latency_us * constants.network_latencies
    latency_us = (work.hops + work.pci_hops * constants.pci_hop_share) * hop_us + waits_us
    rate = 1e3 * work.clock
    if is_tree:
        rate = rate * costs.tree_gb_per_s
    else:
        rate = rate * costs.ring_gb_per_s * work.threads / (work.threads + costs.half_threads)
    sync_us = work.syncs * costs.sync_us / work.clock
    fill_us = _both_limits_us(work.fill_bytes / rate, work.fill_wire_us / costs.wire_efficiency)
    crossing_us = np.maximum(
        network_us_of(work, protocol, constants),
        work.socket_bytes / (1e3 * constants.socket_gb_per_s * _payload_share(protocol)),
    )
    wire_us = np.maximum(work.wire_us / costs.wire_efficiency, crossing_us)
    data_us = _both_limits_us(work.bytes / rate + sync_us, wire_us)
    kernel_us = costs.base_us / work.clock + latency_us + fill_us + data_us
    return _both_limits_us(kernel_us, work.launches * constants.launch_us)


def network_us_of(work: Work, protocol: NcclProtocol, constants: ModelConstants) -> Quantity:
    """Time on the NICs with what the protocol adds to the data."""
    return work.network_us / (constants.network_efficiency * _payload_share(protocol))


def _both_limits_us(copy_us: Quantity, wire_us: Quantity) -> Quantity:
    """Time under two limits: the longer one, and more where they are close."""
    return (copy_us**_SHARPNESS + wire_us**_SHARPNESS) ** (1.0 / _SHARPNESS)


def _payload_share(protocol: NcclProtocol) -> float:
    """Share of payload in what the protocol sends: flags take half of LL and 1/16 of LL128."""
    if protocol is NcclProtocol.LL:
        return 0.5
    return 0.9375 if protocol is NcclProtocol.LL128 else 1.0


def _ring_work(
    operation: Collective, size_bytes: int, choice: Choice, machine: MachineFigures, launches: int
) -> Work:
    """Work of a ring; PAT and the pairs of alltoall send as much on other paths."""
    shape = machine.shape
    steps = ring_steps(operation, shape.ranks)
    rooted = operation.has_root
    pieces = 1 if rooted else steps
    traffic = pieces * size_bytes / (1 if rooted else shape.ranks)
    # Ranks follow each other node by node, so one hop in `ranks_per_node` leaves the node.
    hops, network_hops = float(steps), steps * shape.nodes / shape.ranks if shape.nodes > 1 else 0.0
    if choice.algorithm is NcclAlgorithm.PAT:
        hops = network_hops = float(math.ceil(math.log2(max(2, shape.ranks))))
    channel_bytes = traffic / choice.nchannels
    piece = channel_bytes / pieces
    if choice.protocol is NcclProtocol.LL:
        channel_bytes = pieces * _whole_passes(piece, choice)
    slice_steps = _RING_SIMPLE_SLICE_STEPS if choice.protocol is NcclProtocol.SIMPLE else 1
    slices = math.ceil(piece / (choice.buffer_bytes / _STEPS_PER_BUFFER * slice_steps))
    # From a root, a piece travels on only when it is there; else all ranks send all the time.
    fill = (
        max(0, steps - 2) * min(_handover_bytes(channel_bytes, choice), channel_bytes)
        if rooted
        else 0.0
    )
    # A ring leaves every node once; pairs leave it from every rank, to those of other nodes.
    network_share, inside_us = 1.0, _wire_us(traffic, machine)
    if operation.is_paired:
        beside = shape.ranks / shape.nodes
        network_share = beside * (shape.ranks - beside) / max(1, shape.ranks - 1)
        inside_us = max(inside_us, traffic / (1e3 * machine.pairs_gb_per_s))
    return Work(
        *_hops(machine, hops - network_hops, network_hops),
        clock=_CLOCK[machine.generation],
        threads=choice.nthreads,
        fill_bytes=fill,
        fill_wire_us=_wire_us(fill * choice.nchannels, machine),
        bytes=channel_bytes,
        wire_us=inside_us,
        network_us=_network_us(traffic * network_share, choice, machine)
        / machine.racks.of(operation, choice.algorithm),
        socket_bytes=_socket_bytes(traffic * network_share, choice, machine),
        syncs=max(0, slices - 1) * pieces,
        launches=launches,
    )


def _tree_work(size_bytes: int, choice: Choice, machine: MachineFigures, launches: int) -> Work:
    """Work of a tree: a chain in each node, a double binary tree between nodes, up and down."""
    shape = machine.shape
    per_node = max(1, shape.ranks // shape.nodes)
    levels = math.ceil(math.log2(shape.nodes)) if shape.nodes > 1 else 0
    hops = 2 * (per_node - 1)
    channel_bytes = size_bytes / choice.nchannels
    piece = min(_handover_bytes(channel_bytes, choice), channel_bytes)
    fill = (hops + 2 * levels) * piece
    is_lines = choice.protocol is NcclProtocol.LL
    # Two nodes send half up and half down; in larger trees inner nodes have two children.
    network_share = 1.0 if shape.nodes == 2 else 2.0
    return Work(
        *_hops(machine, hops, 2 * levels),
        clock=_CLOCK[machine.generation],
        threads=choice.nthreads,
        fill_bytes=fill,
        fill_wire_us=_wire_us(fill * choice.nchannels, machine),
        bytes=channel_bytes - piece,
        wire_us=_wire_us(2.0 * (channel_bytes - piece) * choice.nchannels, machine),
        network_us=_network_us(network_share * size_bytes, choice, machine) / machine.racks.tree,
        socket_bytes=_socket_bytes(network_share * size_bytes, choice, machine),
        syncs=0 if is_lines else math.ceil(channel_bytes / piece) - 1,
        launches=launches,
    )


def _multicast_work(
    operation: Collective, size_bytes: int, choice: Choice, machine: MachineFigures, launches: int
) -> Work:
    """Work of NVLS in each node, and of trees between the nodes' heads."""
    shape = machine.shape
    per_node = shape.ranks // shape.nodes
    levels = math.ceil(math.log2(shape.nodes))
    # Halves of all_reduce send the whole message one way only.
    heads_share = 1.0 / per_node if operation is Collective.ALL_REDUCE else 0.0
    traffic = size_bytes * (1.0 + heads_share)
    network_bytes = size_bytes * (1.0 if shape.nodes == 2 else 2.0)
    # "NVLS should not need more than 16 channels to get peak BW" (NCCL 2.30, src/enqueue.cc).
    copying = min(choice.nchannels, multicast_channels(machine))
    return Work(
        *_hops(machine, _MULTICAST_HOPS, 2 * levels),
        clock=_CLOCK[machine.generation],
        threads=choice.nthreads,
        fill_bytes=0.0,
        fill_wire_us=0.0,
        bytes=traffic / copying,
        wire_us=_wire_us(traffic, machine),
        network_us=_network_us(network_bytes, choice, machine) / machine.racks.tree,
        socket_bytes=_socket_bytes(network_bytes, choice, machine),
        syncs=0,
        launches=launches,
    )


def _chain_work(size_bytes: int, choice: Choice, machine: MachineFigures, launches: int) -> Work:
    """Work of CollNetChain: a chain in each node, up to the NIC and down again."""
    hops = 2 * (machine.shape.ranks_per_node - 1)
    channel_bytes = size_bytes / choice.nchannels
    piece = choice.buffer_bytes / _STEPS_PER_BUFFER
    for pieces, least in _CHAIN_FILL:
        while channel_bytes / piece < machine.shape.ranks_per_node * pieces and piece > least:
            piece /= 2
    piece = min(piece, channel_bytes)
    fill = (hops + _SUMMING_HOPS) * piece
    return Work(
        *_hops(machine, hops, _SUMMING_HOPS),
        clock=_CLOCK[machine.generation],
        threads=choice.nthreads,
        fill_bytes=fill,
        fill_wire_us=_wire_us(fill * choice.nchannels, machine),
        bytes=channel_bytes - piece,
        wire_us=_wire_us(2.0 * (channel_bytes - piece) * choice.nchannels, machine),
        network_us=_network_us(size_bytes, choice, machine) / _SUMMING_SHARE,
        socket_bytes=_socket_bytes(size_bytes, choice, machine),
        syncs=math.ceil(channel_bytes / piece) - 1,
        launches=launches,
    )


def _direct_work(
    operation: Collective, size_bytes: int, choice: Choice, machine: MachineFigures, launches: int
) -> Work:
    """Work of CollNetDirect: each GPU sends each head its share, and heads send the results.

    Of all_reduce a head's links carry the shares of the other heads, and its own share to each
    other GPU. Its halves send the whole message one way.
    """
    per_node = machine.shape.ranks_per_node
    heads = 1 if machine.summing is None else max(1, machine.summing.heads)
    shares = (heads - 1) / heads
    if operation is Collective.ALL_REDUCE:
        shares += (per_node - 1) / heads
    traffic = size_bytes * shares
    return Work(
        *_hops(machine, 2 * min(1, per_node - 1), _SUMMING_HOPS),
        clock=_CLOCK[machine.generation],
        threads=choice.nthreads,
        fill_bytes=0.0,
        fill_wire_us=0.0,
        bytes=traffic / choice.nchannels,
        wire_us=_wire_us(traffic, machine),
        network_us=_network_us(size_bytes, choice, machine) / _SUMMING_SHARE,
        socket_bytes=_socket_bytes(size_bytes, choice, machine),
        syncs=0,
        launches=launches,
    )


def _whole_passes(piece_bytes: float, choice: Choice) -> float:
    """Bytes rounded up to whole passes of the threads."""
    one_pass = choice.nthreads * BYTES_PER_THREAD[choice.protocol]
    return math.ceil(piece_bytes / one_pass) * one_pass


def _handover_bytes(channel_bytes: float, choice: Choice) -> float:
    """Bytes that a rank passes on at once: lines of all threads with LL, else a buffer step."""
    if choice.protocol is NcclProtocol.LL:
        return choice.nthreads * BYTES_PER_THREAD[choice.protocol]
    piece = choice.buffer_bytes / _STEPS_PER_BUFFER
    if choice.protocol is NcclProtocol.LL128:
        for pieces, least in _TREE_LL128_FILL:
            while channel_bytes // piece < pieces and piece > least:
                piece /= 2
    return piece


def _hops(
    machine: MachineFigures, inside: float, between: float
) -> tuple[float, float, float, float]:
    """Hops over NVLink, PCIe and the network, and the network's latency in all of them."""
    nvlink = machine.fabric is Fabric.NVLINK
    latency_us = between * machine.network_latency_us
    return (inside, 0.0, between, latency_us) if nvlink else (0.0, inside, between, latency_us)


def _wire_us(traffic_bytes: float, machine: MachineFigures) -> float:
    return traffic_bytes / (1e3 * machine.intra_gb_per_s)


def _network_us(node_bytes: float, choice: Choice, machine: MachineFigures) -> float:
    """Time of a node's bytes on the NICs that the channels use; one channel uses one NIC."""
    if machine.shape.nodes == 1:
        return 0.0
    nics = min(choice.nchannels, machine.nics_per_node)
    return node_bytes / (1e3 * nics * machine.nic_gb_per_s)


def _socket_bytes(node_bytes: float, choice: Choice, machine: MachineFigures) -> float:
    """Bytes of each thread that drives sockets; each rank that channels leave by has one."""
    if not machine.sockets:
        return 0.0
    ranks = machine.shape.ranks // machine.shape.nodes
    return node_bytes / min(choice.nchannels, max(1, ranks))
