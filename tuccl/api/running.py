"""Processes of `init`, `tune` and `retune`: one leads, the others probe and host workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from probes.cluster.crew import Crew
from probes.cluster.mpi import mpi_tasks
from probes.topology.graph import Topology
from tuccl.api.hosts.probe_command import ProbeCommand
from tuccl.api.hosts.probing import with_crew
from tuccl.api.hosts.settled_nccl import look_on_all_ranks, nccl_of_host, tell_nccl
from tuccl.errors import ExitCode, UsageError, exit_code_of
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.measuring.workers.mpi_places import run_measuring_ranks
from tuccl.measuring.workers.places import Places
from tuccl.options.run_options import RunOptions
from tuccl.processes.mpi_workers import ending_job_when_terminated


def with_ranks(
    given: RunOptions,
    probe: Callable[[Crew], Topology],
    lead: Callable[[Callable[[], Topology], Places | None], int],
    first: Callable[[], None],
    note: Callable[[Iterable[str]], None],
    *,
    needs_nccl: bool = True,
) -> int:
    """Run `lead` in one process; return the exit code.

    The other processes of an MPI job answer its probe, if it has to probe, then host the workers of
    a backend that has some, and exit with its code.

    Args:
        given: The options of the run.
        probe: Probes the machine where neither a file nor a record describes it.
        lead: Called with that probe, and with the places of workers; None: on this host.
        first: Checks, before anything is probed, whether the run can finish.
        note: Called with notes on the NCCL that is used.
        needs_nccl: Whether probing is useless where a backend that measures NCCL finds none.

    Raises:
        UsageError: The options are for a single process.
        SeveralNcclsError: It is not clear which NCCL is to be measured.
    """
    tasks = mpi_tasks(os.environ)
    if given.share_gpus and tasks > 1:
        raise UsageError(
            f"--share-gpus within {tasks} tasks of MPI: each has a GPU of its own; start it once"
        )
    kind = backend_kind(given.backend_name)
    # Where nothing is probed, impossible options are named before a host that cannot measure.
    required = needs_nccl and not given.has_machine
    if tasks < 2 or not kind.has_workers:

        def alone(crew: Crew) -> int:
            first()
            if kind.measures_nccl:
                tell_nccl([nccl_of_host()], required=required, note=note)
            return lead(lambda: probe(crew), None)

        return with_crew(ProbeCommand(), alone)
    code, nccl = look_on_all_ranks(
        tasks, first, exit_code_of, note, measures_nccl=kind.measures_nccl, required=required
    )
    if code != ExitCode.OK:
        return code
    found: list[Topology] = []

    def find(crew: Crew) -> int:
        found.append(probe(crew))
        return ExitCode.OK

    code = ExitCode.OK if given.has_machine else with_crew(ProbeCommand(), find)
    if code != ExitCode.OK:
        return code

    def lead_places(places: Places) -> int:
        return lead(lambda: found[0], places)

    return run_measuring_ranks(
        tasks,
        ending_job_when_terminated(lead_places),
        exit_code_of,
        environment={**os.environ, **nccl.variables},
    )
