"""A machine as the command line names it: a file of any form, one that is shipped, or one of many.

cluster.json   dump.xml   shipped:h200-4gpu   topologies.json#a100_2x8   topo-ndv2-1MB.json
"""

from __future__ import annotations

from pathlib import Path

from probes.bench_topologies import bench_topology_reference, read_bench_topology
from probes.machine_file import read_machine_file
from probes.shipped import shipped_machines
from probes.topology import Topology
from sketches.taccl.cluster import taccl_cluster
from sketches.taccl.records import is_taccl_topology
from sketches.taccl.topology_file import read_taccl_topology
from tuccl.errors import UsageError

SHIPPED = "shipped:"
_MOST_TACCL_BYTES = 16 << 20


def read_machine_argument(text: str, taccl_nodes: int = 1) -> Topology:
    """The machine that a command was given.

    Args:
        text: A file, `shipped:NAME`, or `FILE.json#name` of a file of benchmark topologies.
        taccl_nodes: How many of the one node that a topology file of TACCL's describes.

    Raises:
        UsageError: No machine of that name is shipped.
        ProbeError: The file is no machine's.
        TacclFileError: The file is TACCL's and malformed.
    """
    if text.startswith(SHIPPED):
        return _shipped(text.removeprefix(SHIPPED))
    reference = bench_topology_reference(text)
    if reference is not None:
        return read_bench_topology(*reference).topology
    path = Path(text)
    taccl = _taccl_text(path)
    if taccl is not None:
        return taccl_cluster(read_taccl_topology(taccl, text), taccl_nodes)
    return read_machine_file(path)


def _shipped(name: str) -> Topology:
    machines = shipped_machines()
    if name not in machines:
        known = ", ".join(SHIPPED + machine for machine in machines)
        raise UsageError(f"no machine {name!a:.60} is shipped; there are {known}")
    return read_machine_file(machines[name])


def _taccl_text(path: Path) -> str | None:
    """The file's text if it is TACCL's; what else it is, or why not, others say."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_TACCL_BYTES:
            return None
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return None
    return text if is_taccl_topology(text) else None
