"""Settings of the whole test suite."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline per example fails on a busy machine without anything being wrong.
settings.register_profile("tuccl", deadline=None, derandomize=True)
settings.load_profile("tuccl")

# Shells start what is in the background with Ctrl-C ignored, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
LONG = frozenset((ROOT / "tests" / "long_tests.txt").read_text(encoding="utf-8").split())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `scripts/test.sh --quick` leaves out."""
    for item in items:
        file = item.path.relative_to(ROOT).as_posix()
        name = getattr(item, "originalname", item.name)
        if not LONG.isdisjoint({file, f"{file}::{name}"}):
            item.add_marker(pytest.mark.long)
