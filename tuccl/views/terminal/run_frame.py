"""The lines of the live view: stage, measurement, search, budget, and the gain of each key.

A line is shorter than the terminal is wide, and all lines fit its height. Gains that do not fit are
left out, those of the key that is measured last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from textwrap import wrap
from typing import TypeVar

from rich.text import Text

from tuccl.quantities import count_of, format_elapsed, format_seconds, format_size
from tuccl.search.trials.config import Task
from tuccl.search.trials.events import RunBegins
from tuccl.search.trials.shapes import shape_text
from tuccl.views.terminal.run_state import RunState

LEAST_COLUMNS, LEAST_ROWS = 80, 20
_LABEL = 9
"""Columns of the labels on the left."""
_CELL = 7
_LEAST_TOOK_S = 0.5
"""Least time of a stage that is named when it is over."""
_MOST_LINES_OVER = 2
_SHOWN_GAIN = 1.005
"""Least gain that is coloured."""
ValueT = TypeVar("ValueT")
_Row = tuple[str, dict[int, Task]]
"""An operation, with its keys by size."""


def frame(state: RunState, now_s: float, columns: int, rows: int) -> list[Text]:
    """Return the lines of the view while the run goes on.

    Args:
        state: State of the run.
        now_s: Time of the drawing.
        columns: Width of the terminal.
        rows: Its height.
    """
    width = columns - 1  # The last column would let some terminals wrap.
    lines = [*_head(state, now_s, width), *_details(state)]
    lines += _gains(state, width, rows - 1 - len(lines))
    return _cut(lines, width)[: max(1, rows - 1)]


def closing_frame(state: RunState, now_s: float, columns: int, rows: int) -> list[Text]:
    """Return the lines that stay on the terminal when the command is over."""
    width = columns - 1
    lines = [*([_title(state, now_s)] if state.run else []), *_over(state, width), _budget(state)]
    return _cut([*lines, *_gains(state, width, rows - 1 - len(lines), over=True)], width)


def _cut(lines: Sequence[Text | None], width: int) -> list[Text]:
    cut = [line for line in lines if line is not None]
    for line in cut:
        line.truncate(width, overflow="ellipsis")
    return cut


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{_LABEL}}", "bold"), text)


def _title(state: RunState, now_s: float) -> Text:
    run = state.run
    what = "" if run is None else f"{run.machine}, backend {run.backend}, "
    if run is not None:
        what += f"{count_of(len(run.keys), 'key')}, "
    return _labelled("run", f"{what}{format_elapsed(now_s - state.began_s)}")


def _head(state: RunState, now_s: float, width: int) -> Iterator[Text | None]:
    yield _title(state, now_s)
    stage = state.stage
    if stage is None:
        yield _labelled("stage", "begins")
        return
    yield _labelled("stage", stage.line(now_s))
    share = stage.share
    if share is None and isinstance(stage.total, int) and stage.total:
        share = stage.done / stage.total
    if share is not None:
        length = width - _LABEL
        full = int(share * length)
        yield Text.assemble(
            " " * _LABEL, ("━" * full, "green"), ("─" * (length - full), "bright_black")
        )
    yield from _over(state, width)[-_MOST_LINES_OVER:]


def _over(state: RunState, width: int) -> list[Text]:
    """Return what the stages took that were not over at once."""
    took = [
        f"{name} {format_elapsed(seconds)}"
        for name, seconds in state.took_s.items()
        if seconds >= _LEAST_TOOK_S
    ]
    lines = wrap(", ".join(took), max(1, width - _LABEL))
    return [_labelled("" if number else "over", line) for number, line in enumerate(lines)]


def _details(state: RunState) -> Iterator[Text | None]:
    now = state.measuring
    if now is not None:
        samples = count_of(now.samples, "sample")
        yield _labelled(
            "now", f"{_named(now.task, state)}: {state.describe(now.config)}, {samples}"
        )
        yield _best(now.task, state)
    if state.rung is not None and now is not None:
        rung = state.rung
        tried = state.keys[now.task].tried if now.task in state.keys else 0
        yield _labelled(
            "search",
            f"{rung.part}, rung {rung.rung} of {rung.rungs}: "
            f"{count_of(rung.configs, 'configuration')} to "
            f"{count_of(rung.repeats, 'sample')}; {tried} tried",
        )
    if state.profile is not None:
        variables = " ".join(f"{name}={value}" for name, value in state.profile.variables)
        times = count_of(state.restarts, "restart")
        yield _labelled("workers", f"{times}, profile {variables or 'of stock NCCL'}")
    yield _budget(state)


def _best(task: Task, state: RunState) -> Text | None:
    key = state.keys.get(task)
    if key is None or key.best is None:
        return None
    text = f"{state.describe(key.best)}, {key.best_us:.2f} us"
    if key.stock_us is not None:
        text += f" against {key.stock_us:.2f} of stock NCCL, {key.gain:.3f}x"
    return _labelled("best", text)


def _budget(state: RunState) -> Text | None:
    if state.run is None or not state.keys:
        return None
    spent = f"{format_seconds(state.spent_s)} of machine time"
    limit_s = state.run.budget_s
    if limit_s is None:
        return _labelled("budget", f"{spent} so far, no limit")
    left_s = max(0.0, limit_s - state.spent_s)
    return _labelled(
        "budget", f"{spent} of {format_seconds(limit_s)}, {format_seconds(left_s)} left"
    )


def _named(task: Task, state: RunState) -> str:
    several = state.run is not None and len({key.shape for key in state.run.keys}) > 1
    part = f" of {shape_text(task.shape)}" if several else ""
    return f"{task.operation.value} {format_size(task.size_bytes)}{part}"


def _gains(state: RunState, width: int, most: int, *, over: bool = False) -> list[Text]:
    """Return the gains as a grid of operations and sizes, in at most so many lines."""
    run = state.run
    if run is None or not state.keys:
        return []
    several = len({key.shape for key in run.keys}) > 1
    found: dict[str, dict[int, Task]] = {}
    for key in run.keys:
        name = f"{key.operation.value} {key.shape.ranks}x{key.shape.nodes}"
        found.setdefault(name if several else key.operation.value, {})[key.size_bytes] = key
    rows = list(found.items())
    now = None if over or state.measuring is None else state.measuring.task
    gains = state.gains()
    mean = geometric_mean(gains.values()) if gains else 1.0
    lines = [
        _labelled(
            "gains",
            f"{mean:.3f}x stock NCCL, mean of {count_of(len(gains), 'key')}: best so far, "
            f"* decided ({sum(key in state.decided for key in run.keys)})",
        )
    ]
    if not state.runs_schedules and state.schedules:
        lines.append(_labelled("", "schedules do not count: no job runs them, they are modelled"))
    names = max(_LABEL, *(len(name) + 1 for name, _ in rows))
    fitting = max(1, (width - names) // _CELL)
    for sizes, shown in _parts(run, rows, now, fitting, most - len(lines)):
        heading = "".join(f"{format_size(size):>{_CELL - 1}} " for size in sizes)
        lines.append(Text(f"{'':{names}}{heading}"))
        for name, keys in shown:
            cells = (_cell(keys.get(size), state, gains, now) for size in sizes)
            lines.append(Text.assemble(f"{name:<{names}}", *cells))
    return lines if most >= len(lines) else lines[: max(0, most)]


def _parts(
    run: RunBegins, rows: list[_Row], now: Task | None, fitting: int, most: int
) -> list[tuple[Sequence[int], Sequence[_Row]]]:
    """Return the sizes and rows of each part of the grid, one below the other.

    All sizes if their parts fit into so many lines, else those around the current key.
    """
    sizes = sorted({key.size_bytes for key in run.keys})
    parts = -(-len(sizes) // fitting)
    if parts * (1 + len(rows)) <= most:
        each = -(-len(sizes) // parts)
        return [(sizes[first : first + each], rows) for first in range(0, len(sizes), each)]
    at = next((row for row in rows if now is not None and now in row[1].values()), None)
    around = None if now is None else now.size_bytes
    return [(_window(sizes, around, fitting), _window(rows, at, max(1, most - 1)))]


def _window(values: Sequence[ValueT], at: ValueT | None, most: int) -> Sequence[ValueT]:
    """Return at most so many neighbouring values, `at` in their middle; the first without it."""
    if len(values) <= most:
        return values
    middle = values.index(at) if at in values else 0
    first = min(max(0, middle - most // 2), len(values) - most)
    return values[first : first + most]


def _cell(
    task: Task | None, state: RunState, gains: Mapping[Task, float], now: Task | None
) -> tuple[str, str]:
    gain = None if task is None else gains.get(task)
    if gain is None:
        return f"{'-':>{_CELL - 1}} ", "bright_black"
    text = f"{gain:.2f}" if gain < 99.995 else f"{gain:.0f}"
    text = f"{text}{'*' if task in state.decided else ''}"
    style = "green" if gain >= _SHOWN_GAIN else ""
    if task == now:
        return f"{text:>{_CELL - 1}}<", f"bold {style}"
    return f"{text:>{_CELL - 1}} ", style
