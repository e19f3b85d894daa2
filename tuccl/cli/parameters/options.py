"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.options.option import OUTPUT

WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace",
        metavar="DIR",
        help="Directory that holds the runs.",
        readable=False,
        rich_help_panel=OUTPUT,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON to standard output.", rich_help_panel=OUTPUT)
]
PlainLogOption = Annotated[
    bool,
    typer.Option(
        "--plain-log",
        help="Print lines on a terminal, too, instead of the live view.",
        rich_help_panel=OUTPUT,
    ),
]
RecordToOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE.parquet",
        help="Write all measurements to this file.",
        readable=False,
        rich_help_panel=OUTPUT,
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Let --record replace a file that is not this run's record.",
        rich_help_panel=OUTPUT,
    ),
]
