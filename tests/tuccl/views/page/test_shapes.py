"""Tables of several communicator shapes: no key of one shape is taken for that of another."""

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.views.page.reported import NODE, RAIL, WHOLE, of_three_shapes, reported
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.reports.evidence import Evidence
from tuccl.reports.report import Report
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.views.page.curves import curve_charts
from tuccl.views.page.keys import by_curve, key_figures
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.search import search_charts, search_progress
from tuccl.views.page.tables import table_figures
from tuccl.workspace.measurement_lines import Contents, Recorded
from tuccl.workspace.measurement_log import Measurement


def report_of(found: ReportedTable) -> Report:
    assert found.report is not None
    return found.report


def test_keys_without_an_entry_keep_their_shape() -> None:
    keys = key_figures(of_three_shapes(), None)
    curves = {(own[0].operation, own[0].shape): own for own in by_curve(keys)}
    assert list(curves) == [(Collective.ALL_REDUCE, shape) for shape in (WHOLE, NODE, RAIL)]
    for (_, shape), own in curves.items():
        assert [key.size_bytes for key in own] == [1024, 2048, 4096, 8192]
        stock_us = {WHOLE: 64.0, NODE: 16.0, RAIL: 32.0}[shape]
        assert {key.stock.time_us for key in own} == {stock_us}
    assert [key.speedup for key in curves[Collective.ALL_REDUCE, NODE]] == [4.0, 8.0, 2.0, 1.0]
    assert [key.name for key in keys[3:5]] == ["whole all_reduce 8K", "node all_reduce 1K"]


def test_a_line_of_a_chart_is_of_one_shape() -> None:
    curves = by_curve(table_figures(of_three_shapes(), None).all_keys)
    assert len(curves) == 3
    for keys in curves:
        for chart in curve_charts(keys, Evidence.MEASURED):
            assert chart.title.startswith(f"{keys[0].shape_name} all_reduce: ")
            for trace in chart.figures[""].data:
                assert list(trace.x) == sorted(set(trace.x))


def test_no_line_is_drawn_over_a_size_without_a_time() -> None:
    """The plugin has times of 1K and 4K; at 2K a schedule alone was measured."""
    bandwidth, latency = curve_charts(key_figures(reported(), None), Evidence.MEASURED)
    stock, plugin, schedule = latency.figures[""].data
    assert stock.y == (16.0,) * 4
    assert (plugin.x, plugin.y) == ((1024, 2048, 4096), (8.0, None, 8.0))
    assert plugin.text[1] == ""
    assert (schedule.x, schedule.y) == ((1024, 2048), (4.0, 2.0))
    # 16 us over 8 us is at least 1.5 and at most 2.2.
    assert plugin.error_y.arrayminus == pytest.approx(
        (8.0 - 8.0 * 2 / 2.2, 0.0, 8.0 - 8.0 * 2 / 2.2)
    )
    # 1 KB in 8 us, twice 3 of 4 parts.
    assert bandwidth.figures[""].data[1].y[:2] == (1.5 * 1024e-3 / 8.0, None)
    assert bandwidth.figures[""].data[1].error_y.array[0] == pytest.approx(
        0.1 * 1.5 * 1024e-3 / 8.0
    )
    assert bandwidth.figures[""].layout.yaxis.tickvals[0] <= 1.5 * 1024e-3 / 16.0


def test_the_gain_of_each_shape_is_told() -> None:
    figures = table_figures(of_three_shapes(), None)
    assert [(each.name, each.keys) for each in figures.shapes] == [
        ("whole", 4),
        ("node", 4),
        ("rail", 4),
    ]
    assert [each.speedup for each in figures.shapes] == pytest.approx([1.0, 64 ** (1 / 4), 1.0])
    assert figures.speedup == pytest.approx(64 ** (1 / 12))
    assert table_figures(reported(), None).shapes == ()


def test_a_bound_is_of_the_part_that_a_communicator_has() -> None:
    bounds = {key.shape: key.bound_us for key in key_figures(of_three_shapes(), None)}
    whole_us, node_us, rail_us = (bounds[shape] for shape in (WHOLE, NODE, RAIL))
    assert whole_us is not None
    assert node_us is not None
    assert rail_us is not None
    assert 0.0 < node_us < rail_us < 32.0
    assert node_us < whole_us < 64.0


@pytest.mark.parametrize("laboratory", [Laboratory(2), Laboratory(congestion_control="cubic")])
def test_faked_nodes_have_no_bound_across_them(laboratory: Laboratory) -> None:
    found = of_three_shapes()
    report = report_of(found).model_copy(update={"laboratory": laboratory})
    keys = key_figures(replace(found, report=report), None)
    assert {key.shape for key in keys if key.bound_us is not None} == {NODE}


def test_ranks_that_share_a_gpu_have_no_bound() -> None:
    found = of_three_shapes()
    laboratory = Laboratory(2, share_gpus=True, gpus=1)
    report = report_of(found).model_copy(update={"laboratory": laboratory})
    assert not any(key.bound_us for key in key_figures(replace(found, report=report), None))


def test_a_bound_that_a_time_is_below_is_not_given() -> None:
    found = of_three_shapes()
    keys = [
        key.model_copy(update={"stock_us": 0.01})
        if (key.shape, key.size_bytes) == (RAIL, 2048)
        else key
        for key in report_of(found).keys
    ]
    report = report_of(found).model_copy(update={"keys": keys})
    given = key_figures(replace(found, report=report), None)
    assert {key.shape for key in given if key.bound_us is not None} == {WHOLE, NODE}


def test_samples_and_search_are_found_by_shape() -> None:
    found = of_three_shapes()
    samples = Contents()
    samples.put(Recorded(Task(Collective.ALL_REDUCE, 1024, NODE), STOCK, (15.0, 16.0, 16.0, 17.0)))
    keys = key_figures(found, samples)
    assert [key.name for key in keys if key.stock.low_us is not None] == ["node all_reduce 1K"]

    ring = Config("ring", "LL")
    history = [
        Measurement(1.0, Recorded(Task(Collective.ALL_REDUCE, 1024, NODE), ring, (8.0,))),
        Measurement(2.0, Recorded(Task(Collective.ALL_REDUCE, 1024, WHOLE), ring, (32.0,))),
        Measurement(3.0, Recorded(Task(Collective.ALL_REDUCE, 2048, WHOLE), ring, (32.0,))),
    ]
    progress = search_progress(keys, history, {})
    ends = {step.shape_name: step.gain for step in progress.gains}
    assert ends == pytest.approx({"whole": 2 ** (2 / 4), "node": 2 ** (1 / 4)}, abs=1e-4)
    mean, by_key = search_charts(progress, Evidence.MEASURED)
    assert list(mean.figures) == ["whole", "node"]
    assert len(by_key.figures) == 12
