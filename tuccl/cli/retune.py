"""The command `tuccl retune`: tune again what a change of the machine touches."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tuccl.api.hosts.probe_options import Reach
from tuccl.cli.command import command
from tuccl.cli.init import OutputOptions
from tuccl.errors import ExitCode
from tuccl.options.option import MACHINE, OUTPUT, machine_name, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from probes.topology.graph import Topology
    from tuccl.crew.places import Places
    from tuccl.reports.table_document import RetunedPart
    from tuccl.reports.tuning_result import TuningResult
    from tuccl.tuning.pipeline.retune_plan import RetunePlan
    from tuccl.tuning.pipeline.retuning import Retuning


@dataclass(frozen=True)
class RetuneOptions:
    """The options that `tuccl retune` has beside those of its output."""

    topology: str | None = option(
        MACHINE,
        "The machine now; else the run's own file is read again, or the hosts probed.",
        "MACHINE",
        default=None,
        parse=machine_name,
    )
    dry_run: bool = option(
        OUTPUT, "Measure no key; print what would be measured again, and why.", default=False
    )


@command("tuccl retune --dry-run", "tuccl retune", "tuccl retune --topology topo.xml")
def retune(own: RetuneOptions, output: OutputOptions, reach: Reach) -> int:
    """Examine the machine again; if it changed, say how, keep the old table and tune again.

    Entries whose communicators do not touch the change are kept, the others measured again.
    """
    from tuccl.api.hosts.probed_machine import probe_again
    from tuccl.api.hosts.probing import with_hosts
    from tuccl.api.running import lead_run, look_first
    from tuccl.crew.started_rank import ranks_of_launcher
    from tuccl.reports.tuning_result import current_run
    from tuccl.tuning.pipeline.options_to_settings import read_options
    from tuccl.tuning.pipeline.preparing import prepare
    from tuccl.tuning.pipeline.retuning import retuning_of
    from tuccl.views.terminal import display
    from tuccl.views.terminal.live_view import progress_of
    from tuccl.workspace.atomic_file import absolute
    from tuccl.workspace.runs import Workspace

    reach.require_possible(ranks_of_launcher(os.environ))
    record_to = output.record_output(dry_run=own.dry_run)
    old = current_run(output.workspace)
    record = old.run.record()
    options = read_options(record.options if record is not None else {})
    if own.topology is not None:
        options = replace(options, topology=own.topology)
    # As it was tuned, whatever became of the user's file.
    if options.workload is not None and old.run.workload.is_file():
        options = replace(options, workload=str(absolute(old.run.workload)))
    probed: list[Topology] = []

    def lead(places: Places | None) -> int:
        def probe() -> Topology:
            shown = progress_of(plain=output.plain_log)
            machine = probe_again(places, shown, display.say, takes_one_gpu=options.takes_one_gpu)
            probed.append(machine)
            return machine

        def run_on(found: Callable[[], Topology], workers: Places | None) -> int:
            prepared = prepare(options, found, display.say_notes, only_possible_shapes=True)
            retuning = retuning_of(old, prepared, Workspace(output.workspace), display.say)
            if own.dry_run:
                return _print_plan(retuning, as_json=output.as_json)
            return _retune(old, retuning, probed, output, workers)

        first = partial(look_first, options, record_to, display.say_notes)
        note = display.say_notes
        return lead_run(options, places, probe, run_on, first, note, needs_nccl=False)

    return with_hosts(reach, lead, meeting=output.workspace)


def _print_plan(retuning: Retuning, *, as_json: bool) -> int:
    """Print what would be measured again, and why."""
    from tuccl.tuning.pipeline.retune_plan import plan_lines
    from tuccl.views.terminal.display import print_lines
    from tuccl.views.terminal.json_output import print_document

    change, plan = retuning.change, retuning.plan
    if as_json:
        from tuccl.reports.table_document import RetunePlanResult

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
        print_lines([f"the machine is as it was ({change.same}): nothing to measure"])
    else:
        print_lines(f"changed: {sentence}" for sentence in change.changes)
        print_lines(plan_lines(plan))
    return ExitCode.OK


def _parts(plan: RetunePlan | None) -> tuple[RetunedPart, ...]:
    from tuccl.reports.table_document import RetunedPart

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
    old: TuningResult,
    retuning: Retuning,
    probed: Sequence[Topology],
    output: OutputOptions,
    places: Places | None,
) -> int:
    from tuccl.api.hosts.probed_machine import keep
    from tuccl.search.trials.events import Listener
    from tuccl.tuning.pipeline.retune_plan import plan_lines
    from tuccl.tuning.pipeline.tuning_run import run
    from tuccl.views.terminal.display import say
    from tuccl.views.terminal.live_view import progress_of
    from tuccl.views.terminal.table_display import print_result, print_retuned
    from tuccl.workspace.runs import Workspace

    change, plan, result = retuning.change, retuning.plan, old
    record_to = output.record_output()
    if plan is None:
        say(f"the machine is as it was ({change.same}): the table stands")
        if record_to is not None:
            say("note: nothing was measured, so no record is written")
    else:
        for machine in probed:
            keep(machine, output.workspace)
        for sentence in change.changes:
            say(f"changed: {sentence}")
        for line in plan_lines(plan):
            say(f"plan: {line}")
        listener = Listener(say, progress_of(plain=output.plain_log))
        workspace = Workspace(output.workspace)
        result = run(retuning.prepared, workspace, listener, record_to, places, retuning.carried)
        say(f"the old table is kept in {old.run.root}")
    if output.as_json:
        _print_document(result, retuning, None if plan is None else old)
    elif plan is not None:
        print_result(result, as_json=False)
        print_retuned(result.report)
    if plan is not None:
        say(f"next: {output.ship_command}, to the directory that jobs load")
    return ExitCode.OK


def _print_document(result: TuningResult, retuning: Retuning, before: TuningResult | None) -> None:
    from tuccl.reports.json_form import fields_of
    from tuccl.reports.table_document import RetuneResult, table_document
    from tuccl.views.terminal.json_output import print_document

    document = RetuneResult(
        **fields_of(table_document(result)),
        changes=retuning.change.changes,
        before=retuning.change.before,
        now=retuning.change.now,
        tuned=not result.already_done,
        kept=None if before is None else before.run.root,
        parts=_parts(retuning.plan),
        against_old=None if before is None else result.report.retuned,
    )
    print_document(document)
