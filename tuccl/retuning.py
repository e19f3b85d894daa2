"""`tuccl retune`: looks at the machine again and tunes again only if it changed.

The old run moves to `history/` whole, so its table can be shipped again if the change is undone.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from probes.changes import describe_changes

from probes.topology import Topology
from probes.topology_json import topology_from_json
from tuccl.atomic_file import cannot_write
from tuccl.errors import WorkspaceError
from tuccl.workspace import RunRecord, Workspace, read_text_if_present

_KEPT_IN_PLACE = {"lock", "history"}


@dataclass(frozen=True)
class MachineChange:
    """The machine of a workspace against the machine now."""

    changes: tuple[str, ...]
    """One sentence each; empty when the table still fits."""
    before: str
    """Fingerprints."""
    now: str


def previous_machine(workspace: Workspace) -> tuple[RunRecord, Topology]:
    """What the workspace was tuned for.

    Raises:
        WorkspaceError: when the workspace holds no run.
    """
    record = workspace.record()
    text = read_text_if_present(workspace.topology)
    if record is None or text is None:
        raise WorkspaceError(
            f"workspace {workspace.root} holds no run; run `tuccl init` there first"
        )
    return record, topology_from_json(text, str(workspace.topology))


def compare(before: Topology, now: Topology) -> MachineChange:
    """What changed; nothing when the fingerprints agree."""
    old, new = before.fingerprint(), now.fingerprint()
    if old == new:
        return MachineChange((), old, new)
    changes = describe_changes(before, now) or ("the structure differs in a way not named",)
    return MachineChange(tuple(changes), old, new)


def archive(workspace: Workspace, fingerprint: str) -> Path:
    """Move the run into `history/`, run.json last, and return where it went.

    A kill in the middle leaves run.json in place, so the same command archives the rest.

    Raises:
        WorkspaceError: when files cannot be moved.
    """
    target = workspace.history / fingerprint
    number = 1
    while (target / "run.json").exists():
        number += 1
        target = workspace.history / f"{fingerprint}-{number}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        names = [p for p in sorted(workspace.root.iterdir()) if p.name not in _KEPT_IN_PLACE]
        for path in sorted(names, key=lambda p: p.name == "run.json"):
            shutil.move(path, target / path.name)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target
