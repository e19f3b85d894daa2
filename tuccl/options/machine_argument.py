"""Machines as the command line names them: a file of any form, a shipped one, or one of many.

cluster.json   dump.xml   shipped:h200-4gpu   topologies.json#a100_2x8   topo-ndv2-1MB.json
"""

from __future__ import annotations

import json
from pathlib import Path

from probes.files.bench_topologies import bench_topology_reference, read_bench_topology
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Topology
from sketches.taccl.records import is_taccl_topology
from sketches.taccl.topology_file import read_taccl_topology, taccl_cluster
from tuccl.errors import UsageError
from tuccl.workspace.atomic_file import absolute

SHIPPED = "shipped:"
_MOST_JSON_BYTES = 16 << 20


def read_machine_argument(text: str, taccl_nodes: int = 1) -> Topology:
    """Read the machine that a command was given.

    Args:
        text: A file, `shipped:NAME`, or `FILE.json#name` of a file of benchmark topologies.
        taccl_nodes: Number of copies of the node that a topology file of TACCL's describes.

    Raises:
        UsageError: No machine of that name is shipped, or the file has many.
        MachineError: The file does not describe a machine, or the file is TACCL's and malformed.
    """
    if text.startswith(SHIPPED):
        return _shipped(text.removeprefix(SHIPPED))
    reference = bench_topology_reference(text)
    if reference is not None:
        return read_bench_topology(*reference).topology
    path = Path(text)
    content = _json_text(path)
    if is_taccl_topology(content):
        return taccl_cluster(read_taccl_topology(content, text), taccl_nodes)
    if _is_bench_file(content):
        raise UsageError(f"{text}: a file of many machines; name one of them as {text}#NAME")
    return read_topology(path)


def absolute_machine_argument(text: str) -> str:
    """Return the machine's name with an absolute path, which holds in any directory."""
    if text.startswith(SHIPPED):
        return text
    reference = bench_topology_reference(text)
    if reference is not None:
        file, entry = reference
        return f"{absolute(file)}#{entry}"
    return str(absolute(Path(text)))


def _shipped(name: str) -> Topology:
    machines = shipped_machines()
    if name not in machines:
        known = ", ".join(SHIPPED + machine for machine in machines)
        raise UsageError(f"no machine {name!a:.60} is shipped; there are {known}")
    return read_topology(machines[name])


def _json_text(path: Path) -> str:
    """Return the text of a small JSON file, or nothing: the reader of its form names the error."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_JSON_BYTES:
            return ""
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return ""
    return text if text.lstrip().startswith("{") else ""


def _is_bench_file(text: str) -> bool:
    """Whether every key of a JSON object names a machine with GPUs and links."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(document) and all(
        isinstance(entry, dict) and {"gpus", "links"} <= entry.keys() for entry in document.values()
    )
