"""The JSON form of a sketch, which people and `--sketch FILE` read.

A file is checked in full before it becomes a `Sketch`: fields and figures by pydantic, then ranks,
ports and symmetries against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probes.inputs.messages import first_fault
from sketches.chunking import Chunking
from sketches.guidance import SizeRange
from sketches.sketch import Binding, DroppedEdge, Edge, Port, Rank, Sketch
from sketches.symmetry import is_symmetry
from tuccl.errors import MachineError

SCHEMA_VERSION = 1


class _SketchRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    schema_version: Literal[1]
    name: str
    why: str
    node_of_rank: Annotated[tuple[Rank, ...], Field(min_length=2)]
    chunks_per_rank: Annotated[int, Field(ge=1)] = 1
    chunking: tuple[Chunking, ...] = ()
    sizes: tuple[SizeRange, ...] = ()
    ports: tuple[Port, ...] = ()
    edges: tuple[Edge, ...]
    symmetries: tuple[tuple[Rank, ...], ...] = ()
    bindings: tuple[Binding, ...] = ()
    dropped: tuple[DroppedEdge, ...] = ()
    notes: tuple[str, ...] = ()


def sketch_to_json(sketch: Sketch) -> str:
    """Return a sketch as JSON with an edge, port or dropped pair per line, for text comparison."""
    heads: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "name": sketch.name,
        "why": sketch.why,
        "node_of_rank": list(sketch.node_of_rank),
        "chunks_per_rank": sketch.chunks_per_rank,
    }
    tables: dict[str, Sequence[object]] = {
        "chunking": [_fields(chunking) for chunking in sketch.chunking],
        "sizes": [_fields(sizes) for sizes in sketch.sizes],
        "ports": [_fields(port) for port in sketch.ports],
        "edges": [_fields(edge) for edge in sketch.edges],
        "symmetries": [list(symmetry) for symmetry in sketch.symmetries],
        "bindings": [_fields(binding) for binding in sketch.bindings],
        "dropped": [_fields(dropped) for dropped in sketch.dropped],
        "notes": list(sketch.notes),
    }
    members = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in heads.items()]
    for key, rows in tables.items():
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        members.append(f"  {json.dumps(key)}: [" + (f"\n{lines}\n  ]" if rows else "]"))
    return "{\n" + ",\n".join(members) + "\n}\n"


def sketch_from_json(text: str, where: str = "sketch") -> Sketch:
    """Read a sketch.

    `where` is the name of the file, for messages.

    Raises:
        MachineError: The text is not JSON, or not a sketch; the message says what and where.
    """
    try:
        record = _SketchRecord.model_validate_json(text)
    except ValidationError as error:
        fault = first_fault(error, "the whole file")
        raise MachineError(f"{where}: {fault}; correct the file") from None
    fields = dict(record) | {
        "edges": tuple(sorted(record.edges, key=lambda edge: (edge.src, edge.dst))),
        "ports": tuple(sorted(record.ports, key=lambda port: port.name)),
    }
    del fields["schema_version"]
    sketch = Sketch(**fields)
    for defect in _defects(sketch):
        raise MachineError(f"{where}: {defect}; correct the file")
    return sketch


def _defects(sketch: Sketch) -> Iterator[str]:
    ranks = sketch.ranks
    nodes = set(sketch.node_of_rank)
    if nodes != set(range(len(nodes))):
        yield "node_of_rank must number the nodes 0, 1, ... without a gap"
    if len(sketch.port) != len(sketch.ports):
        yield "two ports have the same name"
    if len(sketch.edge) != len(sketch.edges):
        yield "two edges connect the same ordered pair of ranks"
    for edge in sketch.edges:
        name = f"edge {edge.src} -> {edge.dst}"
        if max(edge.src, edge.dst) >= ranks or edge.src == edge.dst:
            yield f"{name} must connect two different ranks below {ranks}"
        for port in edge.ports:
            if port not in sketch.port:
                yield f"{name} names port {port}, which is not listed"
    for number, symmetry in enumerate(sketch.symmetries):
        if not is_symmetry(sketch, symmetry):
            yield f"symmetries.{number} does not map edges onto equal edges and ports onto ports"


def _fields(
    record: Port | Edge | Binding | DroppedEdge | Chunking | SizeRange,
) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__slots__}
