"""The commands `tuccl history`, `rollback` and `diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.parameters.fields import parser_of
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption
from tuccl.options.option import OUTPUT, named_path

HISTORY_EXAMPLES = examples("tuccl history /shared/tuccl")
ROLLBACK_EXAMPLES = examples("tuccl rollback /shared/tuccl", "tuccl rollback /shared/tuccl 3")
DIFF_EXAMPLES = examples(
    "tuccl diff /shared/tuccl tuccl-workspace",
    "tuccl diff /shared/tuccl@2 /shared/tuccl@3",
)
_PLACE = (
    "A workspace, a run of one, a directory of `tuccl ship`, or a version that it keeps: DIR@3."
)

DirectoryArgument = Annotated[
    Path,
    typer.Argument(
        help="A directory of `tuccl ship`.", parser=parser_of(named_path), metavar="DIR"
    ),
]


def history(directory: DirectoryArgument, as_json: JsonOption = False) -> None:
    """List the tables that a shipped directory keeps: when, of which run and machine, what gain.

    Exit code 1: files of a version are missing or damaged.
    """
    from tuccl.cli.commands.shipped import versions

    raise typer.Exit(versions.history(directory, as_json))


def rollback(
    directory: DirectoryArgument,
    version: Annotated[
        str | None,
        typer.Argument(
            help="Number or sum of a version; the one before the current one if not given.",
            metavar="VERSION",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Go back even beside files that are not its own, which stay, or to the table of "
            "another machine.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a table that a shipped directory keeps its current one; running jobs keep theirs."""
    from tuccl.cli.commands.shipped import versions

    raise typer.Exit(versions.rollback(directory, version, force, as_json))


def diff(
    first: Annotated[str, typer.Argument(help=_PLACE, metavar="A")],
    second: Annotated[str, typer.Argument(help="What A is compared with.", metavar="B")],
    as_json: JsonOption = False,
) -> None:
    """Compare two tables: machine, NCCL, process profile, and what changed for each key.

    Exit code 1: they differ.
    """
    from tuccl.cli.commands.shipped import versions

    raise typer.Exit(versions.diff(first, second, as_json))
