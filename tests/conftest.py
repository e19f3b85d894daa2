"""Settings of the whole test suite."""

from hypothesis import settings

# A deadline per example fails on a busy machine without anything being wrong.
settings.register_profile("tuccl", deadline=None, derandomize=True)
settings.load_profile("tuccl")
