"""TACCL's sketch file: links that a schedule may use, relays between nodes, symmetries.

This synthesizer ignores preferences that only break ties in TACCL's program, and the order of sends
that TACCL can enforce; a note names each of them in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sketches.taccl.records import MOST_PER_NODE, Record, unknown_keys, validated
from tuccl.errors import MachineError

_Local = Annotated[int, Field(ge=0, lt=MOST_PER_NODE)]
_Offset = Annotated[int, Field(ge=0)]
_Block = Annotated[int, Field(ge=1)]
_NamedConnections = Literal["fully-connected", "direct-map"]


@dataclass(frozen=True, slots=True)
class TacclRules:
    """The rules of a sketch file; GPUs by their number in a node."""

    source: str
    """File name, for messages."""
    nodes: int
    switches: tuple[tuple[int, ...], ...]
    """Sets of GPUs behind one switch."""
    connections: Mapping[int, tuple[int, ...]] | _NamedConnections
    """Receivers in every other node, by sender."""
    sent_by: Mapping[int, tuple[int, ...]]
    """GPUs whose data a sender sends to other nodes, by sender; empty: not restricted."""
    symmetry_offsets: tuple[tuple[int, int], ...]
    chunks_per_rank: int
    notes: tuple[str, ...]


class _IntraNode(Record):
    strategy: Literal["none", "switch", "minmax", "maxmin"]
    switches: tuple[Annotated[list[_Local], Field(min_length=2)], ...] = ()
    switch_hyperedge_strategy: tuple[Literal["uc-min", "uc-max"], ...] = ()


class _InterNode(Record):
    strategy: Literal["relay"]
    internode_conn: dict[_Local, list[_Local]] | _NamedConnections
    gpus_to_sender_rev_map: dict[_Local, list[_Local]] | None = None
    enforce_ordering: bool = False


class _Hyperparameters(Record):
    input_chunkup: Annotated[int, Field(ge=1, le=1024)]


class _Sketch(Record):
    nnodes: Annotated[int, Field(ge=1, le=4096)]
    intranode_sketch: _IntraNode
    internode_sketch: _InterNode | None = None
    symmetry_offsets: list[tuple[_Offset, _Block]]
    hyperparameters: _Hyperparameters


def read_taccl_sketch(text: str, source: str) -> TacclRules:
    """Read a sketch file.

    `source` is the file's name, for messages.

    Raises:
        MachineError: The file is not of this format; file, field and remedy are named.
    """
    record = validated(_Sketch, text, source)
    across = record.internode_sketch if record.nnodes > 1 else None
    if record.nnodes > 1 and across is None:
        raise MachineError(
            f"{source}: internode_sketch: missing for nnodes {record.nnodes}; add it, or set "
            f"nnodes to 1"
        )
    mapped = (across.gpus_to_sender_rev_map if across else None) or {}
    return TacclRules(
        source=source,
        nodes=record.nnodes,
        switches=_switches(record.intranode_sketch, source),
        connections=_connections(across),
        sent_by={sender: tuple(gpus) for sender, gpus in sorted(mapped.items())},
        symmetry_offsets=tuple(record.symmetry_offsets),
        chunks_per_rank=record.hyperparameters.input_chunkup,
        notes=tuple(_notes(record, across)),
    )


def _connections(across: _InterNode | None) -> Mapping[int, tuple[int, ...]] | _NamedConnections:
    if across is None:
        return {}
    if not isinstance(across.internode_conn, dict):
        return across.internode_conn
    return {src: tuple(dict.fromkeys(dsts)) for src, dsts in sorted(across.internode_conn.items())}


def _switches(intra: _IntraNode, source: str) -> tuple[tuple[int, ...], ...]:
    """Return the distinct sets of GPUs behind a switch; TACCL too wants them equal or disjoint."""
    if intra.strategy != "switch":
        return ()
    field = f"{source}: intranode_sketch.switches"
    if not intra.switches:
        raise MachineError(f"{field}: empty beside strategy switch; name the GPUs behind one")
    found: dict[tuple[int, ...], int] = {}
    for number, gpus in enumerate(intra.switches):
        members = tuple(sorted(set(gpus)))
        for earlier, first in found.items():
            shared = sorted(set(members) & set(earlier))
            if shared and members != earlier:
                raise MachineError(
                    f"{field}.{number}: has GPU {shared[0]} in common with switches.{first}, which "
                    f"is another set; sets must be equal or disjoint"
                )
        found.setdefault(members, number)
    return tuple(found)


def _notes(record: _Sketch, across: _InterNode | None) -> Iterator[str]:
    intra = record.intranode_sketch
    if intra.strategy in {"minmax", "maxmin"}:
        yield f"intranode strategy {intra.strategy} only breaks ties in TACCL: passed over"
    if intra.strategy == "switch" and intra.switch_hyperedge_strategy:
        names = "/".join(sorted(set(intra.switch_hyperedge_strategy)))
        yield f"switch_hyperedge_strategy {names} only breaks ties in TACCL: passed over"
    if len({tuple(sorted(set(gpus))) for gpus in intra.switches}) < len(intra.switches):
        yield "equal sets in switches count as one switch, which has their beta together"
    if record.internode_sketch and across is None:
        yield "internode_sketch is passed over, because nnodes is 1"
    if across and across.enforce_ordering:
        yield "enforce_ordering is passed over: list scheduling decides the order of sends"
    yield from unknown_keys(record, intra, across, record.hyperparameters)
