"""Settings of the whole test suite."""

import gc
import signal

from hypothesis import settings

# A deadline per example would fail on a busy machine. scripts/test_slow.sh takes `thorough`.
settings.register_profile("tuccl", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=300)
settings.load_profile("tuccl")

# Shells start background jobs with SIGINT ignored, and processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare each garbage collection the modules and thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()
