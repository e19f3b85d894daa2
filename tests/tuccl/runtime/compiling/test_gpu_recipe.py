"""`tuccl build-executor` and CMake compile the same files in the same way."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from probes.nvidia.gpu_programs import GpuProgram, sources_of
from probes.p2p.run import p2p_program
from tuccl.runtime import executor_program
from tuccl.runtime.compiling.cuda_toolkit import Compilers
from tuccl.runtime.compiling.executor_build import recipe

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[4]
COMPILERS = Compilers("cc", "c++", "nvcc", (13, 0), frozenset())
PROGRAMS = [executor_program(), p2p_program()]
CODE = re.compile(
    r"-(std=\S+|O\d|D(?!\w+_EXPORTS)\S+|fPIC|fvisibility\S+|-generate-code=\S+|cudart\S*)"
)


def meaning(words: Sequence[str]) -> set[str]:
    """The options that change what is compiled, however they are handed on."""
    plain = []
    for word in words:
        plain += word.removeprefix("-Xcompiler=").split(",-") if "-Xcompiler" in word else [word]
    named = {word if word.startswith("-") else f"-{word}" for word in plain}
    return {word for word in named if CODE.fullmatch(word)} | {
        word for word in named if word.startswith("-I")
    }


def words_of(entry: dict[str, str]) -> list[str]:
    """Words of CMake's command, with those that it leaves to a file."""
    words = shlex.split(entry["command"])
    for place, word in enumerate(words):
        if word == "--options-file":
            words += shlex.split(Path(entry["directory"], words[place + 1]).read_text())
    return words


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cmake") is None or shutil.which("nvcc") is None:
        pytest.skip("no cmake or no nvcc")
    folder = tmp_path_factory.mktemp("configured")
    options = ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_CUDA_ARCHITECTURES=80;90"]
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Unix Makefiles", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.name))
def test_every_file_is_compiled_as_cmake_compiles_it(program: GpuProgram, configured: Path) -> None:
    target = program.name.removeprefix("lib").removesuffix(".so")
    entries = json.loads((configured / "compile_commands.json").read_text())
    cmakes = {
        Path(entry["file"]): meaning(words_of(entry))
        for entry in entries
        if f"/{target}.dir/" in entry["command"]
    }
    ours = {
        Path(run.command[-3]): meaning(run.command)
        for run in recipe(program, ["80", "90"], COMPILERS, Path("scratch")).compile
    }
    # CMake lets nvcc's host compiler decide on inlines, which the library does not export either.
    inlines = "-fvisibility-inlines-hidden"
    assert set(ours) == set(cmakes) == set(sources_of(program))
    for source, options in ours.items():
        assert options - {inlines} == cmakes[source] - {inlines}, source


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.name))
def test_it_is_linked_as_cmake_links_it(program: GpuProgram, configured: Path) -> None:
    target = program.name.removeprefix("lib").removesuffix(".so")
    (script,) = configured.glob(f"**/{target}.dir/link.txt")
    linked = script.read_text()
    ours = recipe(program, ["80", "90"], COMPILERS, Path("scratch")).link.command
    library = program.name.endswith(".so")
    assert ("-shared" in linked) is ("-shared" in ours) is library
    for option in ("-z,nodelete", f"--version-script={program.folder / 'exports.map'}"):
        assert (option in linked) is (f"-Xlinker={option}" in ours) is library
    assert "cudart_static" in linked
    assert "-cudart=static" in ours


def test_no_source_is_forgotten() -> None:
    executor, p2p = PROGRAMS
    for program in (executor, p2p):
        suffixes = {".cc", ".cpp", ".cu"}
        present = {file for file in program.folder.iterdir() if file.suffix in suffixes}
        listed = set(sources_of(program))
        assert present <= listed
        assert all(source.is_file() for source in listed)
    assert Path(executor.package / "crc32.c") in sources_of(executor)
