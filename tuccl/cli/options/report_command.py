"""`ReportCommand`: the options of `tuccl report`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.options.option import OUTPUT, SCOPE, named_path, option
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

DEFAULT_PAGE = Path("tuccl-report.html")


@dataclass(frozen=True)
class ReportCommand:
    """The options of `tuccl report`."""

    place: Path | None = field(
        default=None,
        metadata=option(
            "",
            "A workspace, or a directory of `tuccl ship`; else that of --workspace.",
            "PLACE",
            positional=True,
            parse=named_path,
        ),
    )
    second_place: Path | None = field(
        default=None,
        metadata=option(
            "",
            "A second one, which is compared with the first.",
            "OTHER",
            positional=True,
            parse=named_path,
        ),
    )
    output: Path = field(
        default=DEFAULT_PAGE,
        metadata=option(
            OUTPUT,
            "The page; an earlier report there is replaced.",
            "FILE.html",
            names=("--output", "-o"),
        ),
    )
    run: str | None = field(
        default=None,
        metadata=option(
            SCOPE, "A run of the first workspace, by its name; else the current one.", "RUN"
        ),
    )
    follow: bool = field(
        default=False,
        metadata=option(
            OUTPUT,
            "Serve the page of a run that goes on, to browsers on this host, until Ctrl-C.",
        ),
    )
    port: int | None = field(
        default=None,
        metadata=option(
            OUTPUT, "Port of --follow; a free one if not given.", "N", bounds=(1, 65535)
        ),
    )
    workspace: Path = DEFAULT_WORKSPACE
    as_json: bool = False
