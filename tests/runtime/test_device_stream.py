"""The executor's queries of streams, over a stand-in of CUDA's runtime."""

from pathlib import Path

from tests.kept_builds import compile_kept
from tests.runtime.host_node import CXX, NATIVE
from tests.runtime.test_executor import EXECUTOR
from tests.runtime.test_native import MEMORY, run

WARNINGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror")


def test_a_stream_in_a_capture_is_not_asked_for_its_number(tmp_path: Path) -> None:
    """CUDA refuses the query, and the call was then taken for one outside of the capture."""
    program = tmp_path / "drive"
    folders = (f"-I{NATIVE}", f"-I{EXECUTOR}", f"-I{NATIVE / 'cuda_on_host'}")
    sources = (NATIVE / "drive_device_stream.cc", EXECUTOR / "device_stream.cc")
    command = (CXX, *WARNINGS, *MEMORY, *folders, "-o", program, *sources)
    done = compile_kept(list(map(str, command)))
    assert done.returncode == 0, done.stderr
    run(program)
