"""`--fake-nodes` and `--share-gpus`: checks them, and derives the laboratory on this host."""

from __future__ import annotations

from collections import Counter

from probes.topology.graph import Topology
from tuccl.errors import MeasurementError, UsageError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.workers.congestion import congestion_control
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.options.run_options import RunOptions


def require_possible(options: RunOptions) -> None:
    """Require a backend that supports the laboratory options.

    Raises:
        UsageError: The backend does not support them.
    """
    backend = options.backend_name
    kind = backend_kind(backend)
    if options.fake_nodes and not kind.has_workers:
        raise UsageError(f"--fake-nodes is for workers on this host; --backend {backend} has none")
    if options.share_gpus and not options.fake_nodes:
        raise UsageError("--share-gpus says what GPUs faked nodes have: name --fake-nodes, too")
    if options.share_gpus and not kind.measures_nccl:
        raise UsageError(
            f"--share-gpus is for NCCL's ranks on this host; with --backend {backend} leave it out"
        )


def laboratory_of(options: RunOptions, topology: Topology) -> Laboratory:
    """The laboratory of the options, in which this host appears as another machine.

    Raises:
        UsageError: The machine is one node, which has no more GPUs than this host.
    """
    if not options.fake_nodes:
        return Laboratory()
    nodes, ranks = topology.node_count, len(topology.gpus)
    per_node = Counter(topology.node_of_rank)
    sizes = tuple(per_node[node] for node in range(nodes))
    uneven = sizes if topology.ranks_per_node == 0 else ()
    control = congestion_control() if nodes > 1 else ""
    laboratory = Laboratory(nodes, options.share_gpus, control, uneven)
    if not options.share_gpus:
        return laboratory
    shared = laboratory.on_gpus(ranks, _gpus_here() or ranks)
    if nodes < 2 and not shared.gpus:
        raise UsageError(f"--share-gpus: {topology.name} is one node; name --nodes 2 or more")
    return shared


def _gpus_here() -> int:
    """Return the number of GPUs; 0 where there are none, which the backend will tell."""
    try:
        return count_gpus()
    except MeasurementError:
        return 0
