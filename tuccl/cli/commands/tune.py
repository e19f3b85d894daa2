"""The commands `tuccl init`, `tune` and `retune`, between the command line and the packages."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from probes.cluster.crew import Crew
from probes.topology.graph import Topology
from tuccl.api.default_backend import with_backend, with_served_backend
from tuccl.api.hosts.probed_machine import keep, probe_again, probed_machine
from tuccl.api.look_first import look_first
from tuccl.api.running import with_ranks
from tuccl.errors import ExitCode, UsageError
from tuccl.measuring.workers.places import Places
from tuccl.options.run_options import RunOptions
from tuccl.reports.finished_run import FinishedRun, current_run
from tuccl.reports.job_gains import gains_of
from tuccl.tuning.pipeline.dry_run import make_plan, plan_lines
from tuccl.tuning.pipeline.preparing import Prepared, prepare
from tuccl.tuning.pipeline.record_output import RecordOutput
from tuccl.tuning.pipeline.resuming import require_begun
from tuccl.tuning.pipeline.retune_plan import RetunePlan
from tuccl.tuning.pipeline.retune_plan import plan_lines as retune_lines
from tuccl.tuning.pipeline.retuning import Retuning, retuning_of
from tuccl.tuning.pipeline.run_options import read_options
from tuccl.tuning.pipeline.tuning_run import run
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_document, print_json
from tuccl.views.terminal.live_view import progress_of_probing, progress_of_run
from tuccl.views.terminal.table_display import print_result, print_retuned
from tuccl.workspace.atomic_file import absolute
from tuccl.workspace.default_place import DEFAULT_WORKSPACE
from tuccl.workspace.runs import Workspace

if TYPE_CHECKING:
    from tuccl.reports.table_result import RetunedPart


_DRY_RUN_RECORDS_NOTHING = "--record keeps what is measured, and --dry-run measures nothing"


@dataclass(frozen=True, slots=True)
class TuneCommand:
    """The options of `tuccl tune`."""

    options: RunOptions
    workspace: Path
    record_to: Path | None
    force: bool
    dry_run: bool
    resume: bool
    as_json: bool
    plain_log: bool = False


def init(
    options: RunOptions,
    root: Path,
    as_json: bool,
    record_to: Path | None = None,
    force: bool = False,
    plain_log: bool = False,
) -> int:
    """Run `tuccl init`: tune, after probing where no machine is given; a finished run stays."""
    record = _record_output(record_to, force)
    chosen = with_backend(options)

    def lead(probed: Callable[[], Topology], places: Places | None) -> int:
        machine = cache(probed)
        served = chosen if options.backend else with_served_backend(chosen, machine)
        prepared = prepare(served, machine, display.say_notes)
        return _run(prepared, root, as_json, record, places, plain_log)

    return with_ranks(
        chosen,
        lambda crew: probed_machine(
            root, crew, progress_of_probing(plain=plain_log), takes_one_gpu=options.takes_one_gpu
        ),
        lead,
        lambda: look_first(chosen, record),
    )


def tune(command: TuneCommand) -> int:
    """Run `tuccl tune`: the tuning stage alone."""
    if command.dry_run and command.record_to is not None:
        raise UsageError(_DRY_RUN_RECORDS_NOTHING)
    record = _record_output(command.record_to, command.force)
    if command.dry_run:
        return _plan(command)
    options = with_backend(command.options)

    def lead(probed: Callable[[], Topology], places: Places | None) -> int:
        prepared = prepare(options, probed, display.say_notes)
        if command.resume:
            identity = prepared.settings.identity(prepared.topology)
            workspace = Workspace(command.workspace)
            require_begun(workspace, identity, options, prepared.topology)
        root, as_json = command.workspace, command.as_json
        return _run(prepared, root, as_json, record, places, command.plain_log)

    return with_ranks(
        options,
        lambda crew: probed_machine(
            command.workspace,
            crew,
            progress_of_probing(plain=command.plain_log),
            takes_one_gpu=options.takes_one_gpu,
        ),
        lead,
        lambda: look_first(options, record),
    )


def _record_output(path: Path | None, force: bool) -> RecordOutput | None:
    if path is None:
        if force:
            raise UsageError("--force lets --record replace a file: name one, or leave it out")
        return None
    return RecordOutput(path, force)


def _plan(command: TuneCommand) -> int:
    def probed() -> Topology:
        raise UsageError("--dry-run needs --topology or --records: to probe is to measure")

    prepared = prepare(command.options, probed, display.say_notes)
    plan = make_plan(prepared.settings, prepared.request)
    if command.as_json:
        from tuccl.reports.json_form import SCHEMA_VERSION

        print_json(asdict(plan), SCHEMA_VERSION)
    else:
        print("\n".join(plan_lines(plan)))  # noqa: T201 - the command's result
    return ExitCode.OK


def _run(
    prepared: Prepared,
    root: Path,
    as_json: bool,
    record_to: RecordOutput | None,
    places: Places | None,
    plain_log: bool,
) -> int:
    progress = progress_of_run(plain=plain_log)
    result = run(prepared, Workspace(root), record_to, places, progress, display.say)
    if result.already_done:
        display.say(f"nothing to do: {root} holds this table already")
    else:
        display.say(f"table and bundle written to {result.run.root}")
    print_result(result, as_json)
    display.say(f"next: {_ship_command(root)}, then source DIR/tuccl.env in the job")
    return ExitCode.OK


def _ship_command(root: Path) -> str:
    """Return the command that ships the table of this workspace."""
    named = "" if root == DEFAULT_WORKSPACE else f" --workspace {shlex.quote(str(root))}"
    return f"tuccl ship DIR{named}"


def retune(
    machine: str | None,
    root: Path,
    as_json: bool,
    plain_log: bool = False,
    dry_run: bool = False,
    record_to: Path | None = None,
    force: bool = False,
) -> int:
    """Run `tuccl retune`; a machine that was probed is probed again."""
    record_output = _record_output(record_to, force)
    if dry_run and record_output is not None:
        raise UsageError(_DRY_RUN_RECORDS_NOTHING)
    old = current_run(root)
    record = old.run.record()
    options = read_options(record.options if record is not None else {})
    if machine is not None:
        options = replace(options, topology=machine)
    # As it was tuned, whatever became of the user's file.
    if options.workload is not None and old.run.workload.is_file():
        options = replace(options, workload=str(absolute(old.run.workload)))
    probed: list[Topology] = []

    def probe(crew: Crew) -> Topology:
        shown = progress_of_probing(plain=plain_log)
        probed.append(probe_again(crew, shown, takes_one_gpu=options.takes_one_gpu))
        return probed[-1]

    def lead(found: Callable[[], Topology], places: Places | None) -> int:
        prepared = prepare(options, found, display.say_notes, only_possible_shapes=True)
        retuning = retuning_of(old, prepared, Workspace(root), display.say)
        if dry_run:
            return _tell_plan(retuning, as_json)
        return _retune(old, retuning, probed, root, as_json, places, plain_log, record_output)

    return with_ranks(
        options, probe, lead, lambda: look_first(options, record_output), needs_nccl=False
    )


def _tell_plan(retuning: Retuning, as_json: bool) -> int:
    """Print what would be measured again, and why."""
    change, plan = retuning.change, retuning.plan
    if as_json:
        from tuccl.reports.table_result import RetunePlanResult

        document = RetunePlanResult(
            changes=change.changes,
            before=change.before,
            now=change.now,
            parts=_parts(plan),
            gone={} if plan is None else dict(plan.gone),
            kept=0 if plan is None else len(plan.kept),
            measured=0 if plan is None else len(plan.measured),
        )
        print_document(document)
    elif plan is None:
        display.print_lines([f"the machine is as it was ({change.same}): nothing to measure"])
    else:
        display.print_lines(f"changed: {sentence}" for sentence in change.changes)
        display.print_lines(retune_lines(plan))
    return ExitCode.OK


def _parts(plan: RetunePlan | None) -> tuple[RetunedPart, ...]:
    from tuccl.reports.table_result import RetunedPart

    if plan is None:
        return ()
    return tuple(
        RetunedPart(
            name=each.name,
            shape=each.shape,
            operation=operation,
            keys=count,
            fate=each.fate.value,
            why=each.why,
        )
        for each in plan.shapes
        for operation in plan.operations
        if (count := plan.keys(each.shape, operation))
    )


def _retune(
    old: FinishedRun,
    retuning: Retuning,
    probed: Sequence[Topology],
    root: Path,
    as_json: bool,
    places: Places | None,
    plain_log: bool,
    record_to: RecordOutput | None,
) -> int:
    change, plan, result = retuning.change, retuning.plan, old
    if plan is not None:
        for machine in probed:
            keep(machine, root)
        for sentence in change.changes:
            display.say(f"changed: {sentence}")
        for line in retune_lines(plan):
            display.say(f"plan: {line}")
        progress = progress_of_run(plain=plain_log)
        result = run(
            retuning.prepared, Workspace(root), record_to, places, progress, display.say,
            retuning.carried,
        )  # fmt: skip
        display.say(f"the old table is kept in {old.run.root}")
    else:
        display.say(f"the machine is as it was ({change.same}): the table stands")
        if record_to is not None:
            display.say("note: nothing was measured, so no record is written")
    if as_json:
        from tuccl.reports.json_form import fields_of
        from tuccl.reports.table_result import RetuneResult, table_result

        document = RetuneResult(
            **fields_of(table_result(result, gains_of(result))),
            changes=change.changes,
            before=change.before,
            now=change.now,
            tuned=not result.already_done,
            kept=None if plan is None else old.run.root,
            parts=_parts(plan),
            against_old=None if plan is None else result.report.retuned,
        )
        print_document(document)
    elif plan is not None:
        print_result(result, as_json)
        print_retuned(result.report)
    if plan is not None:
        display.say(f"next: {_ship_command(root)}, to the directory that jobs load")
    return ExitCode.OK
