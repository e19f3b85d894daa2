"""The machine of a workspace whose `init` was given none: probed once, kept as `probed.json`.

Measured figures vary from probe to probe, so a run that continues does not probe again: it keeps
the machine that it began with. `retune` probes again, and replaces the file if the machine
changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from probes.files.read import read_topology
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from probes.topology.validation import check_structure, validate
from tuccl.api.hosts.probing import probe_for_init
from tuccl.crew.places import Places
from tuccl.search.trials.events import Progress
from tuccl.workspace.atomic_file import cannot_write, require_room, write_atomically


def probed_machine(
    workspace: Path,
    places: Places | None,
    shown: Callable[[], AbstractContextManager[Progress]],
    tell: Callable[[str], None],
    *,
    takes_one_gpu: bool = False,
) -> Topology:
    """Return the machine of this workspace, probed now if it was not before.

    Args:
        workspace: Directory that keeps the machine.
        places: Places of the hosts to probe; this host alone if left out.
        shown: Opens the display of progress.
        tell: Called with each note, a line.
        takes_one_gpu: Whether one GPU is enough.

    Raises:
        MachineError: The machine cannot be tuned, or the kept file is damaged.
        WorkspaceError: The directory cannot be written.
    """
    path = _path(workspace)
    if path.is_file():
        tell(f"machine: {path}; `tuccl retune` looks whether it changed")
        kept = read_topology(path)
        for note in kept.notes:
            tell(f"note: {note}")
        return kept
    require_room(path)
    machine = probe_again(places, shown, tell, takes_one_gpu=takes_one_gpu)
    keep(machine, workspace)
    return machine


def probe_again(
    places: Places | None,
    shown: Callable[[], AbstractContextManager[Progress]],
    tell: Callable[[str], None],
    *,
    takes_one_gpu: bool = False,
) -> Topology:
    """Probe the machine now; arguments as for `probed_machine`.

    Raises:
        MachineError: The machine cannot be tuned.
    """
    machine = probe_for_init(places, shown, tell)
    if takes_one_gpu and machine.gpus:
        check_structure(machine)
    else:
        validate(machine)
    return machine


def keep(machine: Topology, workspace: Path) -> None:
    """Keep this machine as the workspace's.

    Raises:
        WorkspaceError: The directory cannot be written.
    """
    try:
        workspace.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(workspace, error) from error
    write_atomically(_path(workspace), topology_to_json(machine))


def _path(workspace: Path) -> Path:
    return workspace / "probed.json"
