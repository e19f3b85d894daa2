"""`prepare`: derives machine, record and settings from a run's options, with notes on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from lookup_tables.table import Shape
from probes.topology.graph import Topology
from tuccl.crew.places import Places
from tuccl.errors import UsageError
from tuccl.measuring.backends.backend_choice import BackendRequest, backend_kind
from tuccl.measuring.engines.nccl_library import version_here
from tuccl.measuring.engines.tuner_library import ask_library, is_library
from tuccl.measuring.records.record import Record
from tuccl.models.figures import communicator_shape
from tuccl.options.machine import load_machine
from tuccl.options.run_options import RunOptions
from tuccl.quantities import count_of
from tuccl.schedules.own_schedules import Demands, OwnSchedule, read_own_schedules
from tuccl.search.trials.shapes import shape_text
from tuccl.tuning.pipeline.options_to_settings import (
    laboratory_of,
    record_of_options,
    settings_of_options,
    short_budget_note,
    with_shapes,
)
from tuccl.tuning.pipeline.recorded_search import replay_note, takes_recorded_steps
from tuccl.tuning.pipeline.search_spaces import Candidates
from tuccl.tuning.pipeline.varied_variables import (
    base_of,
    not_modelled_note,
    places_of,
    set_variables,
    varied_knobs,
)
from tuccl.tuning.pipeline.workload_options import (
    with_workload,
    workload_notes,
    workload_of_options,
)
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import RunSettings, describe_keys, refusal_of
from tuccl.workloads.workload import Workload


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to begin."""

    topology: Topology
    settings: RunSettings
    record: Record | None = None
    """The record to replay; None: the backend replays none."""
    own_schedules: tuple[OwnSchedule, ...] = ()
    """The user's schedules, which are searched besides the generated ones."""
    workload: Workload | None = None
    """The workload whose calls are tuned; None: the options name the keys."""
    of_all_hosts: Prepared | None = None
    """The run on the whole machine, if this is on the hosts that are left of it."""

    @property
    def identity(self) -> str:
        """The identity of the run, which names its directory."""
        return self.settings.identity(self.topology)

    @property
    def shape(self) -> Shape:
        """The shape of the communicator of all GPUs."""
        return communicator_shape(self.topology) if self.record is None else self.record.shape

    def request(
        self, candidates: Candidates = MappingProxyType({}), places: Places | None = None
    ) -> BackendRequest:
        """Return the request that opens the backend, with the schedules of these candidates."""
        settings = self.settings
        shapes = {
            shape: {
                candidate.content_hash: candidate
                for found in candidates.get(shape, {}).values()
                for candidate in found
            }
            for shape in settings.shapes_of(self.shape)
        }
        return BackendRequest(
            topology=self.topology,
            shape=self.shape,
            options=settings.options,
            spread=settings.spread,
            model=settings.model,
            schedules=shapes.pop(self.shape, {}),
            shapes=shapes,
            knobs=settings.knobs,
            baseline=settings.baseline,
            base=set_variables(settings.options),
            record=self.record,
            takes_recorded_steps=takes_recorded_steps(self.record, settings),
            places=places,
            laboratory=settings.laboratory,
            timing=settings.timing,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the run, apart from those on the machine."""
        timing = self.settings.timing if self.record is None else self.record.timing
        notes = workload_notes(self.settings, self.workload, timing)
        how = "" if self.record is None else replay_note(self.record, self.settings)
        laboratory = self.settings.laboratory.notes()
        short = None if self.record else short_budget_note(self.settings, self.shape)
        rows = _baseline_note(self.settings, self.shape)
        site = not_modelled_note(self.settings.options, os.environ)
        return (*laboratory, *notes, *_left_out(self), *filter(None, [how, short, rows, site]))


def _discard(_notes: Iterable[str]) -> None:
    """Discard the notes."""


def prepare(
    given: RunOptions,
    probed: Callable[[], Topology],
    note: Callable[[Iterable[str]], None] = _discard,
    *,
    only_possible_shapes: bool = False,
    part: Callable[[Topology], Topology] | None = None,
) -> Prepared:
    """Derive the machine, the record and the settings from the options.

    Args:
        given: The options.
        probed: Probes the machine, and reports its notes, where no file or record describes it.
        note: Receives the notes on a machine that was read.
        only_possible_shapes: Leave out the shapes of `--shapes` that the machine has no
            communicators of, which is an error otherwise.
        part: Returns the part of the machine that the run has, if hosts may be lost; the same
            machine if none are.

    Raises:
        TucclError: an input does not exist, or does not fit.
        MachineError: the machine's file cannot be used.
    """
    workload = workload_of_options(given)
    if given.records is None:
        record_of_options(given, None)
        settings = settings_of_options(given, None)
        if backend_kind(settings.backend).measures_nccl:
            settings = replace(settings, nccl=version_here())
        machine = None if given.topology is not None else probed()
        topology = load_machine(given, machine, share_gpus=given.share_gpus)
        if machine is None:
            note(topology.notes)
        of_all_hosts = None
        if part is not None and (left := part(topology)) is not topology:
            of_all_hosts = prepare(given, probed, only_possible_shapes=only_possible_shapes)
            only_possible_shapes, topology = True, left
        whole = communicator_shape(topology)
        settings = with_shapes(settings, whole, only_possible=only_possible_shapes)
        if workload is not None:
            settings = with_workload(settings, workload, whole)
        for shape in settings.shapes_of(whole):
            for operation in settings.operations_of(shape):
                refusal = refusal_of(operation, given, shape, settings.nccl)
                if refusal is not None:
                    raise UsageError(refusal)
        settings = _with_baseline(settings, whole)
        own = _own_schedules(topology, settings)
        laboratory, base = laboratory_of(given, topology), base_of(given, os.environ)
        knobs = varied_knobs(
            given,
            base or (),
            places_of(topology, laboratory, given.backend_name),
            settings.nccl,
            shares_gpus=bool(laboratory.gpus),
        )
        settings = replace(
            settings,
            base=base,
            knobs=knobs,
            laboratory=laboratory,
            own_schedules=tuple(sorted(schedule.digest for schedule in own)),
        )
        return Prepared(topology, settings, None, own, workload, of_all_hosts)
    machine = None if given.topology is None else load_machine(given)
    record = record_of_options(given, machine)
    if record is None:
        raise UsageError("--records names nothing to replay")
    if machine is None and given.nodes != 1:
        raise UsageError("--nodes needs --topology: a record is of the machine that it was made on")
    settings = settings_of_options(given, record)
    topology = machine or record.topology
    note(topology.notes)
    if workload is not None:
        settings = with_workload(settings, workload, record.shape, record)
    settings = _with_baseline(settings, record.shape)
    return Prepared(topology, settings, record, workload=workload)


def _with_baseline(settings: RunSettings, whole: Shape) -> RunSettings:
    """Return the settings with the choices of the options' tuner, which are for some of the keys.

    Raises:
        UsageError: No row of its file is for a key.
        InputFileError: Its library cannot be asked, or chooses nothing.
    """
    given, keys = settings.options.baseline, keys_of(settings, whole)
    if given is not None and is_library(Path(given)):
        return replace(settings, baseline=ask_library(Path(given), keys))
    if settings.baseline is None or any(map(settings.baseline.rows_of, keys)):
        return settings
    shapes = " and ".join(map(shape_text, settings.shapes_of(whole)))
    raise UsageError(
        f"--baseline {given}: no row is for a key of this run ({describe_keys(settings)}; "
        f"{shapes}): leave it out, or name another file"
    )


def _baseline_note(settings: RunSettings, whole: Shape) -> str:
    """Return a note on the keys that the rows of a baseline are for; empty without one."""
    baseline = settings.baseline
    if baseline is None:
        return ""
    keys = keys_of(settings, whole)
    of_keys = [baseline.rows_of(task) for task in keys]
    used = {row for rows in of_keys for row in rows}
    note = (
        f"{baseline.name} has choices for {sum(map(bool, of_keys))} of {count_of(len(keys), 'key')}"
    )
    unused = len(baseline.rows) - len(used)
    return note + (f"; {count_of(unused, 'row')} for none of them" if unused else "")


def _own_schedules(topology: Topology, settings: RunSettings) -> tuple[OwnSchedule, ...]:
    """Read the user's schedules, which must be proved and fit the run."""
    directory = settings.options.own_schedules
    if directory is None:
        return ()
    demands = Demands(
        topology,
        communicator_shape(topology),
        settings.operations,
        settings.sizes_bytes,
        in_place=settings.options.in_place,
        on_executor=backend_kind(settings.backend).has_executor,
    )
    return read_own_schedules(Path(directory), demands)


def _left_out(prepared: Prepared) -> list[str]:
    """A note on the recorded keys of the operations that the run leaves out."""
    record, settings = prepared.record, prepared.settings
    if record is None or settings.workload is not None:
        return []
    tasks = [task for task in record.tasks if task.operation in settings.operations]
    unused = [
        task
        for task in tasks
        if task.size_bytes not in settings.sizes_of(task.operation, task.shape)
    ]
    if not unused:
        return []
    why = "not asked for, not of all operations, or without a time of NCCL with nothing set"
    return [f"{len(unused)} recorded keys are left out: {why}"]
