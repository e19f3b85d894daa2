"""Search for the NCCL that a job will use.

Results hold for one NCCL only, so the job's NCCL must be measured: the named one, the one that the
torch of this Python would load, or the only one found. torch is located but not imported: an import
takes seconds and memory on every GPU.

In a CUDA build `torch/lib/libtorch_cuda.so` needs `libnccl.so.2`, which the loader takes from
LD_PRELOAD, the RPATH of torch's libraries (`nvidia/nccl/lib` in wheels), LD_LIBRARY_PATH, their
RUNPATH, or its cache, in this order. `ldd` reports the result. If the loader finds none, torch
preloads the wheel's NCCL; if NCCL is built into torch, there is no library.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from tuccl.errors import NcclLibraryError, OldNcclError, SeveralNcclsError

LIBRARY_NAME = "libnccl.so.2"
_FOUND = re.compile(r"^\s*(?:libnccl\.so\.2 => )?(/.*/libnccl\.so\S*) \(0x", re.MULTILINE)
_NEEDED = re.compile(r"^\s*libnccl\.so\.2 => ", re.MULTILINE)
_ASKING_S = 20.0

LIBRARY_VARIABLE = "TUCCL_NCCL_LIBRARY"
"""Path of the NCCL to measure, set by the user or by a leader for its workers."""
OLDEST_VERSION = 22105
"""2.21.5, the first release with a tuner ABI that the plugin speaks."""


@dataclass(frozen=True, slots=True)
class NcclLibrary:
    """An NCCL on this host."""

    path: Path
    version: int
    """Version code: 22809 is 2.28.9."""
    source: str
    """Where it was found, for display."""
    others: tuple[NcclLibrary, ...] = ()
    """Unused libraries of other versions that were found as well."""

    @property
    def version_text(self) -> str:
        """`2.28.9`."""
        return version_text(self.version)

    @property
    def note(self) -> str:
        """Reason for this choice among several NCCLs, and how to change it; empty for one."""
        if not self.others:
            return ""
        unused = " and ".join(f"{nccl.version_text} in {nccl.path}" for nccl in self.others)
        return (
            f"NCCL {self.version_text} in {self.path} is used, as this Python's torch loads it, "
            f"not {unused}; to choose another: {LIBRARY_VARIABLE}=PATH"
        )


def version_text(version: int) -> str:
    """Return `2.28.9` for 22809."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def find_nccl(named: str | None = None, environment: Mapping[str, str] = os.environ) -> NcclLibrary:
    """Return the NCCL that the job will use.

    Args:
        named: Path given by the user; replaces the search.
        environment: TUCCL_NCCL_LIBRARY names it as well; LD_PRELOAD and LD_LIBRARY_PATH are
            searched.

    Raises:
        NcclLibraryError: No NCCL, or one that is too old.
        SeveralNcclsError: NCCLs of different versions, and no torch that loads one of them.
    """
    named = named or environment.get(LIBRARY_VARIABLE)
    if named:
        return _usable(NcclLibrary(Path(named), read_version(Path(named)), "named"))
    if (path := nccl_of_torch(environment)) is not None:
        taken = _usable(NcclLibrary(path, read_version(path), _source(path, environment)))
        others: dict[int, NcclLibrary] = {}
        for library in _libraries(environment, lenient=True):
            if library.version != taken.version:
                others.setdefault(library.version, library)
        return replace(taken, others=tuple(others.values()))
    found: dict[int, NcclLibrary] = {}
    for library in _libraries(environment):
        found.setdefault(library.version, library)
    if not found:
        raise NcclLibraryError(
            f"no {LIBRARY_NAME} in torch, the nvidia-nccl wheel, LD_LIBRARY_PATH or the loader's "
            f"cache; name the job's in {LIBRARY_VARIABLE}"
        )
    if len(found) > 1:
        listed = " and ".join(f"{n.version_text} in {n.path} ({n.source})" for n in found.values())
        raise SeveralNcclsError(
            f"different NCCLs here: {listed}; name the one that the job loads in {LIBRARY_VARIABLE}"
        )
    return _usable(next(iter(found.values())))


def version_here(environment: Mapping[str, str] = os.environ) -> str:
    """Return the version of the NCCL that the job will use; empty where `find_nccl` fails.

    For use before measuring, which reports the failure.
    """
    try:
        return find_nccl(None, environment).version_text
    except NcclLibraryError:
        return ""


def read_version(path: Path) -> int:
    """Return the version that an NCCL library reports.

    Raises:
        NcclLibraryError: The file is no NCCL.
    """
    version = ctypes.c_int()
    try:
        result = ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(version))
    except (OSError, AttributeError) as error:
        raise NcclLibraryError(f"{path} is not an NCCL that can be loaded ({error})") from error
    if result != 0:
        raise NcclLibraryError(f"{path} does not report its version (ncclGetVersion gave {result})")
    return version.value


def _usable(library: NcclLibrary) -> NcclLibrary:
    if library.version < OLDEST_VERSION:
        raise OldNcclError(
            f"{library.path} is NCCL {library.version_text}, whose tuner ABI the plugin does not "
            f"speak; install {version_text(OLDEST_VERSION)} or newer"
        )
    return library


def _libraries(environment: Mapping[str, str], *, lenient: bool = False) -> Iterator[NcclLibrary]:
    """Yield every NCCL of this host, each file once, in the loader's order.

    Args:
        environment: As for `find_nccl`.
        lenient: Skip files that are no NCCL.
    """
    seen: set[Path] = set()
    for path, source in _places(environment):
        if path.is_file() and path.resolve() not in seen:
            seen.add(path.resolve())
            try:
                yield NcclLibrary(path, read_version(path), source)
            except NcclLibraryError:
                if not lenient:
                    raise


def _source(path: Path, environment: Mapping[str, str]) -> str:
    """Return where torch's library was found, for display."""
    same = (
        source for place, source in _places(environment) if place.is_file() and place.samefile(path)
    )
    return next(same, "torch's search path")


def _places(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for path in preloaded_nccls(environment):
        yield path, "LD_PRELOAD"
    for folder in package_folders("torch"):
        yield folder / "lib" / LIBRARY_NAME, "in torch"
    for folder in package_folders("nvidia.nccl"):
        yield folder / "lib" / LIBRARY_NAME, "the nvidia-nccl wheel"
    for name in environment.get("LD_LIBRARY_PATH", "").split(":"):
        if name:
            yield Path(name) / LIBRARY_NAME, "LD_LIBRARY_PATH"
    for path in _loader_cache():
        yield path, "the loader's cache"


def _loader_cache() -> list[Path]:
    """Return the paths in lines `libnccl.so.2 (libc6,x86-64) => PATH` of `ldconfig -p` (glibc)."""
    for command in ("ldconfig", "/sbin/ldconfig"):
        try:
            listed = subprocess.run(  # noqa: S603  # fixed words
                [command, "-p"], capture_output=True, text=True, check=True, timeout=10
            )
        except (OSError, subprocess.SubprocessError):
            continue
        lines = (line.split(" => ") for line in listed.stdout.splitlines())
        return [
            Path(fields[1].strip())
            for fields in lines
            if len(fields) == 2 and fields[0].split()[0] == LIBRARY_NAME
        ]
    return []


def nccl_of_torch(environment: Mapping[str, str]) -> Path | None:
    """Return the NCCL that `import torch` would load; None without torch, or where it loads none.

    Args:
        environment: Environment of the importing process: LD_PRELOAD and LD_LIBRARY_PATH count.
    """
    for folder in package_folders("torch"):
        libraries = folder / "lib"
        cuda = libraries / "libtorch_cuda.so"
        if cuda.is_file():
            listed = _dependencies(cuda, environment)
            if listed and not _FOUND.search(listed) and not _NEEDED.search(listed):
                return None  # NCCL is built in.
            if found := _FOUND.search(listed):
                path = Path(found[1])  # With `..`, as the RPATH has it.
                return path.parent.resolve() / path.name
        elif (libraries / "libtorch_cpu.so").is_file():
            return None  # A build without CUDA.
        beside = [wheel / "lib" / LIBRARY_NAME for wheel in package_folders("nvidia.nccl")]
        usual = (*preloaded_nccls(environment), libraries / LIBRARY_NAME, *beside)
        return next((path for path in usual if path.is_file()), None)
    return None


def preloaded_nccls(environment: Mapping[str, str]) -> list[Path]:
    """Return the NCCLs in LD_PRELOAD, which the loader takes first."""
    names = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    return [Path(name) for name in names if Path(name).name.startswith("libnccl.so")]


def package_folders(name: str) -> list[Path]:
    """Return the folders of an installed package without importing it."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def _dependencies(library: Path, environment: Mapping[str, str]) -> str:
    """Return the output of `ldd` for a library; empty where `ldd` fails."""
    loader = {name: value for name, value in environment.items() if name.startswith("LD_")}
    others = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    try:
        asked = subprocess.run(  # noqa: S603  # fixed words
            ["ldd", str(library)],  # noqa: S607 - where the C library's tools are
            env={**others, **loader, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout if asked.returncode == 0 else ""
