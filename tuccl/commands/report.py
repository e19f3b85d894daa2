"""The command `tuccl report`: one HTML page on a table, or on two."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tuccl.console import display
from tuccl.console.json_output import print_document
from tuccl.errors import ExitCode, UsageError
from tuccl.html_report.comparison_page import comparison_page
from tuccl.html_report.figures.places import ReportedTable, read_place
from tuccl.html_report.figures.report_figures import (
    ReportDocument,
    ReportFigures,
    compared_figures,
    report_figures,
)
from tuccl.html_report.figures.sketch_figures import read_sketches
from tuccl.html_report.page import TITLE_MARK
from tuccl.html_report.plotly_script import plotly_script
from tuccl.html_report.report import report_page
from tuccl.inputs.output_file import check_output
from tuccl.inputs.report_command import ReportCommand
from tuccl.probes.inputs.regular_file import read_regular_file
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

_MARK = f'<meta name="generator" content="{TITLE_MARK}">'.encode()
MOST_BYTES = 6_000_000
"""Size of a page beyond which schedules over time are left out."""
_HEAD_BYTES = 4096
"""Bytes at the start of a file in which the mark of a report stands."""


def report(command: ReportCommand) -> int:
    """Run `tuccl report`."""
    if command.place is not None and command.workspace != DEFAULT_WORKSPACE:
        raise UsageError(f"name {command.place} or --workspace {command.workspace}, not both")
    check_output(command.out, "--out")
    _check_replaceable(command.out)
    place = command.place if command.place is not None else command.workspace
    made_at = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    plotly = plotly_script()
    found = read_place(place, command.run)
    if command.second_place is None:
        figures, text = _of_one(found, made_at, plotly)
    else:
        figures, text = _of_two(found, read_place(command.second_place), made_at, plotly)
    write_atomically(command.out, text)
    if command.as_json:
        print_document(ReportDocument(file=str(command.out), figures=figures))
    else:
        print(command.out)  # noqa: T201 - the command's result
        display.say("open it in a browser: it needs no network")
    return ExitCode.OK


def _of_one(found: ReportedTable, made_at: str, plotly: str) -> tuple[ReportFigures, str]:
    sketches = () if found.run is None else read_sketches(found.run)
    figures = report_figures(found, sketches, made_at)
    text = report_page(figures, found, sketches, plotly)
    while len(text.encode()) > MOST_BYTES and figures.timelines:
        figures = replace(figures, timelines=figures.timelines[:-1])
        text = report_page(figures, found, sketches, plotly)
    return figures, text


def _of_two(
    first: ReportedTable, second: ReportedTable, made_at: str, plotly: str
) -> tuple[ReportFigures, str]:
    if first.root == second.root and first.identity == second.identity:
        raise UsageError(f"{first.name} is named twice; name another table, or --run for the first")
    figures, comparison = compared_figures(first, second, made_at)
    return figures, comparison_page(figures, comparison, plotly)


def _check_replaceable(path: Path) -> None:
    """Require that no file but an earlier report is replaced.

    Raises:
        UsageError: Another file has the name.
    """
    try:
        found = read_regular_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}; name another file") from error
    if found and _MARK not in found[:_HEAD_BYTES]:
        raise UsageError(f"--out {path} is no report of TuCCL's: name another file, or remove it")
