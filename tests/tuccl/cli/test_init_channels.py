"""`tuccl init --max-channels`: a table for jobs that compute beside their calls."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.tuccl.conftest import Run

KEYS = ("--operations", "all_reduce", "--min-size", "64K", "--max-size", "4M", "--step", "64")


@pytest.mark.long
def test_nothing_that_takes_more_is_searched_or_chosen(
    run_inside: Run, h200: Path, tmp_path: Path
) -> None:
    bounded = ("--max-channels", "8", "--workspace", tmp_path / "bounded")
    record = tmp_path / "record.parquet"
    done = run_inside("init", "--topology", h200, *KEYS, *bounded, "--record", record)
    assert done.returncode == 0, done.stderr
    assert ", --max-channels 8" in done.stdout
    tried = pd.read_parquet(record)
    assert (tried.nchannels.max(), tried.min_nchannels.max()) == (8, 0)
    assert tried.algorithm.str.startswith("schedule:").any()

    free = tmp_path / "free.parquet"
    done = run_inside("init", "--topology", h200, *KEYS, "--record", free)
    assert done.returncode == 0, done.stderr
    assert pd.read_parquet(free).nchannels.max() > 8
    # The same record without and with the bound: what it costs on calls alone.
    again = ("--max-channels", "8", "--workspace", tmp_path / "again")
    done = run_inside("init", "--records", free, *again, "--json")
    assert done.returncode == 0, done.stderr
    assert "it differs from the recorded one in --max-channels" in done.stderr
    entries = json.loads(done.stdout)["entries"]
    assert entries
    chosen = [entry["schedule"] or entry["builtin"] for entry in entries]
    assert all(1 <= config["nchannels"] <= 8 for config in chosen)


@pytest.mark.long
def test_a_bound_without_channels_is_refused(run_inside: Run, h200: Path) -> None:
    done = run_inside("init", "--topology", h200, *KEYS, "--max-channels", "0")
    assert done.returncode == 2
    assert "--max-channels 0 is out of range: use 1 to 64" in done.stderr
