"""A workload on standard output: a row per key, then calls that no table has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from probes.inputs.printable import printable
from tuccl.reports.documents.workload import (
    WorkloadCallFigures,
    WorkloadDocument,
    WorkloadNotTuned,
    WorkloadOrigin,
)
from tuccl.views.terminal.display import print_lines, standard_output
from tuccl.words.counts import count_of
from tuccl.words.sizes import format_size
from tuccl.workloads.workload import Workload, WorkloadCall

_LONGEST = 200
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def workload_report(file: Path, workload: Workload) -> WorkloadDocument:
    """Return a workload as the document of `tuccl workload --json`."""
    all_calls, all_bytes = workload.calls_per_step, workload.bytes_per_step
    return WorkloadDocument(
        file=str(file),
        source=WorkloadOrigin(
            kind=workload.source.kind.value,
            files=list(workload.source.files),
            left_out=list(workload.source.left_out),
        ),
        ranks=workload.ranks,
        nodes=workload.nodes,
        steps=workload.steps,
        calls_per_step=all_calls,
        bytes_per_step=all_bytes,
        calls=[
            WorkloadCallFigures(
                operation=call.operation,
                datatype=None if call.datatype is None else call.datatype.value,
                reduction=None if call.reduction is None else call.reduction.value,
                size_bytes=call.size_bytes,
                ranks=call.ranks,
                nodes=call.nodes,
                siblings=call.siblings,
                in_place=call.in_place,
                graph=call.graph,
                calls_per_step=call.calls_per_step,
                bytes_per_step=call.bytes_per_step,
                us_per_call=call.us_per_call,
                exposed_us_per_call=call.exposed_us_per_call,
                computation_us_per_call=call.computation_us_per_call,
                exposed_computation_us_per_call=call.exposed_computation_us_per_call,
                share_of_calls=_share(call.calls_per_step, all_calls),
                share_of_bytes=_share(call.bytes_per_step, all_bytes),
            )
            for call in workload.calls
        ],
        not_tuned=[
            WorkloadNotTuned(
                operation=kind.operation,
                calls_per_step=kind.calls_per_step,
                bytes_per_step=kind.bytes_per_step,
                share_of_calls=_share(kind.calls_per_step, all_calls),
                share_of_bytes=_share(kind.bytes_per_step, all_bytes),
            )
            for kind in workload.not_tuned
        ],
    )


def print_workload(workload: Workload) -> None:
    """Print a workload: a row per key, then a summary."""
    if workload.calls:
        standard_output().print(_rows(workload), crop=False)
    print_lines(_lines(workload))


def summary_line(workload: Workload) -> str:
    """Return the headline of a workload."""
    keys = count_of(len(workload.calls), "key")
    where = "" if workload.ranks is None else f" of a job of {count_of(workload.ranks, 'rank')}"
    if workload.ranks is not None and workload.nodes is not None:
        where += f" on {count_of(workload.nodes, 'node')}"
    if workload.steps is None:
        during = "in a recording of unknown steps"
    else:
        during = (
            f"in each of {_number(workload.steps)} steps" if workload.steps != 1 else "in a step"
        )
    made = f"{_calls(workload.calls_per_step)} of {_amount(workload.bytes_per_step)}"
    return f"{keys}{where}: a rank makes {made} {during}"


def exposure_lines(workload: Workload) -> Iterator[str]:
    """Yield a line on how much of its collectives' time a step waits for, if that is known."""
    times = workload.exposure
    if times is not None:
        during = "the recording" if workload.steps is None else "a step"
        yield (
            f"{during} takes {times.exposed_us / 1000.0:.2f} ms less without the collectives that "
            f"tables have, which run for {times.time_us / 1000.0:.2f} ms of it"
        )


def _rows(workload: Workload) -> RichTable:
    per = "step" if workload.steps is not None else "recording"
    shown = RichTable(
        title=Text(f"calls of one rank, per {per}"),
        title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    figures: tuple[str, ...] = ("calls", "of calls", "bytes", "of bytes", "us")
    tells_exposed = any(call.exposed_us_per_call is not None for call in workload.calls)
    figures += ("exposed us",) if tells_exposed else ()
    tells_beside = any(call.computation_us_per_call is not None for call in workload.calls)
    figures += ("beside us",) if tells_beside else ()
    headings = ("communicator", "operation", "type", "size", "place", *figures)
    for heading in headings:
        right = heading in {"size", *figures}
        shown.add_column(heading, justify="right" if right else "left", no_wrap=True)
    before: tuple[str, str] | None = None
    for call in workload.calls:
        own = (_communicator(call), call.operation.value)
        if before not in {None, own}:
            shown.add_section()
        before = own
        shown.add_row(
            *own,
            _type(call),
            format_size(call.size_bytes),
            _place(call),
            _number(call.calls_per_step),
            f"{100 * _share(call.calls_per_step, workload.calls_per_step):.1f} %",
            _amount(call.bytes_per_step),
            f"{100 * _share(call.bytes_per_step, workload.bytes_per_step):.1f} %",
            _time(call.us_per_call),
            *([_time(call.exposed_us_per_call)] if tells_exposed else []),
            *([_time(call.computation_us_per_call)] if tells_beside else []),
        )
    return shown


def _time(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.1f}"


def _communicator(call: WorkloadCall) -> str:
    nodes = "nodes unknown" if call.nodes is None else count_of(call.nodes, "node")
    siblings = "" if call.siblings == 1 else f", {call.siblings} at once"
    return f"{call.ranks} ranks, {nodes}{siblings}"


def _type(call: WorkloadCall) -> str:
    words = [value.value for value in (call.datatype, call.reduction) if value is not None]
    return " ".join(words) or "?"


def _place(call: WorkloadCall) -> str:
    place = {None: "?", True: "in place", False: "out of place"}[call.in_place]
    return f"{place}, graph" if call.graph else place


def _lines(workload: Workload) -> Iterator[str]:
    yield summary_line(workload)
    yield from exposure_lines(workload)
    for kind in workload.not_tuned:
        share = _share(kind.bytes_per_step, workload.bytes_per_step)
        yield (
            f"no table has {printable(kind.operation, _LONGEST)}: "
            f"{_calls(kind.calls_per_step)} of {_amount(kind.bytes_per_step)}, "
            f"{100 * share:.1f} % of all bytes"
        )
    for what in workload.source.left_out:
        yield f"left out: {printable(what, _LONGEST)}"


def _share(part: float, whole: float) -> float:
    return round(part / whole, 9) if whole else 0.0


def _calls(number: float) -> str:
    return f"{_number(number)} {'call' if number == 1 else 'calls'}"


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 or number == int(number) else f"{number:.3g}"


def _amount(amount_bytes: float) -> str:
    """Return bytes for people, by powers of 1000: `812 MB`."""
    for unit in _UNITS[:-1]:
        if amount_bytes < 999.5:
            return f"{amount_bytes:.3g} {unit}"
        amount_bytes /= 1000
    return f"{amount_bytes:,.0f} {_UNITS[-1]}"
