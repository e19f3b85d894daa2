"""TACCL's topology file: the profile of one node, converted to TuCCL's units.

Its alphas are times, its betas are times per chunk of one size. The file states neither that size
nor a factor on all times, though TACCL's guide asks for a factor where figures are small. The size
is read from the end of `name` (`NDv2_1KB`), else it is 1MB; a factor is divided out where alpha and
beta together indicate one. A note says so, and the keys `chunk_bytes` and `time_scale`, which TACCL
ignores, override it.

Nor does the file state the linked pairs of GPUs unless it has matrices (`links` and `betas`, rows
by receiver): one beta stands for a switch of all, two on 8 GPUs for the NVLinks of an NDv2.

Equal nodes form a cluster. Devices that the file leaves out are added without limits: each GPU has
a NIC (or several) beside it, in order, and all NICs are on one fabric without a limit of its own.
TACCL has no model of PCIe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.validation import check_structure
from sketches.taccl.records import MOST_PER_NODE, Beta, Record, Time, unknown_keys, validated
from tuccl.errors import MachineError

_FABRIC = "fabric"


def taccl_cluster(node: TacclNode, nodes: int) -> Topology:
    """Return the machine of `nodes` such nodes.

    Raises:
        MachineError: There are several nodes, and the file describes no network.
        InvalidTopologyError: The figures are impossible, or there are too many devices.
    """
    if nodes > 1 and not node.nics:
        raise MachineError(
            f"TACCL topology {node.name!a:.60}: {nodes} nodes and no network; add nics_per_node, "
            f"remote_alpha and remote_beta to its file"
        )
    devices: list[Device] = []
    links: list[Link] = []
    for number in range(nodes):
        devices += _devices(node, number)
        links += _local_links(node, number)
        if nodes > 1:
            links += _network_links(node, number)
    notes = node.notes
    if nodes > 1:
        devices.append(Device(_FABRIC, DeviceKind.NETWORK_SWITCH, NETWORK_NODE))
        how = "GPUs and NICs of a node are paired in order, and all NICs reach each other"
        notes += (f"assumed: {how}, as TACCL's file has neither PCIe nor network switches",)
    topology = Topology(node.name, tuple(devices), tuple(links), notes)
    check_structure(topology)
    return topology


def _devices(node: TacclNode, number: int) -> Iterator[Device]:
    for gpu in range(node.gpus):
        yield Device(f"n{number}/gpu{gpu}", DeviceKind.GPU, number, gpu)
    for nic in range(node.nics):
        yield Device(
            f"n{number}/nic{nic}",
            DeviceKind.NIC,
            number,
            nic,
            line_rate_gb_per_s=node.nic_gb_per_s,
        )
    if node.switch_gb_per_s:
        yield Device(f"n{number}/nvswitch", DeviceKind.NVSWITCH, number)


def _local_links(node: TacclNode, number: int) -> Iterator[Link]:
    def nvlink(src: str, dst: str, gb_per_s: float, alpha_us: float, lanes: int = 1) -> Link:
        measured = Provenance.MEASURED
        ends = (f"n{number}/{src}", f"n{number}/{dst}")
        return Link(*ends, LinkKind.NVLINK, gb_per_s, alpha_us, measured, lanes, measured)

    for link in node.links:
        src, dst = f"gpu{link.src}", f"gpu{link.dst}"
        yield nvlink(src, dst, link.gb_per_s, node.alpha_us, link.lanes)
    if node.switch_gb_per_s:
        for gpu in range(node.gpus):
            for src, dst in ((f"gpu{gpu}", "nvswitch"), ("nvswitch", f"gpu{gpu}")):
                yield nvlink(src, dst, node.switch_gb_per_s, node.alpha_us / 2)


def _network_links(node: TacclNode, number: int) -> Iterator[Link]:
    rate, measured = node.nic_gb_per_s, Provenance.MEASURED
    for nic in range(node.nics):
        name = f"n{number}/nic{nic}"
        for src, dst in ((name, _FABRIC), (_FABRIC, name)):
            half_us = node.nic_alpha_us / 2
            yield Link(src, dst, LinkKind.NETWORK, rate, half_us, measured, 1, measured)
    for gpu in range(node.gpus):
        first = gpu * node.nics // node.gpus
        for nic in range(first, max(first + 1, (gpu + 1) * node.nics // node.gpus)):
            a, b = f"n{number}/gpu{gpu}", f"n{number}/nic{nic}"
            for src, dst in ((a, b), (b, a)):
                yield Link(src, dst, LinkKind.PCIE, rate, 0.0, Provenance.ASSUMED)


_UNIT_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Powers of 1024: the shipped 1KB profiles hold 1/1024 of the betas of the 1MB profiles."""
_CHUNK_IN_NAME = re.compile(r"(\d{1,6})(B|KB|MB|GB)$", re.IGNORECASE | re.ASCII)
_SLOWEST_LOCAL_GB_PER_S = 5.0
"""Least bandwidth of a node's fastest GPU link; a file below it has scaled times."""
_NDV2_DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
_NDV2_SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
"""Pairs with two NVLinks and with one, of the eight V100 of a DGX-1 as TACCL numbers them."""

_Count = Annotated[int, Field(ge=1, le=MOST_PER_NODE)]
_Matrix = list[list[Time]]
_Betas = Mapping[tuple[int, int], tuple[int, float]]
"""Parallel links and the beta of each, by sender and receiver."""


@dataclass(frozen=True, slots=True)
class TacclLink:
    """The parallel links from one GPU of a node to another."""

    src: int
    dst: int
    lanes: int
    gb_per_s: float


@dataclass(frozen=True, slots=True)
class TacclNode:
    """A node of a topology file."""

    name: str
    gpus: int
    nics: int
    """Number of NICs; 0: a node without a network."""
    alpha_us: float
    switch_gb_per_s: float
    """Bandwidth of a GPU to and from the switch of all GPUs; 0: no switch."""
    links: tuple[TacclLink, ...]
    """Links between GPUs; empty with a switch."""
    nic_alpha_us: float
    nic_gb_per_s: float
    notes: tuple[str, ...]


class _Topology(Record):
    name: str
    gpus_per_node: _Count
    alpha: Time
    node_betas_list: Annotated[list[Beta], Field(min_length=1)] | None = None
    node_invbws_list: list[Time] | None = None
    links: list[list[Annotated[int, Field(ge=0, le=64)]]] | None = None
    betas: _Matrix | None = None
    invbws: _Matrix | None = None
    nics_per_node: _Count | None = None
    remote_alpha: Time | None = None
    remote_beta: Beta | None = None
    remote_invbw: Time | None = None
    chunk_bytes: Annotated[int, Field(ge=1)] | None = None
    time_scale: Beta | None = None


def read_taccl_topology(text: str, source: str) -> TacclNode:
    """Read a topology file.

    `source` is the file's name, for messages.

    Raises:
        MachineError: The file is not of this format; file, field and remedy are named.
    """
    record = validated(_Topology, text, source)
    for field in ("remote_alpha", "remote_beta"):
        if record.nics_per_node is not None and getattr(record, field) is None:
            raise MachineError(
                f"{source}: {field}: missing beside nics_per_node; add it, or leave that out"
            )
    betas = _link_betas(record, source)
    chunk_bytes, chunk_note = _chunk_bytes(record)
    scale, scale_notes = _time_scale(record, chunk_bytes, betas)
    kb_per_chunk = chunk_bytes * 1e-3 * scale
    switch = record.links is None and len(record.node_betas_list or ()) == 1
    return TacclNode(
        name=record.name,
        gpus=record.gpus_per_node,
        nics=record.nics_per_node or 0,
        alpha_us=record.alpha / scale,
        switch_gb_per_s=kb_per_chunk / (record.node_betas_list or [1.0])[0] if switch else 0.0,
        links=tuple(
            TacclLink(src, dst, lanes, kb_per_chunk * lanes / beta)
            for (src, dst), (lanes, beta) in sorted(betas.items())
            if not switch
        ),
        nic_alpha_us=(record.remote_alpha or 0.0) / scale,
        nic_gb_per_s=kb_per_chunk / (record.remote_beta or math.inf),
        notes=(chunk_note, *scale_notes, *_contradictions(record), *unknown_keys(record)),
    )


def _link_betas(record: _Topology, source: str) -> _Betas:
    gpus, betas = record.gpus_per_node, record.node_betas_list
    if record.links is not None:
        return _matrix_betas(record, record.links, source)
    if betas is None:
        raise MachineError(
            f"{source}: node_betas_list: missing; add it, or the matrices links and betas"
        )
    if len(betas) == 1:
        every = range(gpus)
        return {(src, dst): (1, betas[0]) for src in every for dst in every if src != dst}
    if len(betas) != 2 or gpus != 8:
        raise MachineError(
            f"{source}: node_betas_list: {len(betas)} figures for {gpus} GPUs do not tell which "
            f"pairs they hold for (one: a switch, two on 8 GPUs: an NDv2); "
            f"give the matrices links and betas instead"
        )
    if betas[0] > betas[1]:
        raise MachineError(f"{source}: node_betas_list: must rise; list the fast links first")
    # A double link's beta is for both links together.
    classes = ((_NDV2_DOUBLE, (2, 2 * betas[0])), (_NDV2_SINGLE, (1, betas[1])))
    return {pair: link for pairs, link in classes for a, b in pairs for pair in ((a, b), (b, a))}


def _matrix_betas(record: _Topology, links: list[list[int]], source: str) -> _Betas:
    gpus, betas = record.gpus_per_node, record.betas or []
    for field, rows in (("links", links), ("betas", betas)):
        if len(rows) != gpus or any(len(row) != gpus for row in rows):
            raise MachineError(
                f"{source}: {field}: must have {gpus} rows of {gpus} figures, as gpus_per_node says"
            )
    found = {}
    for dst, row in enumerate(links):
        for src, lanes in enumerate(row):
            if lanes and src == dst:
                raise MachineError(f"{source}: links.{dst}.{src}: from a GPU to itself; put 0")
            if lanes and betas[dst][src] <= 0:
                raise MachineError(
                    f"{source}: betas.{dst}.{src}: 0 for a link that links names; put its time "
                    f"per chunk, or 0 into links"
                )
            if lanes:
                found[src, dst] = (lanes, betas[dst][src])
    return found


def _chunk_bytes(record: _Topology) -> tuple[int, str]:
    size = record.chunk_bytes
    if size is not None:
        return size, f"betas are per chunk of {size} bytes, as chunk_bytes says"
    named = _CHUNK_IN_NAME.search(record.name)
    count, unit = named.groups() if named else ("1", "MB")
    size = max(1, int(count)) * _UNIT_BYTES[unit.upper()]
    origin = f"by the end of the name {record.name!a:.60}" if named else "as the file does not say"
    return size, f"assumed: betas are per chunk of {size} bytes, {origin} (else add chunk_bytes)"


def _time_scale(
    record: _Topology, chunk_bytes: int, betas: _Betas
) -> tuple[float, tuple[str, ...]]:
    """Return the factor of all times in the file, and a note on it.

    TACCL rounds costs down to integers, so its guide tells users to multiply small ones. If a
    node's fastest link is slower than any real one and its alpha is 1 us or more, the factor is the
    power of ten that brings alpha between 0.1 and 1 us, the range of NVLink.
    """
    if record.time_scale is not None:
        return record.time_scale, (
            f"times are divided by {record.time_scale:g}, as time_scale says",
        )
    fastest = max((chunk_bytes * 1e-3 * n / beta for n, beta in betas.values()), default=math.inf)
    if record.alpha < 1 or fastest >= _SLOWEST_LOCAL_GB_PER_S:
        return 1.0, ()
    scale = 10.0 ** (math.floor(math.log10(record.alpha)) + 1)
    note = (
        f"assumed: times in the file are {scale:g} times the real ones, for alpha "
        f"{record.alpha:g} us and {fastest:.3g} GB/s fit no link of GPUs (else add time_scale)"
    )
    return scale, (note,)


def _contradictions(record: _Topology) -> Iterator[str]:
    """Yield a note for each sum in the file that differs from alpha + beta beyond truncation."""
    local = zip(record.node_invbws_list or (), record.node_betas_list or (), strict=False)
    sums = [
        (f"node_invbws_list.{number}", stated, record.alpha + beta)
        for number, (stated, beta) in enumerate(local)
    ]
    if record.remote_invbw is not None and record.remote_beta is not None:
        total = (record.remote_alpha or 0.0) + record.remote_beta
        sums.append(("remote_invbw", record.remote_invbw, total))
    for field, stated, total in sums:
        if abs(stated - total) >= 1:
            yield f"{field} is {stated:g}, alpha and beta give {total:g}: alpha and beta are used"
