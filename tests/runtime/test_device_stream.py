"""What the executor asks of streams, over a stand-in of CUDA's runtime."""

from pathlib import Path

from tests.runtime.host_node import NATIVE
from tests.runtime.test_executor import EXECUTOR
from tests.runtime.test_native import MEMORY, run
from tests.runtime.test_zero_copy import compile_driver


def test_a_stream_in_a_capture_is_not_asked_for_its_number(tmp_path: Path) -> None:
    """CUDA refuses it, and the call was then taken for one outside of the capture."""
    program = compile_driver(
        tmp_path / "drive",
        *MEMORY,
        f"-I{NATIVE / 'cuda_on_host'}",
        *(NATIVE / "drive_device_stream.cc", EXECUTOR / "device_stream.cc"),
    )
    run(program)
