"""The executor's queries of streams, over a stand-in of CUDA's runtime."""

from pathlib import Path

from tests.runtime.builds import EXECUTOR, MEMORY, NATIVE, compile_native, run


def test_a_stream_in_a_capture_is_not_asked_for_its_number(tmp_path: Path) -> None:
    """CUDA refuses the query, and the call was then taken for one outside of the capture."""
    sources = [NATIVE / "drive_device_stream.cc", EXECUTOR / "device_stream.cc"]
    run(compile_native(tmp_path / "drive", sources, *MEMORY, f"-I{NATIVE / 'cuda_on_host'}"))
