"""The compilers of the native tests, and their programs; what is compiled is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kept_builds import ROOT, compile_kept, compiler_words, content_sum, kept

RUNTIME = ROOT / "tuccl" / "runtime"
EXECUTOR = RUNTIME / "executor"
NATIVE = ROOT / "tests" / "runtime" / "native"
STAND_INS = ROOT / "tests" / "runtime" / "executor"
"""Stand-ins of NCCL and CUDA for the executor, and the jobs that run over them."""
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_C_FLAGS = (
    *("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-D_DEFAULT_SOURCE", *_WARNINGS),
    *("-fPIC", f"-I{RUNTIME}"),
)
_CXX_FLAGS = (
    # nvcc unrolls loops by a pragma.
    *("-std=c++17", *_WARNINGS, "-Wno-unknown-pragmas", "-fPIC"),
    *(f"-I{folder}" for folder in (EXECUTOR, RUNTIME, STAND_INS)),
)
SANITIZERS = {
    # What reads or writes at NULL is found by the first; the second's checks of each pointer take
    # a quarter of the time to compile. With -O0 programs take as long to compile and longer to run;
    # with -O1 and with lines for the reports they take longer to compile.
    "memory": (
        *("-Og", "-fsanitize=address,undefined", "-fno-sanitize=null"),
        "-fno-sanitize-recover=all",
    ),
    "threads": ("-Og", "-fsanitize=thread"),
}
"""Flags by what is looked for, the same for all programs: they share what they are compiled of."""
MEMORY, THREADS = SANITIZERS.values()

LOADER = [RUNTIME / "crc32.c", *sorted(RUNTIME.glob("program*.c"))]
"""The loader of programs."""
PLANS = [
    *(RUNTIME / f"{name}.c" for name in ("bundle", "machine", "pci_switches")),
    *LOADER,
    *(
        EXECUTOR / f"{name}.cc"
        for name in (
            *("choose", "decision", "grid", "plan", "program_plan", "staging_need"),
            *("statement_plan", "uniform_plan"),
        )
    ),
]
"""What the executor makes of a bundle before it has a GPU."""


STANDARD_HEADERS = (
    *("algorithm", "array", "atomic", "chrono", "condition_variable", "cstring", "functional"),
    *("map", "memory", "mutex", "optional", "string", "system_error", "thread", "unordered_map"),
    *("utility", "vector"),
)
"""What most C++ files include, parsed once for all of them."""


def _parsed_headers(*flags: str) -> tuple[str, ...]:
    """Options with which g++ takes the standard headers as it parsed them with these flags.

    Macros of single files play no part in them.
    """
    flags = tuple(flag for flag in flags if flag != "-c" and not flag.startswith("-D"))
    command = [CXX, *_CXX_FLAGS, *flags, "-x", "c++-header"]
    text = "".join(f"#include <{name}>\n" for name in STANDARD_HEADERS)

    def parse(folder: Path) -> None:
        header = folder / "standard.h"
        header.write_text(text)
        subprocess.run([*command, str(header), "-o", f"{header}.gch"], check=True)

    folder = kept(content_sum([*compiler_words(CXX), *command, text], ()), parse)
    return "-include", str(folder / "standard.h")


def _is_cxx(paths: Iterable[Path]) -> bool:
    return any(path.name.removesuffix(".o").endswith((".cc", ".cpp")) for path in paths)


def _compile(sources: Sequence[Path], output: Path, *flags: str) -> None:
    compiler = (CXX, *_CXX_FLAGS) if _is_cxx(sources) else (CC, *_C_FLAGS)
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no compiler: {compiler[0]}")
    if _is_cxx(sources) and "-c" in flags:
        compiler = (*compiler, *_parsed_headers(*flags))
    done = compile_kept([*compiler, *flags, "-o", str(output), *map(str, sources)])
    assert done.returncode == 0, done.stderr


def compile_all(folder: Path, sources: Sequence[Path], *flags: str) -> list[Path]:
    """Compile C and C++ files, as many at a time as there are cores; return the objects."""
    folder.mkdir(exist_ok=True)
    objects = [folder / f"{source.name}.o" for source in sources]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda each: _compile([each[0]], each[1], *flags, "-c"),
                      zip(sources, objects, strict=True)))  # fmt: skip
    return objects


def link(output: Path, objects: Sequence[Path], *flags: str) -> Path:
    """Link a program or library."""
    command = [CXX if _is_cxx(objects) else CC, "-o", str(output), *map(str, objects), *flags]
    done = compile_kept([*command, "-lpthread", "-ldl"])
    assert done.returncode == 0, done.stderr
    return output


def compile_native(output: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Compile and link C and C++ files, with flags for both.

    Several are compiled one by one, so that those which programs share are compiled once.
    """
    if len(sources) == 1:
        _compile(sources, output, *flags, "-lpthread", "-ldl")
        return output
    of_linker = ("-shared", "-rdynamic", "-l", "-L", "-Wl")
    compiling = [flag for flag in flags if not flag.startswith(of_linker)]
    return link(
        output, compile_all(output.with_name(f"{output.name}.objects"), sources, *compiling), *flags
    )


def needs_sanitizer(folder: Path, *flags: str) -> None:
    """Skip the test where the compiler cannot link with these flags."""
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    command = [CC, *flags, str(probe), "-o", str(folder / "probe")]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"the compiler has no runtime for {' '.join(flags)}")


def run(*command: object, **environment: str) -> str:
    """Run a program, which must succeed; return what it prints."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fuzz(fuzzer: Path, start: Path, count: int, seed: int, *words: str) -> list[float]:
    """Run a fuzzer from a file; return what it counts, as shares of its inputs."""
    said = run(fuzzer, start, count, seed, *words)
    return [int(part.split()[0]) / count for part in said.split(", ")]
