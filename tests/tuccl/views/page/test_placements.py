"""Entries by where ranks sit in a report: rows and charts of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.bench.shipped_tables import TWO_RANKS, M
from tests.tuccl.views.page.reported import reported, seen, with_placements
from tuccl.reports.json_form import json_of
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.placement import Placement
from tuccl.views.page.curves import curve_charts
from tuccl.views.page.keys import by_curve
from tuccl.views.page.page import comparison_page, table_page
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.tables import ReportDocument, ReportFigures, compared_figures, table_figures
from tuccl.workspace.measurement_lines import Contents, Recorded

PLACED = with_placements(reported(TWO_RANKS))
NEIGHBOURS, APART = "gpu0 and gpu1", "gpu0 and gpu2"


def texts_of(found: ReportedTable) -> list[str]:
    figures = ReportFigures("2026-01-02", (table_figures(found, None),))
    return seen(table_page(figures, found, (), "Plotly = {};")).texts


def test_placed_entries_have_figures_of_their_own() -> None:
    figures = table_figures(PLACED, None)
    assert [(key.placement, key.size_bytes) for key in figures.placed] == [
        (NEIGHBOURS, 2 * M), (APART, 2 * M),
    ]  # fmt: skip
    assert [key.speedup for key in figures.placed] == pytest.approx([1.5, 2.5])
    plain = table_figures(reported(TWO_RANKS), None)
    assert (figures.keys, figures.speedup) == (plain.keys, plain.speedup), "of shapes alone"
    assert any("1 for those like gpu0 and gpu2 (2.500x)" in line for line in figures.remarks)
    curves = by_curve(figures.all_keys)
    charts = [curve_charts(keys, figures.times)[0].title for keys in curves]
    assert charts == [
        "all_reduce: bus bandwidth",
        f"all_gather, like {NEIGHBOURS}: bus bandwidth",
        f"all_gather, like {APART}: bus bandwidth",
    ]


def test_a_page_has_rows_for_each_and_says_what_they_are() -> None:
    texts = texts_of(PLACED)
    for example in (NEIGHBOURS, APART):
        assert f"all_gather, like {example}" in texts, "a row of the heat map"
        assert texts.count(f"2 ranks on 1 node, like {example}") == 2, "of charts and the table"
    assert any(text.startswith("Rows that name GPUs are of") for text in texts)
    assert not any("Rows that name GPUs" in text for text in texts_of(reported(TWO_RANKS)))


def test_a_shipped_directory_shows_them_too() -> None:
    shipped = replace(PLACED, report=None)
    figures = table_figures(shipped, None)
    assert [key.placement for key in figures.all_keys] == [None, None, None, NEIGHBOURS, APART]
    assert any("for those like" in line for line in figures.remarks)


def test_stock_has_the_quartiles_of_the_communicators_own_samples() -> None:
    contents = Contents()
    task = Task(Collective.ALL_GATHER, 2 * M, Shape(2, 1, 2), Placement(2, (0, 1)))
    contents.put(Recorded(task, STOCK, (60.0, 64.0, 64.0, 64.0, 70.0)))
    neighbours, apart = table_figures(PLACED, contents).placed
    assert neighbours.stock.low_us is None
    assert (apart.stock.low_us, apart.stock.high_us) == (64.0, 64.0)


@pytest.mark.long
def test_two_tables_are_compared_placement_by_placement() -> None:
    first = PLACED
    slower = tuple(
        replace(own, entries=tuple(replace(entry, time_us=32.0) for entry in own.entries))
        for own in PLACED.table.placements
    )
    second = replace(PLACED, name="second", table=replace(PLACED.table, placements=slower))
    figures = compared_figures(first, second, "2026-01-02")
    comparison = figures.comparison
    assert comparison is not None
    placed = {key.first.placement: key.ratio for key in comparison.keys if key.first.placement}
    assert placed == pytest.approx({NEIGHBOURS: 64 / 1.5 / 32, APART: 64 / 2.5 / 32})
    texts = seen(comparison_page(figures, "Plotly = {};")).texts
    assert f"2 ranks on 1 node, like {APART}" in texts
    document = ReportDocument(Path("x"), figures)
    tables = check("report", json.dumps(json_of(document)))["figures"]["tables"]
    assert [key["placement"] for key in tables[0]["placed"]] == [NEIGHBOURS, APART]
