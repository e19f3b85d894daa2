"""Compiles the executor and the P2P benchmark after the installation, where they are wanted.

Builds go into the installed package, for all who use it, or where that is not writable into the
user's cache directory. A further architecture is added to those that are there already, so that the
one build that is taken serves every kind of GPU that it was asked for. Folders of builds come into
being whole, by a rename; a lock lets only one process compile at a time.

nvcc is called without CMake, which an installation need not have when it is used, with the commands
that CMake would give. The files come from the `sources.cmake` that CMake reads too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from probes.nvidia.gpu_programs import (
    Build,
    GpuProgram,
    build_name,
    builds_in_package,
    builds_of_user,
    find_build,
    sources_of,
)
from probes.p2p.run import p2p_program
from tuccl.errors import WorkspaceError
from tuccl.runtime import executor_program
from tuccl.runtime.compiling.compiler_runs import CompilerRun, Progress, run_compilers
from tuccl.runtime.compiling.cuda_toolkit import Compilers, find_compilers, in_order
from tuccl.workspace.atomic_file import PARTIAL_PREFIX, cannot_write

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
    nvcc = (compilers.nvcc, f"-ccbin={compilers.cxx}")
    of_library = [f"-Xcompiler={','.join(_LIBRARY_CXX_FLAGS)}"] if is_library else []
    # Through nvcc, which knows where CUDA's headers are.
    host = (*nvcc, *_CXX_FLAGS, *of_library)
    c = (compilers.c, *_C_FLAGS, *(_LIBRARY_C_FLAGS if is_library else ()))
    device = (*host, *_code_for(architectures))
    commands = {".c": c, ".cc": host, ".cpp": host, ".cu": device}
    runs = []
    for source in sources:
        output = scratch / f"{program.name}.{source.name}.o"
        includes = [f"-I{folder}" for folder in folders]
        command = (*commands[source.suffix], *includes, "-c", str(source), "-o", str(output))
        runs.append(CompilerRun(source.name, command, output, source.stat().st_size))
    result = scratch / program.name
    link = [*nvcc, "-cudart=static", "-Xlinker=-s"]
    link += _library_flags(program) if is_library else ()
    link += [*(str(run.output) for run in runs), "-lpthread", "-ldl", "-o", str(result)]
    return Recipe(tuple(runs), CompilerRun(program.name, tuple(link), result))


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


Say = Callable[[str], None]
"""Told what is being done, a line each."""

_TELL_EVERY_S = 30.0
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Built:
    """A build that is there now."""

    name: str
    build: Build
    compiled: bool
    """Whether this call compiled it."""


def gpu_programs() -> tuple[GpuProgram, ...]:
    """All that the package has GPU code for."""
    return executor_program(), p2p_program()


def builds_there(programs: Sequence[GpuProgram], architectures: Sequence[str]) -> list[Built]:
    """The builds that are there for all these architectures; of no program more than one."""
    found = ((program.name, find_build(program)) for program in programs)
    return [
        Built(name, build, compiled=False)
        for name, build in found
        if build is not None and build.serves(architectures)
    ]


def build(
    programs: Sequence[GpuProgram], architectures: Sequence[str], say: Say, *, force: bool = False
) -> list[Built]:
    """Compile what there is no build of for these architectures.

    Args:
        programs: That are wanted.
        architectures: As `90`; those of a build that is there are kept.
        say: Told what is being done.
        force: Whether builds that are there are made again.

    Raises:
        HostError: Nothing here compiles them, or a compiler failed; the builds that were there are
            as they were.
        WorkspaceError: There is no place for the builds.
    """
    places = {program.name: _place_for(program) for program in programs}
    with ExitStack() as locks:
        for place in sorted(set(places.values())):
            locks.enter_context(_only_one_builds(place, say))
        # Another process may have compiled some of them while this one waited.
        found = [] if force else builds_there(programs, architectures)
        names = {built.name for built in found}
        missing = [program for program in programs if program.name not in names]
        if not missing:
            return found
        compilers = find_compilers()
        compilers.require(architectures)
        wanted = [_with_earlier(program, architectures) for program in missing]
        for program, all_of_them in zip(missing, wanted, strict=True):
            kept = f", which the build in {places[program.name]} has code for"
            compilers.require(all_of_them, kept)
        with tempfile.TemporaryDirectory(prefix="tuccl-build-executor-") as scratch:
            recipes = [
                recipe(program, all_of_them, compilers, Path(scratch))
                for program, all_of_them in zip(missing, wanted, strict=True)
            ]
            for program, all_of_them in zip(missing, wanted, strict=True):
                say(f"compiling {program.name} for compute capability {_spoken(all_of_them)}")
            _compile(recipes, compilers, say)
            for program, all_of_them, made in zip(missing, wanted, recipes, strict=True):
                folder = places[program.name] / build_name(program, all_of_them)
                path = _put(made.link.output, folder)
                found.append(Built(program.name, Build(path, all_of_them), compiled=True))
            return found


def _with_earlier(program: GpuProgram, architectures: Sequence[str]) -> tuple[str, ...]:
    """These, and those of the build that is there: its place is taken by the new one."""
    earlier = find_build(program)
    names = earlier.architectures if earlier is not None else ()
    kept = [name.removesuffix("-real") for name in names]
    return in_order([*architectures, *(name for name in kept if name.rstrip("af").isdigit())])


def _compile(recipes: Sequence[Recipe], compilers: Compilers, say: Say) -> None:
    # Kernels take longest, and in the order of their sizes.
    runs = sorted(
        (run for each in recipes for run in each.compile),
        key=lambda run: (not run.what.endswith(".cu"), -run.size_bytes),
    )
    cores = len(os.sched_getaffinity(0))
    release = ".".join(map(str, compilers.cuda))
    say(
        f"with {compilers.nvcc} (CUDA {release}): {len(runs)} files, {min(cores, len(runs))} at a "
        "time; the kernels take some two minutes per architecture"
    )
    started = time.monotonic()
    run_compilers(runs, cores, _teller(len(runs), started, say))
    run_compilers([each.link for each in recipes], cores, lambda *_: None)
    say(f"compiled in {time.monotonic() - started:.0f} s")


def _spoken(architectures: Sequence[str]) -> str:
    """As NVIDIA's tables have them: `9.0`."""
    return ", ".join(re.sub(r"(\d)([af]?)$", r".\1\2", name) for name in architectures)


def _teller(total: int, started: float, say: Say) -> Progress:
    told = started

    def tell(done: int, running: Sequence[str]) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= _TELL_EVERY_S and running:
            told = now
            names = ", ".join(running[:4]) + (", ..." if len(running) > 4 else "")
            say(f"{now - started:.0f} s: {done} of {total} files are compiled; now {names}")

    return tell


def _place_for(program: GpuProgram) -> Path:
    """The folder for builds: the package's, or the user's where that cannot be written.

    Raises:
        WorkspaceError: Neither can.
    """
    shared = builds_in_package(program)
    with suppress(OSError):
        shared.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=shared):
            return shared
    user = builds_of_user()
    if user is None:
        raise WorkspaceError(
            f"cannot write {program.package}, and there is no home directory: set XDG_CACHE_HOME"
        )
    return user


@contextmanager
def _only_one_builds(place: Path, say: Say) -> Iterator[None]:
    """No other process builds there during the block."""
    path = place / _LOCK
    try:
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds into {place}: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # A file system without locks: the rename alone keeps builds whole.
            pass
        else:
            for left in place.glob(f"{PARTIAL_PREFIX}*"):  # Of a process that was killed.
                shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _put(file: Path, folder: Path) -> Path:
    """Put a compiled file into its folder, whole or not at all."""
    target = folder / file.name
    partial = None
    try:
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL_PREFIX, dir=folder.parent))
        shutil.copyfile(file, partial / file.name)
        (partial / file.name).chmod(0o755)
        partial.chmod(0o755)
        try:
            partial.rename(folder)
        except OSError:  # The folder is there, with an earlier build or that of another program.
            folder.mkdir(exist_ok=True)
            (partial / file.name).replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return target
