"""The machine of a workspace whose `init` was given none: probed once, kept as `probed.json`.

Measured figures scatter from probe to probe, so a run that continues must not probe again: it works
on the machine that it began with. `retune` probes again, and replaces the file if the machine
changed.
"""

from __future__ import annotations

from pathlib import Path

from probes.cluster.crew import Crew
from probes.files.read import read_topology
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from probes.topology.validation import validate
from tuccl.console import display
from tuccl.hosts.probing import probe_for_init
from tuccl.workspace.atomic_file import cannot_write, require_room, write_atomically


def probed_machine(workspace: Path, crew: Crew) -> Topology:
    """The machine that was probed for this workspace, now if it was not yet.

    Raises:
        ProbeError: what the hosts show cannot be tuned, or the kept file is damaged.
        WorkspaceError: the directory cannot be written.
    """
    path = _path(workspace)
    if path.is_file():
        display.say(f"machine: {path}; `tuccl retune` looks whether it changed")
        kept = read_topology(path)
        display.say_notes(kept.notes)
        return kept
    require_room(path)
    machine = probe_again(crew)
    keep(machine, workspace)
    return machine


def probe_again(crew: Crew) -> Topology:
    """The machine as it is now.

    Raises:
        ProbeError: what the hosts show cannot be tuned.
    """
    machine = probe_for_init(crew)
    validate(machine)
    return machine


def keep(machine: Topology, workspace: Path) -> None:
    """Work with this machine from now on.

    Raises:
        WorkspaceError: the directory cannot be written.
    """
    try:
        workspace.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(workspace, error) from error
    write_atomically(_path(workspace), topology_to_json(machine))


def _path(workspace: Path) -> Path:
    return workspace / "probed.json"
