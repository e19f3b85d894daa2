"""Tune a machine over a backend, and ship the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tuccl.api.default_backend import with_backend, with_served_backend
from tuccl.api.hosts.hosts_left import hosts_left
from tuccl.api.hosts.probe_options import PartialReach
from tuccl.api.hosts.probed_machine import probed_machine
from tuccl.api.hosts.probing import with_hosts
from tuccl.api.machines import Machine, refuse_ranks
from tuccl.api.running import lead_run, look_first
from tuccl.api.stages import OnStage, Tell, opened_progress, unsaid
from tuccl.crew.places import Places
from tuccl.crew.started_rank import ranks_of_launcher
from tuccl.errors import ExitCode, UsageError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.options.option import DEFAULT_WORKSPACE, options_of
from tuccl.options.run_options import RunOptions
from tuccl.reports.tuning_result import TuningResult
from tuccl.search.trials.events import Listener
from tuccl.shipping import shipment
from tuccl.shipping.doctor.seen_devices import see_devices, strange_gpu, sysfs_of
from tuccl.shipping.forms import parse_forms
from tuccl.shipping.shipment import Shipped
from tuccl.tuning.pipeline.preparing import Prepared, prepare
from tuccl.tuning.pipeline.record_output import RecordOutput
from tuccl.tuning.pipeline.resuming import require_begun
from tuccl.tuning.pipeline.tuning_run import run
from tuccl.workspace.atomic_file import absolute, write_atomically
from tuccl.workspace.runs import Workspace


def begin(
    options: RunOptions,
    root: Path,
    record_to: RecordOutput | None,
    listener: Listener,
    deliver: Callable[[TuningResult], int],
    *,
    reach: PartialReach = PartialReach(),  # noqa: B008 - frozen
    resume: bool = False,
) -> int:
    """Tune a machine, or continue an earlier run of the same options.

    Args:
        options: The options of the run.
        root: The workspace.
        record_to: File of the run's record; None: no record.
        listener: Told of the probe, if there is one, and of the run.
        deliver: Takes the result, on one rank of an MPI job, and returns the exit code.
        reach: The hosts, if no launcher has started a rank on each.
        resume: Whether to refuse a run that was not begun.

    Returns:
        The exit code.
    """
    reach.require_possible(ranks_of_launcher(os.environ))
    elsewhere = reach.names_hosts(os.environ)

    def lead(places: Places | None) -> int:
        left = hosts_left(places, listener.say) if reach.allow_missing and places else None
        least_gpus = 0 if elsewhere else 1 if places is not None or options.share_gpus else 2
        chosen = with_backend(options, listener.say, least_gpus)

        def run_on(probed: Callable[[], Topology], workers: Places | None) -> int:
            served = chosen
            if not options.backend:
                served = with_served_backend(chosen, probed, listener.say)
            prepared = prepare(
                served, probed, listener.note, part=None if left is None else left.part_of
            )
            if served.topology is not None and not elsewhere:
                _require_own_gpus(served.topology, prepared)
            workspace = Workspace(root)
            if resume:
                identity = prepared.settings.identity(prepared.topology)
                require_begun(workspace, identity, served, prepared.topology)
            return deliver(run(prepared, workspace, listener, record_to, workers))

        def probe() -> Topology:
            return probed_machine(
                root, places, listener.progress, listener.say, takes_one_gpu=options.takes_one_gpu
            )

        first = partial(look_first, chosen, record_to, listener.note)
        return lead_run(chosen, places, probe, run_on, first, listener.note)

    return with_hosts(reach, lead, meeting=root)


def _require_own_gpus(named: str, prepared: Prepared) -> None:
    """Require GPUs of the named machine on this host if it is measured here.

    Raises:
        UsageError: This host has others, with which no job loads the machine's table.
    """
    if not backend_kind(prepared.settings.backend).measures_nccl:
        return
    models = prepared.topology.gpu_models
    gpus, _ = see_devices(sysfs_of(os.environ))
    if strange := strange_gpu(gpus, models):
        raise UsageError(
            f"--topology {named} has GPUs {', '.join(models)}, and {strange} is here: no job would "
            "load the table; leave it out, or tune in a model with --backend simulated"
        )


def tune(
    machine: Machine | None = None,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    *,
    workspace: str | Path = DEFAULT_WORKSPACE,
    record: str | Path | None = None,
    replace_record: bool = False,
    on_stage: OnStage = None,
    tell: Tell = None,
) -> TuningResult:
    """Tune a machine, or continue an earlier run of the same arguments.

    Args:
        machine: A topology or the file that it is read from; None: that of the options, the
            record's, or this host.
        options: What is tuned and how, as the options of `tuccl init` say it; the same seed gives
            the same table.
        workspace: Directory that holds the runs.
        record: File that all measurements are written to.
        replace_record: Whether `record` may replace another file.
        on_stage: Called with the progress.
        tell: Called with each line that the command would print meanwhile.

    Raises:
        UsageError: The options are impossible or contradict each other.
        MachineError: The machine cannot be read or tuned.
        ScheduleError: There is no solver.
        WorkspaceError: The workspace is busy or cannot be written; finished work is kept.
        MeasurementError: The backend cannot go on; its measurements are kept.
    """
    refuse_ranks("tune", ranks_of_launcher(os.environ))
    root = Path(workspace)
    listener = Listener(tell or unsaid, partial(opened_progress, on_stage))
    output = None if record is None else RecordOutput(Path(record), replace_record)
    done: list[TuningResult] = []

    def deliver(result: TuningResult) -> int:
        done.append(result)
        return ExitCode.OK

    named = options if machine is None else replace(options, topology=_named(machine, root))
    begin(_parsed(named), root, output, listener, deliver)
    (result,) = done
    return result


def ship(
    workspace: str | Path | TuningResult,
    directory: str | Path,
    *,
    force: bool = False,
    forms: Sequence[str] = (),
    place: str | Path | None = None,
) -> Shipped:
    """Write bundle, plugin and a `tuccl.env` that a job sources.

    Args:
        workspace: Workspace whose current run is shipped, or the result of a tuning.
        directory: Directory that the job reads: new, empty, or of an earlier ship.
        force: Ship even beside other files, which stay, or over another machine's table.
        forms: Forms beside `tuccl.env`: `env`, `nccl-conf`, `slurm`, `enroot`, `kubernetes`,
            `dlopen`.
        place: Absolute path at which jobs find the directory, if not at `directory`.

    Returns:
        The `files` that were written, `tuccl.env` last, and the `caveats`.

    Raises:
        UsageError: The directory holds other files, or another machine's table; a form is unknown,
            or cannot hold the place.
        WorkspaceError: There is no table, or the directory cannot be written.
        HostError: This installation has no plugin.
    """
    if isinstance(workspace, TuningResult):
        finished = workspace.run
    else:
        finished = Workspace(Path(workspace)).current()
    return shipment.ship(
        finished,
        Path(directory),
        force=force,
        forms=parse_forms(",".join(forms)) if forms else (),
        place=None if place is None else Path(place),
    )


def _named(machine: Machine, root: Path) -> str:
    """Return the name that a run reads a machine by; a topology is kept in the workspace."""
    if not isinstance(machine, Topology):
        return str(machine)
    text = topology_to_json(machine)
    path = root / "machines" / f"{sha256(text.encode()).hexdigest()[:16]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return str(absolute(path))


def _parsed(options: RunOptions) -> RunOptions:
    """Return the options as the command line parses them: with absolute names of files."""
    parsers = {name: said.parse for name, said in options_of(RunOptions).items()}
    given = {name: getattr(options, name) for name in parsers}
    parsed = {
        name: parse(str(given[name]))
        for name, parse in parsers.items()
        if parse is not None and given[name] is not None
    }
    return replace(options, **parsed)
