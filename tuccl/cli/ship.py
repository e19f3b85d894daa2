"""The command `tuccl ship`: a table for jobs, or a check that the hosts of a job load it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.api.hosts.probe_options import Reach
from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import (
    AS_JSON,
    DEFAULT_WORKSPACE,
    NETWORK,
    OUTPUT,
    SCOPE,
    WORKSPACE,
    named_path,
    option,
)

if TYPE_CHECKING:
    from tuccl.crew.places import Places


@dataclass(frozen=True)
class ShipOptions:
    """The options of `tuccl ship`."""

    directory: Path = option(
        "", "Where the job finds it.", "DIR", positional=True, parse=named_path
    )
    force: bool = option(
        OUTPUT,
        "Ship even beside files that are not its own, which stay, or over the table of "
        "another machine.",
        default=False,
    )
    forms: str | None = option(
        OUTPUT,
        "Forms beside tuccl.env: env, nccl-conf, slurm, enroot, kubernetes, dlopen.",
        "FORM,...",
        default=None,
        names=("--to",),
    )
    place: Path | None = option(
        OUTPUT,
        "Where jobs find the directory, if not at DIR.",
        "PATH",
        default=None,
        names=("--at",),
        parse=named_path,
    )
    check: bool = option(
        NETWORK,
        "Write nothing; check whether jobs on this host, the hosts of an MPI job, --hosts "
        "or --ray would load what was shipped.",
        default=False,
    )
    workspace: Path = field(default=DEFAULT_WORKSPACE, metadata=WORKSPACE)
    run: str | None = option(
        SCOPE,
        "The run to ship, as `tuccl runs` names it; else the current one.",
        "RUN",
        default=None,
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl ship /shared/tuccl",
    ". /shared/tuccl/tuccl.env",
    "tuccl ship /shared/tuccl --run 1b8f83dfea6940c7",
    "tuccl ship /shared/tuccl --to slurm,enroot --at /opt/tuccl",
    "srun --mpi=pmix --ntasks-per-node=1 tuccl ship /shared/tuccl --check",
    helps={"hosts": "Hosts to check, as node[01-16],login."},
)
def ship(options: ShipOptions, reach: Reach) -> int:
    """Write bundle, plugin and a tuccl.env that a job sources; --to adds other forms of it.

    With --check exit code 1: jobs on these hosts would not all load one table.
    """
    from tuccl.shipping import shipment
    from tuccl.shipping.forms import parse_forms
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_document
    from tuccl.views.terminal.shipped_display import shipped_line
    from tuccl.workspace.runs import Workspace

    if options.check:
        return _check(options, reach)
    if reach != Reach():
        raise UsageError("--hosts, --ray, --launcher and --remote-python are for --check: add it")
    workspace = Workspace(options.workspace)
    shipped = shipment.ship(
        workspace.current() if options.run is None else workspace.named(options.run),
        options.directory,
        force=options.force,
        forms=() if options.forms is None else parse_forms(options.forms),
        place=options.place,
    )
    if options.as_json:
        print_document(shipped)
    else:
        for path in shipped.files:
            print(path)
        display.say(shipped_line(shipped))
        display.say(f"a job loads it with: . {shlex.quote(str(shipped.files[-1]))}")
    display.say_notes(shipped.caveats)
    return ExitCode.OK


def _check(options: ShipOptions, reach: Reach) -> int:
    """Check whether jobs would load the table, on the hosts of an MPI job or those named.

    Raises:
        UsageError: Hosts are named within an MPI job, or nothing says how to reach them.
    """
    from tuccl.api.hosts import shipped_hosts
    from tuccl.api.hosts.probing import with_hosts
    from tuccl.crew.started_rank import ranks_of_launcher
    from tuccl.shipping.doctor.ship_check import ShipCheck
    from tuccl.views.terminal.display import print_lines
    from tuccl.views.terminal.findings_display import check_lines
    from tuccl.views.terminal.json_output import print_document
    from tuccl.workspace.atomic_file import absolute

    writes = (options.forms, options.place, options.run)
    if options.force or any(given is not None for given in writes):
        raise UsageError("--check writes nothing: leave out --to, --at, --run and --force")
    reach.require_possible(ranks_of_launcher(os.environ))
    shipped = absolute(options.directory)

    def judge(places: Places | None) -> int:
        checked = ShipCheck(shipped, tuple(shipped_hosts.verdicts(shipped, places)))
        if options.as_json:
            print_document(checked)
        else:
            print_lines(check_lines(checked))
        return ExitCode.OK if checked.loads else ExitCode.FINDING

    return with_hosts(reach, judge)
