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
    from tuccl.shipping.doctor.ship_check import CheckedHost


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
        print_document(shipped)
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
    from tuccl.shipping.doctor.ship_check import ShipCheck
    from tuccl.views.terminal.findings_display import check_lines

    shipped, tasks = absolute(directory), mpi_tasks(os.environ)

    def judge(verdicts: Sequence[CheckedHost]) -> int:
        checked = ShipCheck(shipped, tuple(verdicts))
        if as_json:
            print_document(checked)
        else:
            display.print_lines(check_lines(checked))
        return ExitCode.OK if checked.loads else ExitCode.FINDING

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
    from tuccl.shipping.shown_table import shown_table
    from tuccl.views.terminal.shipped_display import print_shipped

    shown = shown_table(view_shipped(absolute(directory)))
    if shown.profile_left_out:
        display.say_notes([PROFILE_LEFT_OUT])
    if as_json:
        print_document(shown)
    else:
        print_shipped(shown)
    return ExitCode.FINDING if shown.problems else ExitCode.OK
