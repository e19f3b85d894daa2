"""Metrics of a watch in Prometheus' text format."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuccl.shipping.watching.test_spot_verdicts import TASKS, promise
from tuccl.shipping.doctor.findings import ok, warning
from tuccl.shipping.watching.metrics import watch_metrics
from tuccl.shipping.watching.spot_verdicts import SpotTimes, judge
from tuccl.shipping.watching.watch import WatchResult

SAMPLE = re.compile(
    r'[a-z_]+\{[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z_]+="[^"\\\n]*")*\} [0-9.e+-]+'
)
"""A line of the exposition format with labels, the first of which may have escapes."""


@pytest.fixture
def watched() -> WatchResult:
    findings = (ok("driver", "the same"), warning("GPUs", "one", "a"), warning("GPUs", "two", "b"))
    quiet = SpotTimes([25.0, 25.0], [20.0, 20.0])
    keys = judge({TASKS[0]: promise()}, {TASKS[0]: quiet})
    return WatchResult(Path("/shipped"), "5a5a5a5a", "t", "host", findings, (), keys, 7.5, {})


def test_every_line_is_of_the_text_format(watched: WatchResult) -> None:
    strange = replace(watched, directory=Path('/a "b"\\c\nd'))
    lines = watch_metrics(strange).splitlines()
    samples = [line for line in lines if not line.startswith("# ")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    assert all('directory="/a \\"b\\"\\\\c\\nd"' in line for line in samples)
    for kind in ("HELP", "TYPE"):
        named = [line.split()[2] for line in lines if line.startswith(f"# {kind} ")]
        assert len(set(named)) == len(named), "each metric is described once"
        assert named == list(dict.fromkeys(line.split("{")[0] for line in samples))


def test_a_key_of_some_communicators_has_a_series_of_its_own(watched: WatchResult) -> None:
    (key,) = watched.keys
    own = replace(key, placement="gpu0 and gpu2")
    lines = watch_metrics(replace(watched, keys=(key, own))).splitlines()
    gains = [line for line in lines if line.startswith("tuccl_watch_gain_ratio{")]
    assert len(set(gains)) == 2
    assert 'size_bytes="1024",placement="gpu0 and gpu2"}' in gains[1]


def test_the_values_are_those_of_the_watch(watched: WatchResult) -> None:
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
    unmeasured = watch_metrics(replace(watched, keys=(), unchecked=("no GPU",)))
    assert "gain_ratio" not in unmeasured
    assert "tuccl_watch_complete{" in unmeasured
