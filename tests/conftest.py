"""Settings of the whole test suite."""

import gc
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline per example would fail on a busy machine.
settings.register_profile("tuccl", deadline=None, derandomize=True)
settings.load_profile("tuccl")

# Shells start background jobs with SIGINT ignored, and processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILES = (ROOT / "tests" / "longest_files.txt").read_text(encoding="utf-8").split()
LONG = frozenset((ROOT / "tests" / "long_tests.txt").read_text(encoding="utf-8").split())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; mark the tests that `scripts/test.sh --quick` leaves out.

    Workers that take a file at a time end together if the last files are short.
    """
    place = {ROOT / file: number for number, file in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    for item in items:
        file = item.path.relative_to(ROOT).as_posix()
        name = getattr(item, "originalname", item.name)
        if not LONG.isdisjoint({file, f"{file}::{name}"}):
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Spare each garbage collection the modules and thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()
