"""What `init`, `tune` and `retune` share: from options to a finished run, and its record."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

from lookup_tables.table import Shape
from probes.cluster.crew import Crew
from probes.cluster.mpi import mpi_tasks
from probes.topology.graph import Topology
from tuccl.backends.backend_choice import BackendRequest, backend_kind
from tuccl.console import display
from tuccl.console.progress import shown_progress
from tuccl.engines.nccl_library import version_here
from tuccl.errors import ExitCode, UsageError
from tuccl.hosts.probe_command import ProbeCommand
from tuccl.hosts.probing import exit_code_of, with_crew
from tuccl.hosts.settled_nccl import look_on_all_ranks, nccl_of_host, tell_nccl
from tuccl.measuring.congestion import congestion_control, loopback_notes
from tuccl.measuring.mpi_places import run_measuring_ranks
from tuccl.measuring.places import Places
from tuccl.models.figures import communicator_shape
from tuccl.pipeline.estimate import Estimate
from tuccl.pipeline.record_output import RecordOutput
from tuccl.pipeline.run_options import (
    machine_of_options,
    read_options,
    record_of_options,
    settings_of_options,
)
from tuccl.pipeline.stages import backend_request, initialize
from tuccl.processes.mpi_workers import ending_job_when_terminated
from tuccl.records.record import Record
from tuccl.records.recording import record_of
from tuccl.reports.finished_run import FinishedRun
from tuccl.tuning.settings import RunSettings, describe_sizes, require_executor_for_alltoall
from tuccl.workspace.measurement_log import read_log
from tuccl.workspace.runs import Workspace


@dataclass(frozen=True)
class Prepared:
    """A run that can begin."""

    options: dict[str, JsonValue]
    topology: Topology
    settings: RunSettings
    record: Record | None
    """What is replayed."""

    @property
    def shape(self) -> Shape:
        """Of the communicator."""
        return communicator_shape(self.topology) if self.record is None else self.record.shape

    @property
    def request(self) -> BackendRequest:
        """What the backend is opened with, schedules apart."""
        return backend_request(self.topology, self.settings, self.record)


def with_ranks(
    options: Mapping[str, JsonValue],
    probe: Callable[[Crew], Topology],
    lead: Callable[[Callable[[], Topology], Places | None], int],
    first: Callable[[], None] = lambda: None,
    *,
    needs_nccl: bool = True,
) -> int:
    """Run `lead` in one process; the exit code.

    The other processes of an MPI job first answer its probing, if it has to probe, then host the
    workers of a backend that has some, and leave with its code.

    Args:
        options: As recorded in run.json.
        probe: Gives the machine where neither a file nor a record does.
        lead: Is given what gives that machine, and the places of workers; None: on this host.
        first: Looks, before anything is probed, whether the run can come to its end.
        needs_nccl: Whether to probe is no use where a backend that measures NCCL finds none.

    Raises:
        UsageError: The options are for a single process.
        SeveralNcclsError: It is not clear which NCCL is to be measured.
    """
    given = read_options(options)
    tasks = mpi_tasks(os.environ)
    if given.share_gpus and tasks > 1:
        raise UsageError(
            f"--share-gpus within {tasks} tasks of MPI: each has a GPU of its own; start it once"
        )
    kind = backend_kind(given.backend_name)
    # Where nothing is probed, options that cannot be are named before a host that cannot measure.
    required = needs_nccl and not given.has_machine
    if tasks < 2 or not kind.has_workers:

        def alone(crew: Crew) -> int:
            first()
            if kind.measures_nccl:
                tell_nccl([nccl_of_host()], required=required)
            return lead(lambda: probe(crew), None)

        return with_crew(ProbeCommand(), alone)
    code = look_on_all_ranks(
        tasks, first, exit_code_of, measures_nccl=kind.measures_nccl, required=required
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

    return run_measuring_ranks(tasks, ending_job_when_terminated(lead_places), exit_code_of)


def prepare(options: dict[str, JsonValue], probed: Callable[[], Topology]) -> Prepared:
    """Find machine, record and settings of the options; what is to be noted about it is said.

    Args:
        options: As recorded in run.json.
        probed: Gives the machine where neither a file nor a record does, and says its notes.

    Raises:
        TucclError: something asked for does not exist, or does not fit.
        ProbeError: the machine's file cannot serve.
    """
    given = read_options(options)
    if given.records is None:
        record_of_options(given, None)
        settings = settings_of_options(given, None)
        if backend_kind(settings.backend).measures_nccl:
            settings = replace(settings, nccl=version_here())
        if settings.fake_nodes:
            settings = replace(settings, congestion_control=congestion_control())
        machine = None if given.topology is not None else probed()
        topology = machine_of_options(given, machine)
        if machine is None:
            display.say_notes(topology.notes)
        shape = communicator_shape(topology)
        require_executor_for_alltoall(settings, shape)
        if settings.share_gpus and shape.nodes < 2:
            raise UsageError(f"--share-gpus: {topology.name} is one node; name --nodes 2 or more")
        return Prepared(options, topology, settings, None)
    machine = None if given.topology is None else machine_of_options(given)
    record = record_of_options(given, machine)
    if record is None:
        raise UsageError("--records names nothing to replay")
    if machine is None and given.nodes != 1:
        raise UsageError("--nodes needs --topology: a record is of the machine that it was made on")
    settings = settings_of_options(given, record)
    topology = machine or record.topology
    display.say_notes(topology.notes)
    return Prepared(options, topology, settings, record)


def run(
    prepared: Prepared,
    workspace: Workspace,
    record_to: RecordOutput | None,
    places: Places | None = None,
) -> FinishedRun:
    """Tune, or continue; then write the record if one is wanted.

    Args:
        prepared: What to tune.
        workspace: Where results go.
        record_to: Where the record goes.
        places: Where workers run, as the ranks of an MPI job; None: on this host.

    Raises:
        UsageError: the record's file is read, or is the record of another run.
        WorkspaceError: the workspace or the record cannot be written.
        MeasurementError: the backend cannot go on.
    """
    topology, settings = prepared.topology, prepared.settings
    identity = settings.identity(topology)
    if record_to is not None:
        record_to.check_run(identity)
    display.say(
        f"{topology.name}: {prepared.shape.ranks} GPUs on {prepared.shape.nodes} node(s); "
        f"{', '.join(settings.operations)}; {describe_sizes(settings.sizes_bytes)}"
    )
    loopback = loopback_notes(settings.congestion_control)
    display.say_notes((*loopback, *_shared(prepared), *_left_out(prepared)))
    with shown_progress() as progress:
        result = initialize(
            topology,
            settings,
            workspace,
            prepared.options,
            progress,
            prepared.record,
            places,
            announce=_say_estimate,
            tell=display.say,
        )
    if record_to is not None:
        contents = read_log(result.run.measurements, identity, display.say)
        record = record_of(contents, topology, prepared.shape, identity)
        record_to.write(record)
        display.say(f"record of {len(record.rows)} configurations written to {record_to.path}")
        held_s, measured_s = contents.seconds, result.report.measuring_s
        if held_s < 0.999 * measured_s:
            display.say(
                "note: the record is not all that was measured: "
                f"{result.run.measurements} has lost lines since, "
                f"and holds {held_s:.1f} s of {measured_s:.1f} s"
            )
    return result


def _say_estimate(estimate: Estimate) -> None:
    if (line := estimate.line()) is not None:
        display.say(line)


def _shared(prepared: Prepared) -> list[str]:
    """That ranks share GPUs, which no job does that the table is for."""
    if not prepared.settings.share_gpus:
        return []
    nodes = prepared.shape.nodes
    return [f"each GPU is used by {nodes} ranks, one of each faked node, side by side through MPS"]


def _left_out(prepared: Prepared) -> list[str]:
    """What the record holds of the operations and the run does not use."""
    record, settings = prepared.record, prepared.settings
    if record is None:
        return []
    tasks = [task for task in record.tasks if task.operation in settings.operations]
    left = [task for task in tasks if task.size_bytes not in settings.sizes_bytes]
    if not left:
        return []
    why = "not asked for, not of all operations, or without a time of NCCL with nothing set"
    return [f"{len(left)} recorded keys are left out: {why}"]
