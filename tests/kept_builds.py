"""Keep what tests compile in build/kept-by-tests, under a checksum of all inputs.

A second run of the tests compiles only what has changed; two workers that need the same build
compile it once. The inputs are the compiler, its options, the bytes of each source and header, and
the file names in the include folders, where a new header may hide another. Failures are not kept.
The folder may be removed at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "kept-by-tests"
_SOURCES = frozenset({".c", ".cc", ".cpp"})
_LIBRARIES = frozenset({"-lpthread", "-ldl"})
"""Libraries of the system, which do not enter the checksum."""
_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
"""Variables that add to a compiler's search paths."""

_OWN_MACRO = re.compile(r"-D((?:STAND_IN|TUCCL)_\w+)")
"""A macro that no header of the system names."""

_OWN_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_UNUSED_S = 14 * 24 * 3600


def kept(content_sum: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` filled for this checksum, in this run or an earlier one."""
    KEPT.mkdir(parents=True, exist_ok=True)
    folder = KEPT / content_sum
    with (KEPT / f"{content_sum}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _forget_unused()
            with tempfile.TemporaryDirectory(dir=KEPT, prefix=".") as scratch:
                whole = Path(scratch) / "whole"
                whole.mkdir()
                make(whole)
                whole.rename(folder)
        os.utime(folder)
    return folder


def _forget_unused() -> None:
    oldest = time.time() - _UNUSED_S
    for path in KEPT.iterdir():
        # Another worker may remove the same file.
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def content_sum(words: Iterable[object], files: Iterable[Path]) -> str:
    """Checksum of words and of the bytes of files; a missing file counts as missing."""
    total = hashlib.sha256()
    for word in words:
        total.update(f"{word}\0".encode())
    for file in files:
        total.update(f"{file}\0{_sum_of(file)}\0".encode())
    return total.hexdigest()


def _sum_of(file: Path) -> str:
    # Headers of the system do not change while a test runs.
    return _sum_now(file) if file.is_relative_to(ROOT) else _sum_once(file)


def _sum_now(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "missing"


_sum_once = cache(_sum_now)


@cache
def compiler_words(compiler: str) -> tuple[str, ...]:
    """The identity of a compiler: its file and its version text."""
    found = os.path.realpath(shutil.which(compiler) or compiler)
    status = Path(found).stat()
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return found, str(status.st_size), str(status.st_mtime_ns), said.stdout


def compile_kept(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler's command, unless its output for the same input is kept.

    Outputs of sources of this checkout and of objects are kept, one file named by `-o`. A command
    that links libraries of a test runs each time. A macro counts for the sources that name it, so
    that tests which differ in a macro share the outputs of all others.
    """
    sources = [Path(word) for word in command if Path(word).suffix in _SOURCES]
    own = all(source.is_relative_to(ROOT) for source in sources)
    libraries = {word for word in command if word.startswith(("-L", "-l", "-Wl,"))}
    if not sources or not own or not libraries <= _LIBRARIES:
        return _run(command)
    unnamed = _unnamed_macros(command, sources)
    command = [word for word in command if word not in unnamed]
    at = command.index("-o") + 1
    output = Path(command[at])
    objects = [Path(word) for word in command if word.endswith(".o") and word != str(output)]
    words = [word for word in command if word not in {str(output), *map(str, objects)}]
    places = [str(Path.cwd()), *(os.environ.get(name, "") for name in _VARIABLES)]
    asked = [*compiler_words(command[0]), *places, *words, *map(_sum_now, objects)]
    needed = _needed_files(asked, _preprocessing(words), sources)
    if not needed:
        return _run(command)
    done = subprocess.CompletedProcess[str](list(command), 0, "", "")

    def make(folder: Path) -> None:
        nonlocal done
        done = _run([*command[:at], str(folder / "output"), *command[at + 1 :]])
        done.check_returncode()

    try:
        folder = kept(content_sum(asked, needed), make)
    except subprocess.CalledProcessError:
        return done
    shutil.copy(folder / "output", output)
    return done


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _unnamed_macros(command: Sequence[str], sources: Sequence[Path]) -> set[str]:
    """The definitions of macros that neither the sources nor headers of this checkout name."""
    macros = {word: found[1] for word in command if (found := _OWN_MACRO.match(word))}
    if not macros:
        return set()
    places = [Path(word[2:]) for word in command if word.startswith("-I")]
    texts: dict[Path, str] = {}
    waiting = list(sources)
    while waiting:
        file = waiting.pop()
        if file not in texts and file.is_file():
            texts[file] = file.read_text(encoding="utf-8")
            names = _OWN_INCLUDE.findall(texts[file])
            waiting += [place / name for name in names for place in (file.parent, *places)]
    named = set(re.findall(r"\w+", "\n".join(texts.values())))
    return {word for word, macro in macros.items() if macro not in named}


def _preprocessing(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in {"-c", "-o", "-shared", *_LIBRARIES}]


def _needed_files(
    asked: Sequence[str], preprocessing: Sequence[str], sources: Sequence[Path]
) -> list[Path]:
    """Sources and headers, listed once for each state of the include folders.

    Empty if the compiler cannot list them, as for a source that does not compile.
    """
    places = {Path(word[2:]) for word in preprocessing if word.startswith("-I")}
    places |= {source.parent for source in sources}
    names = [str(name) for place in sorted(places) for name in sorted(place.glob("*"))]
    # A changed file may include others than before, so the list is made again when one of its files
    # has changed.
    listing = KEPT / f"{content_sum([*asked, *names], [])}.json"
    if listing.exists():
        remembered: dict[str, str] = json.loads(listing.read_text(encoding="utf-8"))
        files = [Path(name) for name in remembered]
        if all(_sum_of(file) == remembered[str(file)] for file in files):
            os.utime(listing)
            return files
    listed = _run([*preprocessing, "-M"])
    found = {word for word in listed.stdout.split() if word != "\\" and not word.endswith(":")}
    files = [Path(name) for name in sorted(found)]
    if listed.returncode != 0 or not all(file.exists() for file in files):
        return []
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=KEPT, prefix=".", delete=False) as new:
        json.dump({str(file): _sum_of(file) for file in files}, new)
    Path(new.name).replace(listing)
    return files
