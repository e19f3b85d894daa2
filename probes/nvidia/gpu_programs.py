"""Programs and libraries with GPU code: which sources make them, and where builds of them lie.

`pip install` compiles them for the GPUs that it finds, `tuccl build-executor` when it is asked to.
A build lies in a folder that is named by what it was made of and for, as `829f54aec811e8e2+80+90`:
an installation takes no build of other sources than its own, whoever made it.
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
"""Folder of a package that holds builds."""

_HASH_DIGITS = 16
_BESIDE = ("*.h", "*.cuh", "*.map", "sources.cmake")
"""Patterns that count as source in the folders of the files that are compiled."""


@dataclass(frozen=True, slots=True)
class GpuProgram:
    """Something that is compiled with nvcc."""

    name: str
    """File name of the result."""
    package: Path
    """Folder of the package that it belongs to."""
    import_name: str
    """Import name of that package, as a path: `tuccl/runtime`."""
    folder: Path
    """Folder of its sources, with the `sources.cmake` that lists them."""


@dataclass(frozen=True, slots=True)
class Build:
    """A compiled program."""

    path: Path
    architectures: tuple[str, ...]
    """Those that it has machine code for, as `90`."""

    def serves(self, architectures: Sequence[str]) -> bool:
        """Whether it has machine code for all of these."""
        return {f"{one}-real" for one in architectures} <= {
            f"{one.removesuffix('-real')}-real" for one in self.architectures
        }


def sources_of(program: GpuProgram) -> tuple[Path, ...]:
    """The files that are compiled, as `sources.cmake` lists them."""
    text = (program.folder / "sources.cmake").read_text(encoding="utf-8")
    names = re.findall(r"\$\{\w+_folder\}/(\S+\.(?:cc?|cpp|cu))\b", text)
    return tuple(Path(os.path.normpath(program.folder / name)) for name in names)


def source_hash(program: GpuProgram) -> str:
    """Hash of everything that is compiled; cmake/gpu_code.cmake computes the same."""
    sources = sources_of(program)
    files = {*sources}
    for place in {source.parent for source in sources}:
        files |= {file for pattern in _BESIDE for file in place.glob(pattern)}
    named = {file.relative_to(program.folder.parent).as_posix(): file for file in files}
    lines = [
        f"{hashlib.sha256(named[name].read_bytes()).hexdigest()}  {name}\n"
        for name in sorted(named)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:_HASH_DIGITS]


def build_name(program: GpuProgram, architectures: Sequence[str]) -> str:
    """Name of the folder of a build for these architectures."""
    return "+".join((source_hash(program), *architectures))


def builds_in_package(program: GpuProgram) -> Path:
    """Where builds lie that all users of the installation share."""
    return program.package / BUILDS


def builds_of_user() -> Path | None:
    """Where a user's builds lie, None without a home directory."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():  # The XDG specification: others are to be ignored.
        return Path(named) / "tuccl"
    try:
        return Path.home() / ".cache" / "tuccl"
    except RuntimeError:
        return None


def find_build(program: GpuProgram) -> Build | None:
    """The build of this installation's sources for most architectures, the newest of several."""
    try:
        prefix = f"{source_hash(program)}+"
    except FileNotFoundError:  # A package without sources takes no builds.
        return None
    # An editable install leaves the sources where they are and compiles into site-packages.
    packages = [program.package, *(Path(entry) / program.import_name for entry in sys.path)]
    user = builds_of_user()
    places = [*(package / BUILDS for package in packages), *([user] if user else [])]
    found = [
        Build(file, tuple(file.parent.name.removeprefix(prefix).split("+")))
        for place in places
        for file in sorted(place.glob(f"{prefix}*/{program.name}"))
        if file.is_file()
    ]
    return max(
        found,
        key=lambda build: (len(build.architectures), build.path.stat().st_mtime_ns),
        default=None,
    )
