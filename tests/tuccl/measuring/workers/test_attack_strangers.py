"""Unauthenticated connections to real runs: no run fails, and failures would be counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import attack_strangers
import pytest
from attack_strangers import attack

from tuccl.crew.places import Places
from tuccl.measuring.backends.workers_backend import (
    WorkersBackend,
    WorkersOptions,
    open_workers_backend,
)


@pytest.mark.slow
def test_no_run_notices_strangers(tmp_path: Path) -> None:
    counts = attack(5.0, 0, tmp_path)
    assert counts["failures"] == 0
    assert counts["strangers"] > 160
    assert counts["measurements"] == 3 * counts["attempts"]
    assert len(list(tmp_path.glob("*.jsonl"))) == counts["attempts"]


@pytest.mark.slow
def test_a_run_that_strangers_keep_from_starting_is_counted_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def hasty(engine: str, places: Places, _: object) -> Iterator[WorkersBackend]:
        options = WorkersOptions(start_timeout_s=0.01)
        with open_workers_backend(engine, places, options) as backend:
            yield backend

    with mock.patch.object(attack_strangers, "open_workers_backend", hasty):
        counts = attack(0.0, 0, tmp_path)
    assert (counts["attempts"], counts["failures"], counts["measurements"]) == (1, 1, 0)
    assert "failure 0/strangers/0: MeasurementError: " in capsys.readouterr().out
