"""A kept build is reused for the same input, and for no other."""

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import kept_builds
from tests.kept_builds import compile_kept, content_sum, kept
from tests.runtime.builds import CC

pytestmark = pytest.mark.long

Compile = Callable[..., str]


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The compilations that ran, in a checkout without kept builds."""
    commands: list[list[str]] = []
    run = kept_builds._run

    def counted(command: list[str]) -> subprocess.CompletedProcess[str]:
        if "-M" not in command:
            commands.append(command)
        return run(command)

    monkeypatch.setattr(kept_builds, "ROOT", tmp_path)
    monkeypatch.setattr(kept_builds, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(kept_builds, "_run", counted)
    return commands


@pytest.fixture
def say(compilations: list[list[str]], tmp_path: Path) -> Compile:
    """Compile a program that prints the word of a header, and run it."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "second" / "word.h").write_text('#define WORD "one"\n')
    (tmp_path / "say.c").write_text(
        '#include <stdio.h>\n#include "word.h"\nint main(void) { puts(WORD); return 0; }\n'
    )
    folders = [f"-I{tmp_path / 'first'}", f"-I{tmp_path / 'second'}"]

    def compile_and_run(*flags: str) -> str:
        program = tmp_path / "say"
        command = [CC, *folders, *flags, "-o", str(program), str(tmp_path / "say.c")]
        done = compile_kept(command)
        assert done.returncode == 0, done.stderr
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout

    return compile_and_run


def test_the_same_is_compiled_once(say: Compile, compilations: list[list[str]]) -> None:
    assert (say(), say()) == ("one\n", "one\n")
    assert len(compilations) == 1


def test_options_sources_headers_and_comments_count(
    say: Compile, compilations: list[list[str]], tmp_path: Path
) -> None:
    say()
    assert say('-DWORD="other"', "-w") == "one\n"
    assert len(compilations) == 2
    header = tmp_path / "second" / "word.h"
    header.write_text('#define WORD "two"\n')
    assert say() == "two\n"
    header.write_text('#define WORD "two"\n/* as before */\n')
    assert say() == "two\n"
    assert len(compilations) == 4
    header.write_text('#define WORD "one"\n')
    assert say() == "one\n"
    assert len(compilations) == 4


def test_a_macro_counts_where_a_source_or_its_headers_name_it(
    say: Compile, compilations: list[list[str]], tmp_path: Path
) -> None:
    say()
    assert say("-DTUCCL_WORD=1") == "one\n"
    assert len(compilations) == 1
    (tmp_path / "second" / "word.h").write_text('#include "deep.h"\n')
    (tmp_path / "second" / "deep.h").write_text(
        '#ifdef TUCCL_WORD\n#define WORD "set"\n#else\n#define WORD "unset"\n#endif\n'
    )
    assert (say(), say("-DTUCCL_WORD=1")) == ("unset\n", "set\n")
    assert len(compilations) == 3


def test_a_header_that_comes_before_another_is_seen(say: Compile, tmp_path: Path) -> None:
    say()
    (tmp_path / "first" / "word.h").write_text('#define WORD "first"\n')
    assert say() == "first\n"


def test_what_a_changed_header_includes_is_looked_at(say: Compile, tmp_path: Path) -> None:
    (tmp_path / "second" / "deep.h").write_text('#define WORD "deep"\n')
    say()
    (tmp_path / "second" / "word.h").write_text('#include "deep.h"\n')
    assert say() == "deep\n"
    (tmp_path / "second" / "deep.h").write_text('#define WORD "deeper"\n')
    assert say() == "deeper\n"


def test_a_failure_is_told_each_time(
    say: Compile, compilations: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "say.c").write_text('int main(void) { int unused; return 0; }\n#include "word.h"\n')
    for _ in range(2):
        with pytest.raises(AssertionError, match="unused"):
            say("-Wall", "-Werror")
    assert len(compilations) == 2


def test_of_two_at_once_one_waits(compilations: list[list[str]]) -> None:
    filled = []

    def make(folder: Path) -> None:
        filled.append(folder)
        (folder / "output").write_text("whole")

    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: kept(content_sum(["it"], []), make), range(8)))
    assert len(filled) == len(folders) == 1
    assert (folders.pop() / "output").read_text() == "whole"
    assert compilations == []
