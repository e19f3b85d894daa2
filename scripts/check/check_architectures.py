"""Compile the CUDA code to machine code for given architectures, with warnings as errors.

    check_architectures.py [--fast] [70 80 90 100]

Prints a line for each architecture; nothing is linked and nothing runs. With `--fast` nvcc leaves
out optimizations and takes a third of the time. nvcc compiles for what it knows. CUDA 13's no
longer knows Volta (sm_70), which clang does: the host's half as well as the GPU's, with headers,
libdevice and ptxas of a CUDA 12 that pip fetches into build/cuda-12. TUCCL_CLANG names another
clang++ (of version 16 or later), TUCCL_CUDA_12 a CUDA 12 that is there.

Exit codes: 1: something does not compile; 2: wrong arguments or environment; 77: all that could be
compiled is right, but there is no compiler for one of them, which standard error names.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tuccl/runtime", "probes/p2p/benchmark")
INCLUDES = ("tuccl/runtime", "tuccl/runtime/executor", "probes/p2p/benchmark")
DEFAULT = (70, 80, 90, 100)
FAILED, USAGE, NO_COMPILER = 1, 2, 77
LEAST_CLANG = 16
CLANGS = ("clang++", *(f"clang++-{version}" for version in range(24, LEAST_CLANG - 1, -1)))
WHEELS = (
    "nvidia-cuda-nvcc-cu12==12.5.82",
    "nvidia-cuda-runtime-cu12==12.5.82",
    "nvidia-cuda-cccl-cu12==12.5.39.post1",
)


class CompileError(Exception):
    """A source does not compile; the message is the compiler's."""


class NoCompilerError(Exception):
    """No installed compiler supports an architecture."""


class UsageError(Exception):
    """An argument or a variable of the environment cannot be used."""


@dataclass(frozen=True)
class Compiler:
    """Commands that compile a source to machine code of one architecture."""

    name: str
    command: tuple[str, ...]
    """Command without source and output."""
    host_half: tuple[str, ...] = ()
    """Command that checks the host code, where `command` does not."""


@cache
def fast_options() -> tuple[str, ...]:
    """Options with which nvcc compiles device code fastest; before CUDA 12.9 it knows only -O1."""
    done = subprocess.run(["nvcc", "--help"], capture_output=True, text=True, check=True)
    return ("-Ofc=max",) if "--Ofast-compile" in done.stdout else ("-Xcicc=-O1", "-Xptxas=-O1")


@cache
def nvcc_knows() -> frozenset[str]:
    """Architectures that nvcc supports, as `compute_90`; empty without nvcc."""
    try:
        done = subprocess.run(
            ["nvcc", "--list-gpu-arch"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return frozenset()
    return frozenset(done.stdout.split())


def nvcc_for(architecture: int, *, fast: bool = False) -> Compiler:
    """The nvcc compiler, for host and GPU code: a cubin alone would leave out the host code."""
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    optimizing = fast_options() if fast else ("-O3",)
    command = ("nvcc", "-std=c++17", *optimizing, f"-arch=sm_{architecture}")
    strict = ("-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror")
    return Compiler(f"nvcc {_release(said)}", (*command, *strict, "-c"))


def clang_for(architecture: int) -> Compiler:
    """The clang compiler with CUDA 12's files."""
    clang, version = find_clang()
    cuda = find_cuda_12()
    said = subprocess.run(
        [cuda / "bin" / "ptxas", "--version"], capture_output=True, text=True, check=True
    ).stdout
    target = ("-x", "cuda", f"--cuda-path={cuda}", f"--cuda-gpu-arch=sm_{architecture}")
    strict = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-cuda-version")
    # clang before 20 does not know __grid_constant__, which only saves a copy.
    command = (clang, *target, "-std=c++17", "-O3", *strict, "-Wno-unknown-attributes")
    return Compiler(
        f"clang {version}, ptxas of CUDA {_release(said)}",
        (*command, "--cuda-device-only", "-c"),
        (*command, "--cuda-host-only", "-fsyntax-only"),
    )


def find_clang() -> tuple[str, str]:
    """The first clang++ that is new enough, and its version."""
    named = os.environ.get("TUCCL_CLANG")
    for candidate in (named,) if named else CLANGS:
        try:
            done = subprocess.run(
                [candidate, "-dumpversion"], capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        version = done.stdout.strip()
        if re.match(r"\d+\.", version) and int(version.split(".")[0]) >= LEAST_CLANG:
            return candidate, version
    if named:
        raise UsageError(f"TUCCL_CLANG={named} is no clang++ of version {LEAST_CLANG} or later")
    raise NoCompilerError(
        f"no clang++ of version {LEAST_CLANG} or later; install clang-19, or set TUCCL_CLANG"
    )


def find_cuda_12() -> Path:
    """A folder with CUDA 12's headers, libdevice and ptxas: named, existing or downloaded."""
    named = os.environ.get("TUCCL_CUDA_12")
    folder = Path(named) if named else ROOT / "build" / "cuda-12"
    if (folder / "bin" / "ptxas").is_file():
        return folder
    if named:
        raise UsageError(f"TUCCL_CUDA_12={named} has no bin/ptxas")
    if folder.exists():
        raise UsageError(f"{folder} is no whole CUDA 12; remove it, and it is fetched again")
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cuda-12.", dir=folder.parent) as scratch:
        whole = fetch_cuda_12(Path(scratch))
        try:
            whole.rename(folder)
        except OSError:  # Another run was faster.
            if not (folder / "bin" / "ptxas").is_file():
                raise
    return folder


def fetch_cuda_12(scratch: Path) -> Path:
    """Download three of NVIDIA's wheels and arrange them as clang expects CUDA."""
    wheels, whole = scratch / "wheels", scratch / "cuda-12"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--root-user-action", "ignore", "--target", str(wheels)]
    done = subprocess.run([*pip, *options, *WHEELS], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoCompilerError(
            "pip could not fetch CUDA 12's headers and ptxas; set TUCCL_CUDA_12 to a CUDA 12: "
            + done.stderr.strip()[-500:]
        )
    for part in ("cuda_runtime", "cuda_nvcc", "cuda_cccl"):
        shutil.copytree(wheels / "nvidia" / part / "include", whole / "include", dirs_exist_ok=True)
    nvcc = wheels / "nvidia" / "cuda_nvcc"
    shutil.copytree(nvcc / "nvvm" / "libdevice", whole / "nvvm" / "libdevice")
    (whole / "bin").mkdir()
    ptxas = shutil.copy(nvcc / "bin" / "ptxas", whole / "bin")
    Path(ptxas).chmod(0o755)
    # clang includes this one of cuRAND's beside CUDA's own; nothing here uses it.
    (whole / "include" / "curand_mtgp32_kernel.h").touch()
    return whole


def compiler_for(architecture: int, *, fast: bool = False) -> Compiler:
    """The installed compiler for an architecture.

    Raises:
        NoCompilerError: There is none.
        UsageError: The environment names a tool that cannot be used.
    """
    if f"compute_{architecture}" in nvcc_knows():
        return nvcc_for(architecture, fast=fast)
    if architecture >= 75:
        raise NoCompilerError("nvcc is not there, or does not know it")
    return clang_for(architecture)


def compile_one(compiler: Compiler, source: Path, folder: Path) -> int:
    """Compile a source; return the bytes of its machine code.

    Raises:
        CompileError: The source does not compile.
    """
    output = folder / "-".join(source.relative_to(ROOT).with_suffix(".o").parts)
    includes = [f"-I{ROOT / place}" for place in INCLUDES]
    commands = [[*compiler.command, *includes, str(source), "-o", str(output)]]
    if compiler.host_half:
        commands.append([*compiler.host_half, *includes, str(source)])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{source}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return output.stat().st_size


def check(architecture: int, sources: Sequence[Path], *, fast: bool = False) -> None:
    """Compile all sources for an architecture, as many at a time as there are cores."""
    compiler = compiler_for(architecture, fast=fast)
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        sizes = list(pool.map(lambda source: compile_one(compiler, source, Path(folder)), sources))
    what = f"{len(sizes)} files, {sum(sizes)} bytes ({compiler.name})"
    print(f"sm_{architecture}: {what}", flush=True)


def main() -> int:
    """Compile for all architectures; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("architectures", nargs="*", type=int, default=DEFAULT, metavar="90")
    parser.add_argument("--fast", action="store_true", help="leave out nvcc's optimizations")
    sources = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.cu"))
    worst = 0
    options = parser.parse_args()
    for architecture in options.architectures:
        where = f"check_architectures.py: sm_{architecture}"
        try:
            check(architecture, sources, fast=options.fast)
        except CompileError as error:
            print(f"{where} does not compile: {error}", file=sys.stderr)
            worst = FAILED
        except NoCompilerError as error:
            print(f"{where}: {error}", file=sys.stderr)
            worst = worst or NO_COMPILER
        except UsageError as error:
            print(f"{where}: {error}", file=sys.stderr)
            return USAGE
    return worst


def _release(said: str) -> str:
    found = re.search(r"release ([0-9.]+),", said)
    return found[1] if found else "of unknown version"


if __name__ == "__main__":
    sys.exit(main())
