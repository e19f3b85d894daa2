"""Zero copy: the kernel's steps on host threads; what is opened, over a stand-in of CUDA."""

import subprocess
from pathlib import Path

import pytest

from tests.runtime.conftest import compile_c
from tests.runtime.host_node import CXX, NATIVE
from tests.runtime.test_executor import EXECUTOR
from tests.runtime.test_native import MEMORY, THREADS, run

WARNINGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")


def compile_driver(output: Path, *flags: object) -> Path:
    command = [CXX, *WARNINGS, *flags, f"-I{NATIVE}", f"-I{EXECUTOR}", "-o", output, "-lpthread"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zero_copy")
    return compile_driver(folder / "drive", *MEMORY, NATIVE / "drive_zero_copy.cc")


@pytest.mark.parametrize(
    "scenario",
    [
        "opens_what_is_asked_for",
        "ranks_of_one_process",
        "memory_that_cannot_be_shared",
        "memory_that_cannot_be_opened",
        "ends_after_an_abort",
    ],
)
def test_scenario(driver: Path, scenario: str) -> None:
    run(driver, scenario)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_calls_move_every_byte(driver: Path, seed: int) -> None:
    run(driver, "random_calls", seed)


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS], ids=["memory", "threads"])
def test_memory_of_others_is_opened_once_and_closed_when_freed(
    tmp_path: Path, sanitizer: tuple[str, ...]
) -> None:
    library = compile_c(
        tmp_path / "libcuda.so.1",
        [NATIVE / "stand_in_driver.c"],
        *("-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"),
    )
    program = compile_driver(
        tmp_path / "drive",
        *sanitizer,
        *(f"-I{NATIVE / 'cuda_on_host'}", f"-Wl,-rpath,{tmp_path}"),
        *(NATIVE / "drive_mappings.cc", EXECUTOR / "mappings.cc", library, "-ldl"),
    )
    run(program)
