"""What the build asks of the compiler: strict where we build, lenient where users do."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def commands(folder: Path, *options: str) -> list[str]:
    """The compiler command of each C, C++ and CUDA file."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake")
    configure = [cmake, "-S", str(ROOT), "-B", str(folder), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    done = subprocess.run([*configure, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        entry["command"] for entry in json.loads((folder / "compile_commands.json").read_text())
    ]


@pytest.mark.parametrize(
    ("options", "strict"),
    [
        ([], False),  # What `pip install .` configures: a new compiler's warning is no error.
        (["-DTUCCL_BUILD_TESTS=ON"], True),
        (["-DTUCCL_WARNINGS_AS_ERRORS=ON"], True),
    ],
)
def test_warnings_are_errors_for_developers_only(
    options: list[str], strict: bool, tmp_path: Path
) -> None:
    lines = commands(tmp_path, *options)
    assert len(lines) >= 8
    # nvcc hands its host compiler's options on.
    assert all("-Wall -Wextra" in line or "-Xcompiler=-Wall,-Wextra" in line for line in lines)
    assert {"-Werror" in line for line in lines} == {strict}
