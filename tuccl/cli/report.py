"""The command `tuccl report`: one HTML page on a table, or on two."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import (
    AS_JSON,
    DEFAULT_WORKSPACE,
    OUTPUT,
    OUTPUT_FILE,
    SCOPE,
    TABLE_DIRECTORY,
    named_path,
    option,
)

DEFAULT_PAGE = Path("tuccl-report.html")
_HEAD_BYTES = 4096
"""Bytes at the start of a file in which the mark of a report stands."""


@dataclass(frozen=True)
class ReportOptions:
    """The options of `tuccl report`."""

    directory: Path = field(default=DEFAULT_WORKSPACE, metadata=TABLE_DIRECTORY)
    other: Path | None = option(
        "",
        "A second one, which is compared with the first.",
        "OTHER",
        default=None,
        positional=True,
        parse=named_path,
    )
    output: Path = option(
        OUTPUT,
        "The page; an earlier report there is replaced.",
        "FILE.html",
        default=DEFAULT_PAGE,
        names=OUTPUT_FILE,
    )
    run: str | None = option(
        SCOPE,
        "A run of the first workspace, by its name; else the current one.",
        "RUN",
        default=None,
    )
    verdicts: Path | None = option(
        "",
        "Report what the guard found in jobs instead: a log of verdicts, or the folder that jobs "
        "had as TUCCL_GUARD_LOG.",
        "PATH",
        default=None,
        parse=named_path,
    )
    follow: bool = option(
        OUTPUT,
        "Serve the page of a run that goes on, to browsers on this host, until Ctrl-C.",
        default=False,
    )
    port: int | None = option(
        OUTPUT, "Port of --follow; a free one if not given.", "N", default=None, bounds=(1, 65535)
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl report",
    "tuccl report /shared/tuccl --output shared.html",
    "tuccl report /shared/tuccl tuccl-workspace --output compared.html",
    "tuccl report --follow tuccl-workspace",
    "tuccl report --verdicts /logs/verdicts --output verdicts.html",
)
def report(options: ReportOptions) -> int:
    """Write one HTML page on a table, or on two: gains, curves, search, machine, schedules.

    The page contains all that it needs and fetches nothing. With --json the figures behind it go
    to standard output. With --follow the page of a run that goes on is served instead; with
    --verdicts the page shows what the guard (TUCCL_GUARD) found in jobs, and a table is printed.
    """
    from plotly.offline import get_plotlyjs

    from tuccl.views.page.page import comparison_page, table_report
    from tuccl.views.page.place import read_place
    from tuccl.views.page.tables import ReportDocument, compared_figures
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_document
    from tuccl.workspace.atomic_file import write_atomically

    if options.follow:
        return _follow(options)
    if options.port is not None:
        raise UsageError("--port is for --follow")
    if options.verdicts is not None:
        return _verdicts(options, options.verdicts)
    made_at = _check_output(options.output)
    first = read_place(options.directory, options.run)
    if options.other is None:
        figures, text = table_report(first, made_at, get_plotlyjs())
    else:
        second = read_place(options.other)
        if first.root == second.root and first.identity == second.identity:
            raise UsageError(
                f"{first.name} is named twice; name another table, or --run for the first"
            )
        figures = compared_figures(first, second, made_at)
        text = comparison_page(figures, get_plotlyjs())
    write_atomically(options.output, text)
    if options.as_json:
        print_document(ReportDocument(options.output, figures))
    else:
        print(options.output)
        display.say("open it in a browser: it needs no network")
    return ExitCode.OK


def _check_output(path: Path) -> str:
    """Require that a page can be written there; return its date.

    Raises:
        UsageError: There is another file, or no folder.
    """
    from tuccl.options.output_file import check_output, require_replaceable
    from tuccl.views.page.page import TITLE_MARK

    mark = f'<meta name="generator" content="{TITLE_MARK}">'.encode()
    check_output(path, "--output")
    require_replaceable(path, "--output", mark, _HEAD_BYTES)
    return datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def _verdicts(options: ReportOptions, place: Path) -> int:
    """Write the page of the guard's verdicts, and print them."""
    from plotly.offline import get_plotlyjs

    from tuccl.reports.verdicts import read_verdicts
    from tuccl.views.page.page import verdicts_page
    from tuccl.views.page.verdicts import VerdictDocument
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_document
    from tuccl.views.terminal.verdicts_display import print_verdicts
    from tuccl.workspace.atomic_file import write_atomically

    beside = {
        f"{options.directory}": options.directory != DEFAULT_WORKSPACE,
        f"{options.other}": options.other is not None,
        "--run": options.run is not None,
    }
    for name, is_given in beside.items():
        if is_given:
            raise UsageError(f"--verdicts reports what was found in jobs: leave out {name}")
    made_at = _check_output(options.output)
    found = read_verdicts(place)
    write_atomically(options.output, verdicts_page(found, f"{place}", made_at, get_plotlyjs()))
    if options.as_json:
        print_document(VerdictDocument(options.output, found))
    else:
        print_verdicts(found)
        display.say(f"{options.output} shows them over time: open it in a browser")
    return ExitCode.OK


def _follow(options: ReportOptions) -> int:
    """Serve the page of a run until Ctrl-C, which ends this as any command."""
    from plotly.offline import get_plotlyjs

    from tuccl.views.page.follow import FollowedPage, FollowServer
    from tuccl.views.terminal import display

    beside = {
        "--json": options.as_json,
        "--output": options.output != DEFAULT_PAGE,
        f"{options.other}": options.other is not None,
        "--verdicts": options.verdicts is not None,
    }
    for name, is_given in beside.items():
        if is_given:
            raise UsageError(f"--follow serves the page of one run: leave out {name}")
    page = FollowedPage(options.directory, options.run)
    with FollowServer(page, get_plotlyjs(), options.port or 0) as server:
        display.say(f"{server.address} shows the run in browsers on this host; Ctrl-C ends it")
        server.serve_forever()
    return ExitCode.OK
