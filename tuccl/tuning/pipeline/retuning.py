"""`tuccl retune`: probes the machine again, and tunes again only what a change touches.

A change leads to a new run beside the old one. The old table stays current until the new run is
complete, and stays in the workspace after that. Keys whose communicators the change does not touch
keep their entries (`tuccl.tuning.pipeline.retune_plan`); the others are tuned again, from what was
best before. Where the workspace has a run of the very machine, that run is current again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from probes.comparison.changes import describe_changes
from probes.topology.graph import Topology
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.reports.entries_by_settings import entries_by_settings
from tuccl.reports.report import read_report
from tuccl.reports.tuning_result import TuningResult, finished, read_machine
from tuccl.tuning.pipeline.carried_table import Carried, carried_from
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.retune_plan import Fate, RetunePlan, already_tuned, plan_retune
from tuccl.tuning.placing.kept import kept_entries
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.measurement_log import read_log
from tuccl.workspace.runs import Run, Workspace


@dataclass(frozen=True)
class MachineChange:
    """Differences between the machine of a run and the machine now."""

    changes: tuple[str, ...]
    """The changes, one sentence each; empty when the table still fits."""
    before: str
    """Fingerprint of the run's machine."""
    now: str
    """Fingerprint of the machine now."""
    everywhere: tuple[str, ...] = ()
    """Those of the changes that touch every key: of NCCL, of the variables that a site sets, or of
    the conditions of faked nodes."""
    nccl: str = ""
    """The version of NCCL, for people; empty where NCCL is not measured."""

    @property
    def same(self) -> str:
        """The compared values, for people, where nothing changed."""
        return ", ".join(filter(None, [f"topology {self.now}", self.nccl]))


def changes_since(
    run: Run, now: Topology, settings: RunSettings, tell: Callable[[str], None] = lambda _: None
) -> MachineChange:
    """Changes of the machine and of NCCL since a run.

    Args:
        run: The run whose table is current.
        now: The machine now.
        settings: Settings of the run that would follow, with the NCCL of this host.
        tell: Receives a message if the run's log is damaged.

    Raises:
        WorkspaceError: a file of the run is damaged.
    """
    change = compare(read_machine(run), now)
    report = read_report(run)
    change = _and_everywhere(change, settings.laboratory.changes_since(report.laboratory))
    if report.base is not None and settings.base is not None:
        change = _and_everywhere(change, base_changes(report.base, dict(settings.base)))
    if not backend_kind(settings.backend).measures_nccl:
        return change
    before = nccl_of(run, tell)
    if not settings.nccl:
        return replace(change, nccl=f"no NCCL found here to hold against {before}")
    change = _and_everywhere(change, nccl_change(before, settings.nccl))
    return replace(change, nccl=f"NCCL {settings.nccl}")


def _and_everywhere(change: MachineChange, sentences: Iterable[str]) -> MachineChange:
    added = tuple(sentences)
    return replace(
        change,
        changes=(*change.changes, *added),
        everywhere=(*change.everywhere, *added),
    )


@dataclass(frozen=True)
class Retuning:
    """The consequences of a change."""

    change: MachineChange
    plan: RetunePlan | None
    """None: nothing changed."""
    prepared: Prepared
    """The run that follows."""
    carried: Carried | None
    """None: nothing changed, the workspace has a run of this machine, or a record is replayed."""


def retuning_of(
    old: TuningResult,
    prepared: Prepared,
    workspace: Workspace,
    tell: Callable[[str], None] = lambda _: None,
) -> Retuning:
    """Find out what changed since a run, and plan what is measured again.

    Args:
        old: The run whose table is current.
        prepared: The run that would follow if all keys were tuned.
        workspace: Workspace of both.
        tell: Receives messages on damaged files, a line each.

    Raises:
        WorkspaceError: a file of the run is damaged.
    """
    topology, settings = prepared.topology, prepared.settings
    change = changes_since(old.run, topology, settings, tell)
    if not change.changes:
        return Retuning(change, None, prepared, None)
    before = read_machine(old.run)
    settings = replace(settings, added=old.report.added)
    prepared = replace(prepared, settings=settings)
    plan = plan_retune(before, topology, old.report, settings, change.everywhere)
    kind = backend_kind(settings.backend)
    if finished(workspace.run(settings.identity(topology))) is not None:
        return Retuning(change, already_tuned(plan), prepared, None)
    if kind.needs_record:
        return Retuning(change, plan, prepared, None)
    kept = kept_entries(
        before,
        topology,
        [each.shape for each in plan.shapes if plan.is_partial and each.fate is Fate.AGAIN],
        old.table.placements,
        partial(entries_by_settings, old.table, old.report),
    )
    carried = carried_from(old, plan, tell, jobs_run_schedules=kind.has_executor, kept=kept)
    if plan.is_partial:
        settings = replace(settings, retuned_from=carried.identity)
    return Retuning(change, plan, replace(prepared, settings=settings), carried)


def compare(before: Topology, now: Topology) -> MachineChange:
    """Changes of the machine; none when the fingerprints agree."""
    old, new = before.fingerprint(), now.fingerprint()
    if old == new:
        return MachineChange((), old, new)
    changes = describe_changes(before, now) or ("the structure differs in a way not named",)
    return MachineChange(tuple(changes), old, new)


def nccl_of(run: Run, tell: Callable[[str], None] = lambda _: None) -> str:
    """Version of the NCCL that a run measured; empty where it measured none or its log is missing.

    Raises:
        WorkspaceError: a file of the run is damaged.
    """
    record = run.record()
    if record is None:
        return ""
    source = read_log(run.measurements, record.identity, tell).source
    version = None if source is None else source.provenance.nccl_version
    return "" if version is None else str(version)


def base_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence on each variable of NCCL that the site sets otherwise.

    Args:
        before: The variables that the table was measured with.
        now: Those that the site sets now.
    """
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            is_now = f"{name}={now[name]} is set" if name in now else f"{name} is not set"
            was = f"with {name}={before[name]}" if name in before else "without it"
            yield f"{is_now}, the table was measured {was}"


def nccl_change(before: str, now: str) -> tuple[str, ...]:
    """A sentence on a change of NCCL's version; none for the same version.

    Args:
        before: Version that the table was measured with; empty: unknown.
        now: Version that a job would load.
    """
    if not before or before == now:
        return ()
    again = "every key is measured again, stock NCCL included, because each version has its own"
    return (f"NCCL is {now}, the table was measured with {before}: {again} times and choices",)
