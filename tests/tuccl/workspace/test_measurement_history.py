"""The history of a log: its measurements in order, with the seconds that they took together."""

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.conftest import TunedWorkspace
from tuccl.errors import WorkspaceError
from tuccl.search.trials.config import Task
from tuccl.workspace.measurement_log import read_history, read_log
from tuccl.workspace.runs import Workspace


@pytest.mark.long
def test_the_history_ends_where_the_log_ends(tuned: TunedWorkspace) -> None:
    run = Workspace(tuned.root).current()
    identity = run.root.name
    history = read_history(run.measurements, identity)
    contents = read_log(run.measurements, identity)
    seconds = [each.seconds for each in history]
    assert seconds == sorted(seconds)
    assert seconds[-1] == pytest.approx(contents.bill.spent_s)
    assert len(history) > len(contents.all)
    last = {(each.task, each.config): each.recorded for each in history}
    assert list(last.values()) == list(contents.all)
    assert history[0].task == Task(Collective.ALL_GATHER, 65536, Shape(4, 1, 4))


def test_no_log_has_no_history_and_that_of_another_run_is_refused(
    tuned: TunedWorkspace, tmp_path: Path
) -> None:
    assert read_history(tmp_path / "none.jsonl", "x") == []
    run = Workspace(tuned.root).current()
    with pytest.raises(WorkspaceError, match="belongs to another machine"):
        read_history(run.measurements, "x")
