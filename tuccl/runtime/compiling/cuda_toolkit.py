"""The compilers of GPU code that are here, and the GPUs that they compile for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuccl.errors import HostError, UsageError

LEAST_CUDA = (12, 0)
"""The executor calls cudaStreamGetId."""

_ARCHITECTURE = re.compile(r"(?:[1-9]\d{1,2}|([1-9]\d?)\.(\d))([af]?)")
"""As nvcc's `90`, or as nvidia-smi's `9.0`."""
_USUAL_NVCC = "/usr/local/cuda/bin/nvcc"
_ANSWER_S = 60.0
"""How long a tool may take to tell about itself; nvidia-smi wakes a sleeping driver."""


@dataclass(frozen=True, slots=True)
class Compilers:
    """The compilers of C, C++ and CUDA here."""

    c: str
    cxx: str
    """nvcc's host compiler too."""
    nvcc: str
    cuda: tuple[int, int]
    """Release of nvcc."""
    known: frozenset[str]
    """Architectures that nvcc compiles for, as `90`; empty where it does not tell."""

    def require(self, architectures: Iterable[str], reason: str = "") -> None:
        """See to it that nvcc compiles for all of these.

        Raises:
            HostError: It does not know one.
        """
        for architecture in architectures:
            if self.known and architecture.rstrip("af") not in self.known:
                release = _release(self.cuda)
                raise HostError(
                    f"{self.nvcc} (CUDA {release}) does not compile for architecture "
                    f"{architecture}{reason}; it knows {', '.join(in_order(self.known))}: name "
                    "another nvcc in CUDACXX"
                )


def find_compilers() -> Compilers:
    """The compilers: those that CC, CXX and CUDACXX name, else those that are found.

    Raises:
        HostError: One is missing, or the CUDA toolkit is too old.
    """
    nvcc = _first_program(_nvcc_candidates())
    if nvcc is None:
        named = os.environ.get("CUDACXX")
        where = f"CUDACXX={named}" if named else "the PATH, CUDA_HOME or /usr/local/cuda"
        raise HostError(
            f"no nvcc in {where}: install the CUDA toolkit ({_release(LEAST_CUDA)} or later), or "
            "name its nvcc in CUDACXX"
        )
    cxx = _first_program(_named("NVCC_CCBIN", "CUDAHOSTCXX", "CXX") or ("g++", "c++", "clang++"))
    c = _first_program(_named("CC") or ("gcc", "cc", "clang"))
    if cxx is None or c is None:
        raise HostError(
            "no C and C++ compiler: install g++, or name them in CC and CXX (C11 and C++17)"
        )
    said = re.search(r"release (\d{1,9})\.(\d{1,9})", _answer(nvcc, "--version"))
    if said is None:
        raise HostError(f"{nvcc} --version names no CUDA release: name a working nvcc in CUDACXX")
    cuda = (int(said[1]), int(said[2]))
    if cuda < LEAST_CUDA:
        raise HostError(
            f"{nvcc} is of CUDA {_release(cuda)}: the executor needs {_release(LEAST_CUDA)} or "
            "later; install it, or name its nvcc in CUDACXX"
        )
    known = re.findall(r"compute_(\d+)", _answer(nvcc, "--list-gpu-arch"))
    return Compilers(c, cxx, nvcc, cuda, frozenset(known))


def architectures_here() -> tuple[str, ...]:
    """Those of this machine's GPUs, as nvidia-smi tells; none where it tells of none."""
    said = _answer("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    return in_order({major + minor for major, minor in re.findall(r"(\d+)\.(\d)", said)})


def read_architectures(text: str) -> tuple[str, ...]:
    """Architectures that a user lists, in order.

    Raises:
        UsageError: One is no architecture.
    """
    found = set()
    for word in filter(None, re.split(r"[,; ]+", text)):
        match = _ARCHITECTURE.fullmatch(word)
        if match is None:
            raise UsageError(f"--arch {word!a:.40}: name compute capabilities, as in --arch 80,90")
        found.add(f"{match[1]}{match[2]}{match[3]}" if match[1] else word)
    if not found:
        raise UsageError("--arch names no architecture: name some, as in --arch 80,90")
    return in_order(found)


def in_order(architectures: Iterable[str]) -> tuple[str, ...]:
    """Each once, the oldest GPU first."""
    return tuple(sorted(set(architectures), key=lambda name: (int(name.rstrip("af")), name)))


def _nvcc_candidates() -> Iterator[str]:
    """In the order of cmake/cuda_compiler.cmake."""
    if named := os.environ.get("CUDACXX"):
        yield named
        return
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield f"{os.environ[name]}/bin/nvcc"
    yield "nvcc"
    yield _USUAL_NVCC


def _named(*variables: str) -> tuple[str, ...]:
    return tuple(filter(None, (os.environ.get(name) for name in variables)))[:1]


def _first_program(candidates: Iterable[str]) -> str | None:
    return next(filter(None, map(shutil.which, candidates)), None)


def _release(cuda: Sequence[int]) -> str:
    return ".".join(map(str, cuda))


def _answer(*command: str) -> str:
    """Standard output of a tool; nothing where it is missing, fails or hangs."""
    try:
        done = subprocess.run(  # noqa: S603 - tools of the user's PATH, without a shell
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
