"""`tuccl tune --resume`: continues a run, and never begins another one by mistake.

A run belongs to one machine, one space and one backend. If any of them differs, an error names
the difference, and no new run begins.
"""

from __future__ import annotations

from dataclasses import asdict

from pydantic import JsonValue

from probes.topology.graph import Topology
from tuccl.errors import UsageError, WorkspaceError
from tuccl.options.run_options import RunOptions
from tuccl.reports.tuning_result import read_machine
from tuccl.tuning.pipeline.options_to_settings import read_options
from tuccl.workspace.runs import Run, RunRecord, Workspace

_LABELS = {"schedules": "whether schedules are tried", "own_schedules": "--schedules"}


def require_begun(
    workspace: Workspace, identity: str, options: RunOptions, topology: Topology
) -> None:
    """Require that the run of this identity was begun.

    Raises:
        UsageError: it was not; the message names the difference from the latest run.
        WorkspaceError: a run's files are damaged.
    """
    if workspace.run(identity).record() is not None:
        return
    begun = [
        (record.tuned_at, run.root.name, run, record)
        for run in workspace.runs()
        if (record := run.record()) is not None
    ]
    if not begun:
        raise UsageError(
            f"nothing to resume: no run was begun in {workspace.root}; leave out --resume"
        )
    _, name, run, record = max(begun, key=lambda found: found[:2])
    raise UsageError(
        f"nothing to resume: the latest run in {workspace.root} ({name}) differs in "
        f"{_difference(run, record, options, topology)}; repeat its command, or leave out --resume "
        "to begin another run"
    )


def _difference(run: Run, record: RunRecord, options: RunOptions, topology: Topology) -> str:
    before, now = asdict(read_options(record.options)), asdict(options)
    changed = [
        f"{_label(name)} ({_shown(before[name])} there, {_shown(now[name])} here)"
        for name in now
        if before[name] != now[name]
    ]
    if changed:
        return ", ".join(changed)
    try:
        begun_on = read_machine(run).fingerprint()
    except WorkspaceError:
        begun_on = "unknown"
    fingerprint = topology.fingerprint()
    if begun_on != fingerprint:
        return f"the machine (topology {begun_on} there, {fingerprint} here)"
    return "the machine's figures, the record, the version of NCCL, or the release of TuCCL"


def _label(name: str) -> str:
    return _LABELS.get(name, f"--{name.replace('_', '-')}")


def _shown(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not given" if value is None else str(value)
