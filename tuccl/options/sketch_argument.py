"""Sketches as the command line names them: files in TuCCL's JSON or in TACCL's."""

from __future__ import annotations

from pathlib import Path

from probes.inputs.regular_file import read_regular_file
from probes.topology.graph import Topology
from sketches.sketch import Sketch
from sketches.sketch_json import sketch_from_json
from sketches.taccl.records import is_taccl_sketch
from sketches.taccl.rules import taccl_sketch
from sketches.taccl.sketch_file import TacclRules, read_taccl_sketch
from tuccl.errors import UsageError

_MOST_BYTES = 256 << 20

GivenSketch = Sketch | TacclRules
"""A sketch, or rules that become one on a machine."""


def read_sketch_argument(path: Path) -> GivenSketch:
    """Read a sketch, or its rules, from a file.

    Raises:
        UsageError: It cannot be read.
        MachineError: It is malformed; file and field are named.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path}: more than {_MOST_BYTES:,} bytes; give a sketch's JSON file")
        text = read_regular_file(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a sketch file") from error
    except ValueError as error:
        raise UsageError(f"{path} is not UTF-8 text; give a sketch's JSON file") from error
    if is_taccl_sketch(text):
        return read_taccl_sketch(text, str(path))
    return sketch_from_json(text, str(path))


def nodes_of(given: GivenSketch) -> int:
    """Return the number of nodes that a sketch is for."""
    return given.nodes if isinstance(given, TacclRules) else max(given.node_of_rank) + 1


def sketch_for(given: GivenSketch, topology: Topology, path: Path) -> Sketch:
    """Return the sketch on a machine.

    Raises:
        UsageError: It is for another number of nodes or GPUs.
        MachineError: Its rules cannot be met on this machine.
    """
    if isinstance(given, TacclRules):
        return taccl_sketch(given, topology, path.stem)
    if given.node_of_rank != topology.node_of_rank:
        raise UsageError(
            f"{path}: a sketch for {given.ranks} ranks on {nodes_of(given)} node(s), but topology "
            f"{topology.name} has {len(topology.gpus)} GPUs on {topology.node_count}; or their "
            f"order differs; give a sketch of this machine"
        )
    return given
