"""The commands `tuccl learned show` and `import`: what jobs learned with TUCCL_LEARN=1."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import typer

from tuccl.cli.command import HelpGroup, command
from tuccl.errors import ExitCode
from tuccl.options.option import (
    AS_JSON,
    DEFAULT_WORKSPACE,
    SCOPE,
    WORKSPACE,
    Option,
    metadata,
    option,
)

_FILES = metadata(
    Option("", "Files that one job wrote (TUCCL_LEARN_FILE).", "FILE...", positional=True)
)

app = typer.Typer(
    name="learned",
    cls=HelpGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Look at what a job learned, and make it the next table.",
)


@dataclass(frozen=True)
class LearnedShowOptions:
    """The options of `tuccl learned show`."""

    files: tuple[str, ...] = field(metadata=_FILES)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl learned show /shared/learned/*.json")
def show(options: LearnedShowOptions) -> int:
    """Show what a job learned: of each size what runs, its time and NCCL's own."""
    from tuccl.reports.learned import read_learned
    from tuccl.views.terminal.json_output import print_either
    from tuccl.views.terminal.learned_display import print_learned

    learned = read_learned([Path(name) for name in options.files])
    print_either(learned, options.as_json, print_learned)
    return ExitCode.OK


@dataclass(frozen=True)
class LearnedImportOptions:
    """The options of `tuccl learned import`."""

    files: tuple[str, ...] = field(metadata=_FILES)
    job: str = option(
        SCOPE,
        "Name of the job, for the provenance of its entries; else its hosts and when it ended.",
        "NAME",
        default="",
    )
    workspace: Path = field(default=DEFAULT_WORKSPACE, metadata=WORKSPACE)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl learned import /shared/learned/*.json --job llama-7b", name="import")
def import_learned(options: LearnedImportOptions) -> int:
    """Make what a job learned the next table of the workspace, which `tuccl ship` ships.

    The table before stays in the workspace: `tuccl runs` lists both.
    """
    from tuccl.tuning.pipeline import learned_run
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_either
    from tuccl.views.terminal.learned_display import print_imported
    from tuccl.workspace.runs import Workspace

    done = learned_run.import_learned(
        Workspace(options.workspace), [Path(name) for name in options.files], options.job
    )
    print_either(done, options.as_json, print_imported)
    if done.run == done.before:
        display.say(f"nothing to change: run {done.run} stays the current one")
    else:
        display.say(f"run {done.run} is the current one; to ship it: tuccl ship DIR")
    return ExitCode.OK


show.add_to(app)
import_learned.add_to(app)
