"""The page of the guard's verdicts: its charts, its tables, and what a name could do to it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tuccl.reports.verdict_logs import two_keys, verdict, write_log
from tests.tuccl.views.page.reported import HOSTILE, seen
from tuccl.reports.verdicts import read_verdicts
from tuccl.views.page.page import verdicts_page
from tuccl.views.page.verdicts import verdict_charts


def test_the_charts_show_what_ran_and_the_times(tmp_path: Path) -> None:
    runs, times = verdict_charts(read_verdicts(two_keys(tmp_path)))
    (figure,) = runs.figures.values()
    marks = {trace.name: list(trace.text) for trace in figure.data}
    assert marks["nccl"] == ["left to NCCL"] * 20
    assert marks["table"] == ["the table&#x27;s again"] * 20 + ["stays"]
    assert set(figure.data[0].y) == {
        "all_reduce of 64K, 8 ranks on 2 nodes", "reduce_scatter of 1000, 8 ranks on 2 nodes",
    }  # fmt: skip
    assert figure.data[0].x[0] == "2026-01-02 03:05:05.000"
    reduces, scatters = times.figures.values()
    assert [trace.name for trace in reduces.data] == ["table", "nccl"]
    assert list(reduces.data[0].y) == [30.0] * 40
    assert [trace.name for trace in scatters.data] == ["table", "ring LL128 ch16"]
    assert "all_reduce of 64K, 8 ranks on 2 nodes: table" in runs.alternative


def test_the_page_lists_keys_and_changes(tmp_path: Path) -> None:
    found = read_verdicts(two_keys(tmp_path))
    page = seen(verdicts_page(found, HOSTILE, "today", "/* plotly */"))
    assert page.unclosed == []
    texts = " ".join(page.texts)
    assert "2026-01-02 03:43:05 UTC" in texts
    assert "table 30, nccl 28" in " ".join(texts.split())
    assert HOSTILE in texts
    assert len(page.named("script")) == 3
    charts = json.loads(next(text for text in page.scripts if text.startswith("{")))["charts"]
    assert set(charts) == {"verdict-runs", "verdict-times"}


def test_a_log_without_verdicts_or_times_has_a_page(tmp_path: Path) -> None:
    empty = read_verdicts(write_log(tmp_path))
    assert "0 verdicts on 0 keys" in verdicts_page(empty, "x", "today", "")
    untimed = verdict(1, verdict="no_times", choices=[{"name": "table", "us": None}])
    found = read_verdicts(write_log(tmp_path, untimed))
    assert "1 verdict on 1 key" in verdicts_page(found, "x", "today", "")
