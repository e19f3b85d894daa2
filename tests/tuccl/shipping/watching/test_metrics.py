"""Metrics of a watch in Prometheus' text format."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.watching.test_spot_verdicts import TASKS, promise
from tests.tuccl.shipping.watching.watched_tables import watched_table
from tuccl.shipping.doctor.findings import ok, warning
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.watching.metrics import watch_metrics
from tuccl.shipping.watching.spot_verdicts import SpotVerdict
from tuccl.shipping.watching.watch import Watched

SAMPLE = re.compile(
    r'[a-z_]+\{[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z_]+="[^"\\\n]*")*\} [0-9.e+-]+'
)
"""A line of the exposition format with labels, the first of which may have escapes."""


@pytest.fixture
def watched(stand_ins: StandIns, tmp_path: Path) -> Watched:
    view = view_shipped(watched_table(tmp_path / "shipped", stand_ins))
    findings = (ok("driver", "the same"), warning("GPUs", "one", "a"), warning("GPUs", "two", "b"))
    spot = SpotVerdict(TASKS[0], promise(), 1.25, 1.3, 25.0, 20.0, None)
    return Watched(view, findings, (), (spot,), 7.5)


def test_every_line_is_of_the_text_format(watched: Watched) -> None:
    strange = replace(watched.view, directory=Path('/a "b"\\c\nd'))
    lines = watch_metrics(replace(watched, view=strange)).splitlines()
    samples = [line for line in lines if not line.startswith("# ")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    assert all('directory="/a \\"b\\"\\\\c\\nd"' in line for line in samples)
    for kind in ("HELP", "TYPE"):
        named = [line.split()[2] for line in lines if line.startswith(f"# {kind} ")]
        assert len(set(named)) == len(named), "each metric is described once"
        assert named == list(dict.fromkeys(line.split("{")[0] for line in samples))


def test_a_key_of_some_communicators_has_a_series_of_its_own(watched: Watched) -> None:
    (spot,) = watched.spots
    own = replace(spot, promise=replace(spot.promise, like="gpu0 and gpu2"))
    lines = watch_metrics(replace(watched, spots=(spot, own))).splitlines()
    gains = [line for line in lines if line.startswith("tuccl_watch_gain_ratio{")]
    assert len(set(gains)) == 2
    assert 'size_bytes="1024",placement="gpu0 and gpu2"}' in gains[1]


def test_the_values_are_those_of_the_watch(watched: Watched) -> None:
    text = watch_metrics(watched)
    values = {
        (line.split("{")[0], *re.findall(r'(?:check|size_bytes)="([^"]*)"', line)): line.split()[-1]
        for line in text.splitlines()
        if not line.startswith("# ")
    }
    assert values == {
        ("tuccl_watch_unchanged",): "0",
        ("tuccl_watch_complete",): "1",
        ("tuccl_watch_changes", "driver"): "0",
        ("tuccl_watch_changes", "GPUs"): "2",
        ("tuccl_watch_seconds",): "7.5",
        ("tuccl_watch_gain_ratio", "1024"): "1.25",
        ("tuccl_watch_promised_gain_ratio", "1024"): "1.5",
    }
    unmeasured = watch_metrics(replace(watched, spots=(), unchecked=("no GPU",)))
    assert "gain_ratio" not in unmeasured
    assert "tuccl_watch_complete{" in unmeasured
