"""Programs and libraries with GPU code: their sources, and the folders of their builds.

`pip install` compiles them for the GPUs that it finds, `tuccl build-executor` on request. The
folder of a build is named by the hash of its sources and its architectures, as
`829f54aec811e8e2+80+90`, so an installation only uses builds of its own sources.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUILDS = "built"
"""Folder of a package with its builds."""

_HASH_DIGITS = 16
_HASHED_FILES = ("*.h", "*.cuh", "*.map", "sources.cmake")
"""Patterns of further files that the hash covers, in the folders of the compiled files."""


@dataclass(frozen=True, slots=True)
class GpuProgram:
    """A program or library that is compiled with nvcc."""

    name: str
    """File name of the result."""
    package: Path
    """Folder of its package."""
    import_name: str
    """Import name of that package, as a path: `tuccl/runtime`."""
    folder: Path
    """Folder of its sources, with the `sources.cmake` that lists them."""


@dataclass(frozen=True, slots=True)
class Build:
    """A compiled program."""

    path: Path
    architectures: tuple[str, ...]
    """Architectures that it has machine code for, as `90`."""

    def serves(self, architectures: Sequence[str]) -> bool:
        """Whether it has machine code for all of these."""
        return {f"{name}-real" for name in architectures} <= {
            f"{name.removesuffix('-real')}-real" for name in self.architectures
        }


def sources_of(program: GpuProgram) -> tuple[Path, ...]:
    """Return the files that are compiled, as `sources.cmake` lists them."""
    text = (program.folder / "sources.cmake").read_text(encoding="utf-8")
    names = re.findall(r"\$\{\w+_folder\}/(\S+\.(?:cc?|cpp|cu))\b", text)
    return tuple(Path(os.path.normpath(program.folder / name)) for name in names)


def source_hash(program: GpuProgram) -> str:
    """Hash all sources; cmake/gpu_code.cmake computes the same hash."""
    sources = sources_of(program)
    files = {*sources}
    for folder in {source.parent for source in sources}:
        files |= {file for pattern in _HASHED_FILES for file in folder.glob(pattern)}
    by_name = {file.relative_to(program.folder.parent).as_posix(): file for file in files}
    lines = [
        f"{hashlib.sha256(by_name[name].read_bytes()).hexdigest()}  {name}\n"
        for name in sorted(by_name)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:_HASH_DIGITS]


def build_name(program: GpuProgram, architectures: Sequence[str]) -> str:
    """Return the folder name of a build for these architectures."""
    return "+".join((source_hash(program), *architectures))


def builds_in_package(program: GpuProgram) -> Path:
    """Folder of the builds that all users of the installation share."""
    return program.package / BUILDS


def builds_of_user() -> Path | None:
    """Folder of the user's builds; None without a home directory."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if Path(cache).is_absolute():  # The XDG specification: ignore relative paths.
        return Path(cache) / "tuccl"
    try:
        return Path.home() / ".cache" / "tuccl"
    except RuntimeError:
        return None


def find_build(program: GpuProgram) -> Build | None:
    """Find the build of these sources with the most architectures, the newest of several."""
    try:
        prefix = f"{source_hash(program)}+"
    except FileNotFoundError:  # The package has no sources, so no build matches.
        return None
    # An editable install leaves the sources where they are and compiles into site-packages.
    packages = [program.package, *(Path(entry) / program.import_name for entry in sys.path)]
    user = builds_of_user()
    folders = [*(package / BUILDS for package in packages), *([user] if user else [])]
    found = [
        Build(file, tuple(file.parent.name.removeprefix(prefix).split("+")))
        for folder in folders
        for file in sorted(folder.glob(f"{prefix}*/{program.name}"))
        if file.is_file()
    ]
    return max(
        found,
        key=lambda build: (len(build.architectures), build.path.stat().st_mtime_ns),
        default=None,
    )
