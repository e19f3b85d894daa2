"""Settings of the whole test suite."""

import gc
import signal

from hypothesis import HealthCheck, settings

from tuccl.__main__ import NEW_OBJECTS

# A limit of time would fail on a busy machine. scripts/test_slow.sh takes `thorough`.
for profile, examples in (("tuccl", 25), ("thorough", 300)):
    settings.register_profile(
        profile,
        deadline=None,
        derandomize=True,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
settings.load_profile("tuccl")

# Shells start background jobs with SIGINT ignored, and processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare each garbage collection the modules and thousands of tests, which stay to the end.

    Tests in this process collect as seldom as the command does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
