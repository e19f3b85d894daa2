"""The guard's verdicts on terminals of several widths."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.tuccl.reports.verdict_logs import two_keys
from tuccl.reports.verdicts import read_verdicts
from tuccl.views.terminal.verdicts_display import print_verdicts


@pytest.mark.parametrize("width", [80, 100, 140])
def test_verdicts_fit_the_terminal(tmp_path: Path, width: int) -> None:
    out = io.StringIO()
    print_verdicts(read_verdicts(two_keys(tmp_path)), Console(file=out, width=width))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    rows = [" ".join(line.split()) for line in lines]
    assert "all_reduce 64K 8 2 40 40 30 28 table" in rows
    assert "reduce_scatter 1000 8 2 1 0 1.235e+04 - table" in rows
    change = "2026-01-02 03:43:05 all_reduce 64K 8 2 nccl table"
    medians = "table 30, nccl 28"
    if width == 80:
        assert rows[rows.index(change) + 1] == f"medians in us: {medians}"
    else:
        assert f"{change} {medians}" in rows
    assert "The last 20 of 40 changes" in rows
    assert rows[-1] == "41 verdicts on 2 keys in 1 file: 40 changes"
