"""The executor's queries of streams and its trials, over a stand-in of CUDA's runtime."""

from pathlib import Path

import pytest

from tests.runtime.builds import EXECUTOR, MEMORY, NATIVE, compile_native, run


def test_a_stream_in_a_capture_is_not_asked_for_its_number(tmp_path: Path) -> None:
    """CUDA refuses the query, and the call was then taken for one outside of the capture."""
    sources = [NATIVE / "drive_device_stream.cc", EXECUTOR / "device_stream.cc"]
    run(compile_native(tmp_path / "drive", sources, *MEMORY, f"-I{NATIVE / 'cuda_on_host'}"))


@pytest.mark.long
def test_trials_are_used_again_when_the_device_has_done_them(tmp_path: Path) -> None:
    sources = [NATIVE / "drive_device_trials.cc", EXECUTOR / "device_trials.cc"]
    run(compile_native(tmp_path / "drive", sources, *MEMORY, f"-I{NATIVE / 'cuda_on_host'}"))
