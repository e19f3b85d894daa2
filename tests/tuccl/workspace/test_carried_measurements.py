"""A log that begins with the measurements of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import WorkspaceError
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Task
from tuccl.workspace.carried_measurements import carry_measurements
from tuccl.workspace.measurement_file import Sums
from tuccl.workspace.measurement_lines import (
    Contents,
    Recorded,
    failure_line,
    header_line,
    samples_line,
    table_line,
)
from tuccl.workspace.measurement_log import read_log

NODE = Task(Collective.ALL_REDUCE, 1 << 20, Shape(2, 1, 2))
WHOLE = Task(Collective.ALL_REDUCE, 1 << 20, Shape(6, 3, 2))
OTHER = Task(Collective.ALL_GATHER, 1 << 20, Shape(2, 1, 2))


def written(folder: Path) -> Path:
    first, second = Measured((4.0, 5.0), 1.5, 2.5), Measured((6.0,), 0.5, 2.5)
    known = Recorded(NODE, STOCK)
    lines = [
        header_line("before"),
        samples_line(Recorded(WHOLE, STOCK), Measured((9.0,), 3.0, 2.5), 1, 0.0),
        samples_line(known, first, 2, 2.5),
        table_line(NODE, None),
        samples_line(known.joined(first, 2), second, 4, 2.5),
        failure_line(Recorded(OTHER, STOCK), "refused", 0.25),
    ]
    sums, path = Sums(), folder / "before.jsonl"
    path.write_bytes(b"".join(map(sums.sealed, lines)))
    return path


def test_measurements_of_chosen_tasks_are_taken_with_their_costs(tmp_path: Path) -> None:
    to = tmp_path / "now.jsonl"
    before = written(tmp_path)
    assert carry_measurements(before, "before", to, "now", lambda t: t.shape == NODE.shape) == 4
    expected, found = read_log(before, "before"), read_log(to, "now")
    for task in (NODE, OTHER):
        assert found.known(task, STOCK) == expected.known(task, STOCK)
    assert found.known(NODE, STOCK).answers[0].restart_s == 2.5
    assert found.known(WHOLE, STOCK) == Recorded(WHOLE, STOCK)
    assert found.cost_tables == {NODE: None}
    assert found.bill.spent_s == 2.25


def test_a_log_that_has_begun_stays_as_it_is_and_none_is_no_error(tmp_path: Path) -> None:
    to = tmp_path / "now.jsonl"
    missing = tmp_path / "missing.jsonl"
    assert carry_measurements(missing, "before", to, "now", lambda _: True) == 0
    assert not to.exists()
    to.write_bytes(Sums().sealed(header_line("now")))
    assert carry_measurements(written(tmp_path), "before", to, "now", lambda _: True) == 0
    assert read_log(to, "now").all == Contents().all


def test_a_log_of_another_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="belongs to another machine"):
        carry_measurements(written(tmp_path), "other", tmp_path / "now", "now", lambda _: True)
