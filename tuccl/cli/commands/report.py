"""The command `tuccl report`: one HTML page on a table, or on two."""

from __future__ import annotations

from datetime import UTC, datetime

from plotly.offline import get_plotlyjs

from tuccl.cli.options.report_command import DEFAULT_PAGE, ReportCommand
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import require_bounds
from tuccl.options.output_file import check_output, require_replaceable
from tuccl.views.page.follow import FollowedPage, follow_server
from tuccl.views.page.page import TITLE_MARK, comparison_page, page_of_table
from tuccl.views.page.place import ReportedTable, read_place
from tuccl.views.page.tables import ReportDocument, ReportFigures, compared_figures
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_document
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

_MARK = f'<meta name="generator" content="{TITLE_MARK}">'.encode()
_HEAD_BYTES = 4096
"""Bytes at the start of a file in which the mark of a report stands."""


def report(command: ReportCommand) -> int:
    """Run `tuccl report`."""
    if command.place is not None and command.workspace != DEFAULT_WORKSPACE:
        raise UsageError(f"name {command.place} or --workspace {command.workspace}, not both")
    if command.follow:
        return _follow(command)
    if command.port is not None:
        raise UsageError("--port is for --follow")
    check_output(command.output, "--output")
    require_replaceable(command.output, "--output", _MARK, _HEAD_BYTES)
    place = command.place if command.place is not None else command.workspace
    made_at = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    found = read_place(place, command.run)
    if command.second_place is None:
        figures, text = page_of_table(found, made_at, get_plotlyjs())
    else:
        figures, text = _of_two(found, read_place(command.second_place), made_at)
    write_atomically(command.output, text)
    if command.as_json:
        print_document(ReportDocument(command.output, figures))
    else:
        print(command.output)  # noqa: T201 - the command's result
        display.say("open it in a browser: it needs no network")
    return ExitCode.OK


def _follow(command: ReportCommand) -> int:
    """Serve the page of a run until Ctrl-C, which ends this as any command."""
    require_bounds(command)
    beside = {
        "--json": command.as_json,
        "--output": command.output != DEFAULT_PAGE,
        f"{command.second_place}": command.second_place is not None,
    }
    for name, is_given in beside.items():
        if is_given:
            raise UsageError(f"--follow serves the page of one run: leave out {name}")
    place = command.place if command.place is not None else command.workspace
    page = FollowedPage(place, command.run)
    with follow_server(page, get_plotlyjs(), command.port or 0) as server:
        display.say(f"{server.address} shows the run in browsers on this host; Ctrl-C ends it")
        server.serve_forever()
    return ExitCode.OK


def _of_two(first: ReportedTable, second: ReportedTable, made_at: str) -> tuple[ReportFigures, str]:
    if first.root == second.root and first.identity == second.identity:
        raise UsageError(f"{first.name} is named twice; name another table, or --run for the first")
    figures = compared_figures(first, second, made_at)
    return figures, comparison_page(figures, get_plotlyjs())
