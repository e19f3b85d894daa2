"""A workload on standard output: a row per key, then calls that no table has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.inputs.messages import printable
from tuccl.quantities import count_of, format_size
from tuccl.reports.json_form import fields_of, member
from tuccl.views.terminal.display import print_lines
from tuccl.views.terminal.tables import print_rows
from tuccl.workloads.workload import NotTuned, Workload, WorkloadCall

_LONGEST = 200
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, kw_only=True)
class CallFigures(WorkloadCall):
    """The calls of one operation and size on communicators of one shape."""

    share_of_calls: float
    """Share of all calls of one rank, also of operations that no table has; 0 to 1."""
    share_of_bytes: float

    @member
    def bytes_per_step(self) -> float:
        """Bytes of one rank's calls."""
        return super().bytes_per_step


@dataclass(frozen=True, kw_only=True)
class NotTunedFigures(NotTuned):
    """Calls of an operation that no table has."""

    share_of_calls: float
    share_of_bytes: float


@dataclass(frozen=True, kw_only=True)
class WorkloadFigures(Workload):
    """`workload import` and `show`: the collectives that a job calls."""

    file: Path
    """The workload's file."""
    calls: tuple[CallFigures, ...]
    not_tuned: tuple[NotTunedFigures, ...]

    @member
    def calls_per_step(self) -> float:
        """All calls of one rank."""
        return super().calls_per_step

    @member
    def bytes_per_step(self) -> float:
        """Bytes of these calls."""
        return super().bytes_per_step


def workload_figures(file: Path, workload: Workload) -> WorkloadFigures:
    """Return a workload with the share of each of its calls."""

    def shares(calls: WorkloadCall | NotTuned) -> dict[str, Any]:
        return {
            "share_of_calls": _share(calls.calls_per_step, workload.calls_per_step),
            "share_of_bytes": _share(calls.bytes_per_step, workload.bytes_per_step),
        }

    calls = (CallFigures(**fields_of(call), **shares(call)) for call in workload.calls)
    others = (NotTunedFigures(**fields_of(each), **shares(each)) for each in workload.not_tuned)
    known = {**fields_of(workload), "calls": tuple(calls), "not_tuned": tuple(others)}
    return WorkloadFigures(**known, file=file)


def print_workload(figures: WorkloadFigures) -> None:
    """Print a workload: a row per key, then a summary."""
    if figures.calls:
        per = "step" if figures.steps is not None else "recording"
        more = ["exposed us"] * any(c.exposed_us_per_call is not None for c in figures.calls)
        more += ["beside us"] * any(c.computation_us_per_call is not None for c in figures.calls)
        numbers = (">calls", ">of calls", ">bytes", ">of bytes", ">us", *(f">{m}" for m in more))
        print_rows(
            f"calls of one rank, per {per}",
            ("communicator", "operation", "type", ">size", "place", *numbers),
            (_cells(call, more) for call in figures.calls),
            group=2,
        )
    print_lines(_lines(figures))


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


def _cells(call: CallFigures, more: Sequence[str]) -> tuple[str, ...]:
    times = {
        "exposed us": call.exposed_us_per_call,
        "beside us": call.computation_us_per_call,
    }
    return (
        _communicator(call),
        call.operation.value,
        _type(call),
        format_size(call.size_bytes),
        _place(call),
        _number(call.calls_per_step),
        f"{100 * call.share_of_calls:.1f} %",
        _amount(call.bytes_per_step),
        f"{100 * call.share_of_bytes:.1f} %",
        _time(call.us_per_call),
        *(_time(times[name]) for name in more),
    )


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


def _lines(figures: WorkloadFigures) -> Iterator[str]:
    yield summary_line(figures)
    yield from exposure_lines(figures)
    for kind in figures.not_tuned:
        yield (
            f"no table has {printable(kind.operation, _LONGEST)}: "
            f"{_calls(kind.calls_per_step)} of {_amount(kind.bytes_per_step)}, "
            f"{100 * kind.share_of_bytes:.1f} % of all bytes"
        )
    for what in figures.source.left_out:
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
