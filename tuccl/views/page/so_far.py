"""`RunSoFar`: a run that goes on, or was stopped, by its log of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from statistics import geometric_mean

from probes.topology.graph import Topology
from tuccl.errors import WorkspaceError
from tuccl.measuring.backends.backend_choice import BACKENDS
from tuccl.options.run_options import REPLAY
from tuccl.quantities import parse_seconds
from tuccl.reports.evidence import Evidence, evidence_of_backend
from tuccl.reports.tuning_result import read_machine
from tuccl.schedules.saved_candidates import saved_names
from tuccl.search.trials.best_so_far import KeySoFar
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.placement import ANYWHERE
from tuccl.tuning.pipeline.options_to_settings import read_options
from tuccl.views.page.keys import ShownKey, TimedCall, shape_words, timed
from tuccl.views.page.search import SearchProgress, search_progress
from tuccl.workspace.measurement_log import Measurement, read_history, read_log
from tuccl.workspace.runs import Run, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiguresSoFar(ShownKey):
    """A key that stock NCCL was timed on, and the best configuration of it so far."""

    best: TimedCall
    best_runs: str
    """The best configuration: `ring LL128 ch16`."""
    tried: int
    """Number of configurations that were measured or failed."""
    failed: int

    @property
    def gain(self) -> float:
        """Stock NCCL's time over that of the best so far."""
        return self.stock.time_us / self.best.time_us


@dataclass(frozen=True)
class RunSoFar:
    """A run without a table, as far as its files show it."""

    place: str
    """The workspace as the user named it."""
    run: Run
    begun_at: str
    """When it began: ISO 8601, UTC."""
    backend: str
    source: str
    """Backend that took or computed the times, also where a record of it is replayed."""
    budget_s: float | None
    """Machine time that measuring may take, if it is limited."""
    machine: Topology | None
    """The machine, once the run has written it."""
    keys: tuple[KeyFiguresSoFar, ...]
    search: SearchProgress

    @property
    def evidence(self) -> Evidence:
        """The evidence behind the times."""
        return evidence_of_backend(self.source)

    @property
    def gain(self) -> float | None:
        """Geometric mean of the gains of the best so far, once there is a key."""
        return geometric_mean(key.gain for key in self.keys) if self.keys else None


def read_so_far(run: Run, place: Path) -> RunSoFar:
    """Read what is known of a run.

    Args:
        run: The run.
        place: Its workspace as the user named it.

    Raises:
        WorkspaceError: A file is damaged, or of another version.
    """
    record = run.record()
    if record is None:
        raise WorkspaceError(f"run {run.root.name} of {place} has no run.json; run `tuccl init`")
    machine = read_machine(run) if run.topology.exists() else None
    history = read_history(run.measurements, record.identity)
    names = saved_names(run.schedules)
    backend = read_options(record.options).backend_name
    source = _source(run, record, backend)
    kind = BACKENDS.get(source)
    keys = _keys(history, names, runs_schedules=kind is not None and kind.has_executor)
    return RunSoFar(
        place=str(place),
        run=run,
        begun_at=record.tuned_at,
        backend=backend,
        source=source,
        budget_s=_budget_s(record),
        machine=machine,
        keys=keys,
        search=search_progress(keys, history, names),
    )


def _source(run: Run, record: RunRecord, backend: str) -> str:
    """Return the backend behind a record that is replayed, as the log names it."""
    if backend != REPLAY:
        return backend
    source = read_log(run.measurements, record.identity).source
    return backend if source is None else source.provenance.backend


def _budget_s(record: RunRecord) -> float | None:
    budget = record.options.get("budget")
    return None if budget is None else parse_seconds(str(budget), "budget in run.json")


def _keys(
    history: Sequence[Measurement], names: Mapping[str, str], *, runs_schedules: bool
) -> tuple[KeyFiguresSoFar, ...]:
    """Return the keys that stock NCCL was timed on first; sizes of borders are timed later."""
    opening = takewhile(lambda measured: measured.config == STOCK, history)
    tasks = [measured.task for measured in opening if measured.task.placement == ANYWHERE]
    found = {task: KeySoFar(runs_schedules) for task in tasks}
    for measured in history:
        key = found.get(measured.task)
        if key is None:
            continue
        if measured.recorded.failed:
            key.fail(measured.config)
        else:
            key.note(measured.config, measured.recorded.samples_us)
    several = len({task.shape for task in found}) > 1
    return tuple(
        _figures(task, found[task], names, shape_words(task.shape) if several else "")
        for task in sorted(found)
        if STOCK in found[task].times_us
    )


def _figures(
    task: Task, key: KeySoFar, names: Mapping[str, str], shape_name: str
) -> KeyFiguresSoFar:
    best = key.best or STOCK
    return KeyFiguresSoFar(
        operation=task.operation,
        size_bytes=task.size_bytes,
        shape=task.shape,
        shape_name=shape_name,
        stock=timed(task, key.times_us[STOCK]),
        best=timed(task, key.times_us[best]),
        best_runs=best.described(names),
        tried=key.tried,
        failed=len(key.failed),
    )
