"""The environment of worker processes."""

from __future__ import annotations

import os
import sys

import pytest

from tuccl.crew import worker_process
from tuccl.crew.worker_process import Staff, WorkerOrder

TELL = "import os, sys; sys.exit(' '.join(os.environ.get(n, '-') for n in ('OWN', 'ALL', 'ONE')))"
ORDER = WorkerOrder(1, (), "")


def told(staff: Staff, **variables: str) -> str:
    staff.start(ORDER, variables)
    try:
        return staff.ended(1, 30.0)
    finally:
        staff.end_all()


def test_workers_have_what_the_staff_was_given_and_what_is_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_process, "worker_command", lambda: [sys.executable, "-c", TELL])
    monkeypatch.setenv("OWN", "process")
    before = dict(os.environ)
    assert told(Staff(os.environ)) == "exit 1: process - -"
    assert told(Staff({"ALL": "staff", "ONE": "staff"}), ONE="worker") == "exit 1: - staff worker"
    assert dict(os.environ) == before
