"""Check whether a virtual environment holds this checkout unchanged; run with its own Python.

    environment_stamp.py write STAMP WHAT    after an installation of WHAT, as `.[test]`
    environment_stamp.py fresh STAMP WHAT    exit code 0: the same would be installed again
    environment_stamp.py whole               exit code 0: all files that pip installed are there

The stamp names WHAT, a hash of all files that are installed or that build them, and the
distributions that were installed with them. An editable installation (`-e .[test]`) uses the Python
modules of the checkout, so changes of these do not count. Run from the root of the checkout.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

BUILD_FILES = ("pyproject.toml", "CMakeLists.txt", "cmake", "README.md", "LICENSE", "NOTICE")
LEFT_OUT = ("__pycache__", "built")
"""Folders of files compiled from the sources."""
EDITABLE = "-e "
STALE = 1


def main() -> int:
    """Run a command; return its exit code."""
    command, *words = sys.argv[1:]
    if command == "whole":
        return 0 if is_whole() else STALE
    stamp, what = Path(words[0]), words[1]
    if command == "fresh":
        return 0 if is_fresh(stamp, what) else STALE
    partial = stamp.with_name(f"{stamp.name}.partial")
    partial.write_text("".join(f"{line}\n" for line in (*key(what), *installed())))
    partial.replace(stamp)
    return 0


def is_fresh(stamp: Path, what: str) -> bool:
    """Whether the stamp matches a new installation and its packages still exist."""
    try:
        lines = stamp.read_text().splitlines()
    except FileNotFoundError:
        return False
    expected = key(what)
    return (
        lines[: len(expected)] == expected
        and set(lines[len(expected) :]) <= set(installed())
        and is_whole()
    )


def key(what: str) -> list[str]:
    """The first lines of a stamp: the package, and the hash of its sources."""
    total = hashlib.sha256()
    for path in source_files(Path()):
        if what.startswith(EDITABLE) and path.suffix == ".py":
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{digest}  {path}\n".encode())
    return [f"installed {what}", f"sources {total.hexdigest()}"]


def source_files(root: Path) -> Iterator[Path]:
    """The files of the packages and of their build, in a fixed order."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["scikit-build"]["wheel"]["packages"]
    for name in sorted({*BUILD_FILES, *packages}):
        path = root / name
        if path.is_file():
            yield path
        for folder, subfolders, files in os.walk(path):
            subfolders[:] = sorted(set(subfolders) - set(LEFT_OUT))
            yield from (Path(folder, file) for file in sorted(files))


def installed() -> list[str]:
    """Every distribution of the environment with its version."""
    return sorted(
        f"{found.name} {found.version}" for found in distributions(path=packages_of_here())
    )


def is_whole() -> bool:
    """Whether every file that pip recorded, pip's own included, exists with its recorded size."""
    found = list(distributions(path=packages_of_here()))
    if not any(distribution.name == "pip" for distribution in found):
        return False
    for distribution in found:
        if (
            distribution.files is None
        ):  # Its installation was cut off before the record was written.
            return False
        for file in distribution.files:
            if file.suffix == ".pyc":
                continue
            try:
                size = Path(file.locate()).stat().st_size
            except OSError:
                return False
            if file.size not in {None, size}:
                return False
    return True


def packages_of_here() -> list[str]:
    """The folders of the environment's packages, without those of PYTHONPATH."""
    return [entry for entry in sys.path if Path(entry).is_relative_to(sys.prefix)]


if __name__ == "__main__":
    sys.exit(main())
