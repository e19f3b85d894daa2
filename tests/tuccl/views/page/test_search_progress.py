"""The search over time: medians of what was known by then, by family, and thinned lines."""

from functools import partial

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.tuned_tables import FOUR_GPUS, MANY_GPUS
from tests.tuccl.views.page.reported import reported
from tuccl.reports.evidence import Evidence
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.views.page.keys import key_figures
from tuccl.views.page.search import family_name, search_charts, search_progress, thinned
from tuccl.workspace.measurement_lines import Recorded
from tuccl.workspace.measurement_log import Measurement

RING, TREE = Config("ring", "LL"), Config("tree", "LL")
SCHEDULE = Config("schedule:5a5a", "LL")


def measured(
    seconds: float, config: Config, *samples_us: float, failed: str = "", shape: Shape = FOUR_GPUS
) -> Measurement:
    task = Task(Collective.ALL_REDUCE, 1024, shape)
    return Measurement(seconds, Recorded(task, config, samples_us, failed=failed))


def test_a_lucky_sample_does_not_stay_the_best() -> None:
    history = [
        measured(1.0, RING, 8.0),
        measured(2.0, TREE, 6.0),
        measured(3.0, TREE, 6.0, 10.0, 10.0),
        measured(4.0, STOCK, 16.0),
        measured(5.0, Config("pat", "LL"), failed="it hung"),
    ]
    progress = search_progress(key_figures(reported(), None), history, {})
    first, *others = progress.tried
    assert (progress.seconds, progress.measurements, progress.failed[first]) == (5.0, 5, 1)
    assert progress.tried[first] == {"ring": 1, "tree": 1, "stock NCCL": 1}
    assert not any(progress.tried[key] for key in others)
    tree = [(step.seconds, step.time_us) for step in progress.steps if step.family == "tree"]
    assert tree == [(2.0, 6.0), (3.0, 10.0)]
    # 16 us over 8, 6 and again 8, with three keys that nothing was measured of.
    assert [step.seconds for step in progress.gains] == [1.0, 2.0, 3.0]
    expected = [2 ** (1 / 4), (16 / 6) ** (1 / 4), 2 ** (1 / 4)]
    assert [step.gain for step in progress.gains] == pytest.approx(expected, abs=1e-4)


def test_schedules_that_no_job_runs_have_a_line_of_their_own() -> None:
    timed = partial(measured, shape=MANY_GPUS)
    history = [timed(1.0, RING, 8.0), timed(2.0, SCHEDULE, 4.0)]
    keys = key_figures(reported(MANY_GPUS), None)
    progress = search_progress(keys, history, {"5a5a": "two_phase"})
    ends = {step.apart: step.gain for step in progress.gains}
    assert ends == pytest.approx({False: 2 ** (1 / 4), True: 4 ** (1 / 4)}, abs=1e-4)
    assert all(step.operation is Collective.ALL_REDUCE for step in progress.gains)
    assert progress.steps[0].config == "two_phase LL"
    mean, by_key = search_charts(progress, Evidence.MODELLED)
    assert "with schedules that no job here runs ends at 1.414" in mean.alternative
    drawn = [figure for chart in (mean, by_key) for figure in chart.figures.values()]
    assert {trace.line.dash for figure in drawn for trace in figure.data} == {"dash"}
    assert list(by_key.figures) == [f"all_reduce {size}" for size in ("1K", "2K", "4K", "8K")]


def test_families_are_algorithms_and_schedules() -> None:
    configs = (RING, STOCK, Config("default", nthreads=256), SCHEDULE, Config("phases:5a5a", "LL"))
    assert [family_name(config) for config in configs] == [
        "ring",
        "stock NCCL",
        "NCCL's own choice under a profile",
        "schedules",
        "schedules",
    ]


def test_thinned_lines_keep_their_ends() -> None:
    assert thinned([]) == ()
    assert thinned([1, 2]) == (1, 2)
    steps = thinned(range(1000))
    assert (steps[0], steps[-1]) == (0, 999)
    assert len(steps) < 130
