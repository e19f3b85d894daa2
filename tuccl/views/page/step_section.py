"""The gain of a step of the workload that a table was tuned for."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.reports.documents.step import StepDocument, StepKey
from tuccl.reports.evidence import Evidence
from tuccl.views.page.elements import Markup, element, joined
from tuccl.views.page.figures.key_figures import shape_words
from tuccl.views.page.key_table import number_cell, sortable_table
from tuccl.views.page.page import Section
from tuccl.views.terminal.step_display import gain_words, step_line, step_words
from tuccl.words.sizes import format_size

_COLUMNS = (
    ("operation", "text"),
    ("size", "number"),
    ("communicator", "text"),
    ("calls", "number"),
    ("stock, µs", "number"),
    ("table, µs", "number"),
    ("gain", "number"),
    ("of the step", "number"),
)
_HOW = (
    "The calls are counted as if they ran one after another: what overlaps with each other or with "
    "computation counts in full. A key stands for the calls of neighbouring sizes, of which each "
    "counts by its own size."
)
_BESIDE = (
    "Calls were timed beside the computation that the recording has beside them, each until both "
    "have ended, and are counted as if they ran one after another. A key stands for the calls of "
    "neighbouring sizes, of which each counts by its own size."
)
_HIDDEN = (
    "The time by which the step itself is shorter counts of each call no more than that by which "
    "the recorded step is shorter without it."
)
_HIDDEN_BESIDE = (
    "The time by which the step itself is shorter counts of each call no more than that by which "
    "the recorded step is shorter without it, and without the computation beside it."
)


def step_section(step: StepDocument, times: Evidence) -> Section:
    """Return the section, with a row for each key where they are known."""
    parts = [
        element("p", step_line(step, times)),
        element("p", _BESIDE if step.beside_computation else _HOW),
    ]
    if step.saved_us is not None:
        parts.append(element("p", _HIDDEN_BESIDE if step.beside_computation else _HIDDEN))
    if step.keys:
        rows = [element("tr", *_cells(key, step.stock_us), class_=times.value) for key in step.keys]
        caption = f"Keys of {step_words(step.steps)}; times {times.value}."
        parts.append(sortable_table("step-keys", caption, _COLUMNS, rows))
    if step.left_out:
        parts.append(element("h3", "Calls that are not tuned"))
        parts.append(element("ul", *_left_out(step)))
    return Section("step", f"A step gains {gain_words(step)}", joined(parts))


def _cells(key: StepKey, whole_us: float) -> Iterator[Markup]:
    gain, share = key.stock_us / key.table_us, key.stock_us / whole_us
    yield element("th", key.operation.value, scope="row")
    yield number_cell(format_size(key.size_bytes), key.size_bytes)
    yield element("td", shape_words(key.shape))
    yield number_cell(f"{key.calls_per_step:g}", key.calls_per_step)
    yield number_cell(f"{key.stock_us:.1f}", key.stock_us)
    yield number_cell(f"{key.table_us:.1f}", key.table_us)
    yield number_cell(f"{gain:.3f}x", gain)
    yield number_cell(f"{share:.1%}", share)


def _left_out(step: StepDocument) -> Iterator[Markup]:
    for each in step.left_out:
        calls = f"{each.calls_per_step:g} calls a step"
        yield element("li", f"{each.calls}, {calls}: {each.reason}")
