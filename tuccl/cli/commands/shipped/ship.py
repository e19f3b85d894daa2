"""The commands `tuccl ship` and `show`: a table for jobs, written and read."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probes.cluster.mpi import mpi_tasks
from probes.network.racks.hostlist import expand_host_list
from tuccl.errors import ExitCode, UsageError, exit_code_of
from tuccl.shipping import shipment
from tuccl.shipping.forms import Form
from tuccl.shipping.manifest import PROFILE_LEFT_OUT
from tuccl.shipping.shipped_view import view_shipped
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_document
from tuccl.workspace.atomic_file import absolute
from tuccl.workspace.runs import Workspace

if TYPE_CHECKING:
    from tuccl.reports.documents.doctor import CheckedHost


def ship(
    directory: Path,
    root: Path,
    as_json: bool,
    force: bool = False,
    forms: Sequence[Form] = (),
    place: Path | None = None,
) -> int:
    """Run `tuccl ship DIR`."""
    shipped = shipment.ship(
        Workspace(root).current(), directory, force=force, forms=forms, place=place
    )
    if as_json:
        from tuccl.reports.documents.shipped import ShipDocument

        files = [str(path) for path in shipped.files]
        print_document(ShipDocument(files=files, caveats=list(shipped.caveats)))
    else:
        for path in shipped.files:
            print(path)  # noqa: T201 - the command's result
        display.say(f"a job loads it with: . {shlex.quote(str(shipped.files[-1]))}")
    display.say_notes(shipped.caveats)
    return ExitCode.OK


def check(
    directory: Path, hosts: str | None, launcher: str, remote_python: str, as_json: bool
) -> int:
    """Run `tuccl ship DIR --check`, on the hosts of an MPI job or those that are named.

    Raises:
        UsageError: Hosts are named within an MPI job, or nothing says how to reach them.
    """
    from tuccl.api.hosts import shipped_hosts
    from tuccl.views.terminal.shipped.ship_check_display import print_check

    shipped, tasks = absolute(directory), mpi_tasks(os.environ)

    def judge(verdicts: Sequence[CheckedHost]) -> int:
        return ExitCode.OK if print_check(shipped, verdicts, as_json) else ExitCode.FINDING

    if hosts and tasks > 1:
        raise UsageError(f"--hosts within {tasks} tasks of MPI: start it once, or without the list")
    if (launcher or remote_python) and not hosts:
        raise UsageError("--launcher and --remote-python say how to reach --hosts: name these, too")
    if tasks > 1:
        return shipped_hosts.verdicts_of_ranks(shipped, tasks, judge, exit_code_of)
    if not hosts:
        return judge([shipped_hosts.verdict_here(shipped)])
    names = tuple(dict.fromkeys(expand_host_list(hosts)))
    reach = shipped_hosts.Reach(names, launcher, remote_python)
    return judge(shipped_hosts.verdicts_of_hosts(shipped, reach))


def show(directory: Path, as_json: bool) -> int:
    """Run `tuccl show DIR`."""
    from tuccl.views.terminal.shipped.shipped_display import print_shipped, show_document

    view = view_shipped(absolute(directory))
    lost_profile = view.manifest is not None and view.manifest.lost_profile
    if lost_profile:
        display.say_notes([PROFILE_LEFT_OUT])
    shown = show_document(view)
    if as_json:
        print_document(shown)
    else:
        print_shipped(shown, lost_profile=lost_profile)
    return ExitCode.FINDING if shown.problems else ExitCode.OK
