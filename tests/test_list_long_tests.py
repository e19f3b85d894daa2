"""Test scripts/make/list_long_tests.py with a log of pytest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "make"))

from list_long_tests import long_tests, main  # noqa: E402

LOG = """\
============ slowest durations ============
9.00s call     tests/a/test_one.py::test_long[param-1]
0.60s setup    tests/b/test_two.py::test_first
0.70s call     tests/b/test_two.py::test_second
0.24s call     tests/a/test_one.py::test_short
0.25s call     tests/a/test_one.py::test_quarter
0.01s teardown tests/a/test_one.py::test_short
"""


def test_long_tests_are_named_once_and_files_with_a_long_fixture_as_a_whole() -> None:
    assert long_tests(LOG.splitlines()) == [
        "tests/a/test_one.py::test_long",
        "tests/a/test_one.py::test_quarter",
        "tests/b/test_two.py",
    ]


def test_a_log_without_durations_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("5 passed\n")
    monkeypatch.setattr(sys, "argv", ["list_long_tests.py", str(log)])
    assert main() == 1
    assert "--durations=0" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["long_tests.txt", "longest_files.txt"])
def test_every_file_of_the_list_is_there(name: str) -> None:
    listed = (ROOT / "tests" / name).read_text(encoding="utf-8").split()
    assert listed
    assert [name for name in listed if not (ROOT / name.split("::")[0]).is_file()] == []
