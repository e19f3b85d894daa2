"""`tuccl retune`: looks at the machine again and tunes again only if it changed.

A changed machine gives a new run beside the old one. The old table stays the current one until the
new run is complete, and stays in the workspace after that.
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.changes import describe_changes
from probes.topology import Topology


@dataclass(frozen=True)
class MachineChange:
    """The machine of a workspace against the machine now."""

    changes: tuple[str, ...]
    """One sentence each; empty when the table still fits."""
    before: str
    """Fingerprints."""
    now: str


def compare(before: Topology, now: Topology) -> MachineChange:
    """What changed; nothing when the fingerprints agree."""
    old, new = before.fingerprint(), now.fingerprint()
    if old == new:
        return MachineChange((), old, new)
    changes = describe_changes(before, now) or ("the structure differs in a way not named",)
    return MachineChange(tuple(changes), old, new)
