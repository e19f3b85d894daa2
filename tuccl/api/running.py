"""A run of `init`, `tune` and `retune` in its leading process: NCCL, the machine, the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from probes.topology.graph import Topology
from tuccl.api.hosts.settled_nccl import settle_nccl
from tuccl.crew.places import Places
from tuccl.errors import UsageError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.options.run_options import RunOptions


def lead_run(
    given: RunOptions,
    places: Places | None,
    probe: Callable[[], Topology],
    lead: Callable[[Callable[[], Topology], Places | None], int],
    first: Callable[[], None],
    note: Callable[[Iterable[str]], None],
    *,
    needs_nccl: bool = True,
) -> int:
    """Run `lead` after the first checks; return the exit code.

    Args:
        given: The options of the run.
        places: The ranks of an MPI job, if there are several.
        probe: Probes the machine if neither a file nor a record describes it.
        lead: Called with that probe, and with the places of workers; None for those of this host.
        first: Checks, before anything is probed, whether the run can finish.
        note: Called with notes on the NCCL that is used.
        needs_nccl: Whether probing is useless if a backend that measures NCCL finds none.

    Raises:
        UsageError: The options are for a single process.
        SeveralNcclsError: It is not clear which NCCL is to be measured.
    """
    if given.share_gpus and places is not None:
        raise UsageError(
            f"--share-gpus within {len(places.places)} tasks of MPI: each has a GPU of its own; "
            "start it once"
        )
    kind = backend_kind(given.backend_name)
    first()
    if kind.measures_nccl:
        # Without a probe, impossible options are named before a host that cannot measure.
        settle_nccl(places, note, required=needs_nccl and not given.has_machine)
    return lead(cache(probe), places if kind.has_workers else None)
