"""Keep what tests compile in build/kept-by-tests, under a checksum of all inputs.

A second run of the tests compiles only what has changed; two workers that need the same build
compile it once. The inputs are the compiler, its options, and the bytes of each source and of the
headers of this checkout that it includes. Failures are not kept. The folder may be removed at any
time.
"""

from __future__ import annotations

import fcntl
import hashlib
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

_OWN_MACRO = re.compile(r"-D((?:STAND_IN|TUCCL)_\w+)")
"""A macro that no header of the system names."""

_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
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
    """Checksum of words and of the bytes of files."""
    total = hashlib.sha256()
    for word in words:
        total.update(f"{word}\0".encode())
    for file in files:
        total.update(f"{file}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return total.hexdigest()


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
    places = [Path(word[2:]) for word in command if word.startswith("-I")]
    texts = _with_headers(sources, places)
    named = set(re.findall(r"\w+", "\n".join(texts.values())))
    macros = {word: found[1] for word in command if (found := _OWN_MACRO.match(word))}
    command = [word for word in command if word not in macros or macros[word] in named]
    at = command.index("-o") + 1
    output = Path(command[at])
    objects = [Path(word) for word in command if word.endswith(".o") and word != str(output)]
    words = [word for word in command if word not in {str(output), *map(str, objects)}]
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in objects]
    done = subprocess.CompletedProcess[str](command, 0, "", "")

    def make(folder: Path) -> None:
        nonlocal done
        done = _run([*command[:at], str(folder / "output"), *command[at + 1 :]])
        done.check_returncode()

    asked = [*compiler_words(command[0]), Path.cwd(), *words, *sums]
    try:
        folder = kept(content_sum(asked, sorted(texts)), make)
    except subprocess.CalledProcessError:
        return done
    shutil.copy(folder / "output", output)
    return done


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _with_headers(sources: Iterable[Path], places: Sequence[Path]) -> dict[Path, str]:
    """The texts of sources and of all that they include from their folders and from `places`."""
    texts: dict[Path, str] = {}
    waiting = list(sources)
    while waiting:
        file = waiting.pop()
        if file not in texts and file.is_file():
            texts[file] = file.read_text(encoding="utf-8", errors="replace")
            names = _INCLUDE.findall(texts[file])
            waiting += [place / name for name in names for place in (file.parent, *places)]
    return texts
