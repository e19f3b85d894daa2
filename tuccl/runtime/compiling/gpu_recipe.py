"""The commands that compile a program with GPU code: those that CMake would give.

nvcc is called without CMake, which an installation need not have when it is used. The files come
from the `sources.cmake` that CMake reads too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from probes.nvidia.gpu_programs import GpuProgram, sources_of
from tuccl.runtime.compiling.compiler_runs import CompilerRun
from tuccl.runtime.compiling.cuda_toolkit import Compilers

_C_FLAGS = ("-std=c11", "-O2", "-D_POSIX_C_SOURCE=200809L", "-D_DEFAULT_SOURCE")
_CXX_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG")
_LIBRARY_C_FLAGS = ("-fPIC", "-fvisibility=hidden")
_LIBRARY_CXX_FLAGS = (*_LIBRARY_C_FLAGS, "-fvisibility-inlines-hidden")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The compilers' runs for one program."""

    compile: tuple[CompilerRun, ...]
    """In any order."""
    link: CompilerRun


def recipe(
    program: GpuProgram, architectures: Sequence[str], compilers: Compilers, scratch: Path
) -> Recipe:
    """How a program is compiled.

    Args:
        program: A library if its name ends with `.so`; `exports.map` beside its sources says what
            it shows.
        architectures: For which machine code and PTX are made.
        compilers: What compiles.
        scratch: Folder for objects and the result.
    """
    is_library = program.name.endswith(".so")
    sources = sources_of(program)
    folders = dict.fromkeys((program.folder, *(source.parent for source in sources)))
    includes = [f"-I{folder}" for folder in folders]
    nvcc = (compilers.nvcc, f"-ccbin={compilers.cxx}", *_CXX_FLAGS)
    host = ",".join(_LIBRARY_CXX_FLAGS)
    commands = {
        ".c": (compilers.c, *_C_FLAGS, *(_LIBRARY_C_FLAGS if is_library else ())),
        # Through nvcc, which knows where CUDA's headers are.
        ".cc": (*nvcc, *([f"-Xcompiler={host}"] if is_library else [])),
        ".cu": (*nvcc, *_code_for(architectures), *([f"-Xcompiler={host}"] if is_library else [])),
    }
    commands[".cpp"] = commands[".cc"]
    runs = []
    for source in sources:
        output = scratch / f"{program.name}.{source.name}.o"
        command = (*commands[source.suffix], *includes, "-c", str(source), "-o", str(output))
        runs.append(CompilerRun(source.name, command, output, source.stat().st_size))
    objects = [str(run.output) for run in runs]
    result = scratch / program.name
    shared = _library_flags(program) if is_library else ()
    link = (
        *nvcc[:2],
        "-cudart=static",
        "-Xlinker=-s",
        *shared,
        *objects,
        "-lpthread",
        "-ldl",
        "-o",
        str(result),
    )
    return Recipe(tuple(runs), CompilerRun(program.name, link, result))


def _code_for(architectures: Sequence[str]) -> list[str]:
    # A kernel takes a minute and more per architecture: they are compiled side by side.
    threads = [f"--threads={len(architectures)}"] if len(architectures) > 1 else []
    return threads + [
        f"--generate-code=arch=compute_{name},code=[compute_{name},sm_{name}]"
        for name in architectures
    ]


def _library_flags(program: GpuProgram) -> tuple[str, ...]:
    # Threads and remembered communicators refer to the code: it stays.
    exports = f"--version-script={program.folder / 'exports.map'}"
    return ("-shared", "-Xlinker=-z,nodelete", f"-Xlinker={exports}")
