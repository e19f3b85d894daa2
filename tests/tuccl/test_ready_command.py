"""A run whose modules were loaded before is as one of a new process."""

from pathlib import Path

import pytest

from tests.tuccl.conftest import run_in
from tests.tuccl.ready_command import ReadyCommand

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("topology", "show", "shipped:h200-4gpu"),
        ("topology", "show", "nowhere.xml"),
        ("table",),
        ("--no-such-option",),
    ],
)
def test_it_says_and_ends_with_the_same(
    tuccl_command: str, ready_command: ReadyCommand, tmp_path: Path, words: tuple[str, ...]
) -> None:
    ready = ready_command.run(tmp_path, [tuccl_command, *words])
    new = run_in(tmp_path, [tuccl_command, *words])
    assert (ready.returncode, ready.stdout, ready.stderr) == (
        new.returncode,
        new.stdout,
        new.stderr,
    )


def test_it_runs_where_and_with_what_it_is_told(
    tuccl_command: str,
    ready_command: ReadyCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "one.xml").write_text("<algo/>")
    named = ready_command.run(tmp_path, [tuccl_command, "verify", "one.xml"])
    given = ready_command.run(tmp_path, [tuccl_command, "verify", "/dev/stdin"], "<algo/>")
    assert named.returncode == given.returncode == 2
    assert named.stderr == "tuccl: one.xml:1: <algo> has no attribute 'coll'\n"
    assert "<algo> has no attribute 'coll'" in given.stderr
    words = [tuccl_command, "topology", "--help"]
    monkeypatch.setenv("COLUMNS", "60")
    narrow = ready_command.run(tmp_path, words).stdout
    monkeypatch.setenv("COLUMNS", "100")
    assert max(map(len, narrow.splitlines())) <= 60
    assert max(map(len, ready_command.run(tmp_path, words).stdout.splitlines())) > 60
