"""The lines of the live view fit the terminal, whatever the run."""

from dataclasses import replace

import pytest
from rich.text import Text

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.table import Shape
from tuccl.search.trials import events
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.placement import Placement
from tuccl.views.terminal.run_frame import LEAST_COLUMNS, LEAST_ROWS, closing_frame, frame
from tuccl.views.terminal.run_state import RunState

WHOLE, NODE = Shape(16, 2, 8), Shape(8, 1, 8)
RING = Config("ring", "LL128", 16)
SIZES = tuple(1 << bits for bits in range(10, 31, 2))
FEW = tuple(Task(Collective.ALL_REDUCE, size, NODE) for size in SIZES[:3])
MANY = tuple(
    Task(operation, 1 << bits, shape)
    for shape in (WHOLE, NODE)
    for operation in COLLECTIVES
    for bits in range(10, 35)
)


def measured(keys: tuple[Task, ...], budget_s: float | None = None) -> RunState:
    """A run that searches its last key but one and has decided the first."""
    state = RunState(0.0)
    state.note(events.RunBegins("cluster", "nccl,executor", keys, budget_s))
    state.report("stock NCCL", 0, len(keys), None, 0.0)
    for key in keys:
        state.note(events.SamplesTaken(key, STOCK, (20.0,), 1.0))
    state.report("stock NCCL", len(keys), len(keys), None, 70.0)
    state.note(events.KeyDecided(keys[0], RING, 16.0, None))
    state.note(events.WorkersRestarted(ProcessProfile(nthreads=256)))
    state.report("search of NCCL's settings", 12, 33, 0.25, 70.0)
    state.note(events.RungBegins("bracket 2 of 4", 1, 3, 12, 3))
    state.note(events.SamplesTaken(keys[-2], RING, (12.5,), 30.0))
    state.note(events.MeasuringBegins(keys[-2], Config("tree", "LL", 4), 9))
    return state


def plain(lines: list[Text]) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def test_what_is_measured_besides_the_keys_of_a_run_is_not_counted() -> None:
    """Sizes between two keys, and communicators that have entries of their own."""
    state = measured(MANY)
    before = plain(frame(state, 100.0, 60, 30))
    placed = replace(MANY[0], placement=Placement(2, (0,)))
    for config, time_us in ((STOCK, 20.0), (RING, 1.0)):
        state.note(events.SamplesTaken(placed, config, (time_us,), 30.0))
    state.note(events.KeyDecided(placed, RING, 1.0, None))
    (gains,) = (line for line in before if line.startswith("gains"))
    assert gains in plain(frame(state, 100.0, 60, 30))
    state.note(events.MeasuringBegins(replace(MANY[0], size_bytes=1536), RING, 1))
    assert gains in plain(frame(state, 100.0, 60, 30))


@pytest.mark.parametrize("columns", [4, 20, LEAST_COLUMNS, 100, 200])
@pytest.mark.parametrize("rows", [3, LEAST_ROWS, 50])
def test_all_lines_fit_and_the_key_that_is_measured_stands_among_them(
    columns: int, rows: int
) -> None:
    for keys in (FEW, MANY):
        state = measured(keys, 120.0)
        lines = frame(state, 100.0, columns, rows)
        assert len(lines) < rows
        assert all(line.cell_len < columns for line in lines)
        if columns >= LEAST_COLUMNS and rows >= LEAST_ROWS:
            assert sum(line.plain.count("1.60<") for line in lines) == 1
        assert all(line.cell_len < columns for line in closing_frame(state, 100.0, columns, rows))


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_every_size_is_shown_where_there_is_room_below(columns: int) -> None:
    """27 sizes of three operations: three parts of nine sizes at 80 columns."""
    keys = tuple(
        Task(operation, 1 << bits, NODE) for operation in COLLECTIVES[:3] for bits in range(4, 31)
    )
    for lines in (
        frame(measured(keys), 100.0, columns, 30),
        closing_frame(measured(keys), 100.0, columns, 30),
    ):
        text = " ".join(plain(lines)).split()
        assert [size for size in text if size in {"16", "64K", "1G"}] == ["16", "64K", "1G"]
