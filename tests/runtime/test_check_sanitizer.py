"""scripts/check/check_sanitizer.sh over stand-ins of compute-sanitizer and of the checks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check" / "check_sanitizer.sh"

SANITIZER = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
    case $1 in --tool) tool=$2 ;; --log-file) log=$2 ;; esac
    shift 2
done
"$@"
code=$? errors=0
[[ " $* " == *" --faulty "* && $tool != "${BLIND:-}" ]] && errors=2
[[ " $* " != *" --faulty "* && "$tool ${1##*/}" == "${FOUND:-}" ]] && errors=3
echo "========= ERROR SUMMARY: $errors errors" >"$log"
[ $errors -eq 0 ] && exit $code
exit 99
"""
CHECK = """#!/usr/bin/env bash
[ "${0##*/}" = "${HANGS:-}" ] && sleep 60
[ "${0##*/}" = "${WRONG:-}" ] && echo "WRONG 3 bytes in case 1" && exit 1
echo "10 cases on up to 2 ranks, 0 wrong"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"compute-sanitizer": SANITIZER, "check_patterns": CHECK, "check_programs": CHECK}
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path


def run(folder: Path, tools: str, seconds: int = 60, **said: str) -> tuple[int, str]:
    command = ["bash", str(SCRIPT), "--built", str(folder), "--programs", str(folder)]
    command += ["--tools", tools, "--seconds", str(seconds)]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"} | said
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_each_tool_has_a_line_for_each_check(folder: Path) -> None:
    code, out = run(folder, "memcheck racecheck initcheck")
    assert code == 0
    lines = [" ".join(line.split()[:3]) for line in out.splitlines()]
    assert lines == [
        "plain patterns clean:",
        "plain programs clean:",
        "memcheck faulty seen:",
        "memcheck patterns clean:",
        "memcheck programs clean:",
        "racecheck patterns clean:",
        "racecheck programs clean:",
        "initcheck faulty seen:",
        "initcheck patterns clean:",
        "initcheck programs clean:",
    ]


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        ({"FOUND": "memcheck check_programs"}, 1, "programs  FOUND 6, 0 WRONG"),
        ({"WRONG": "check_patterns"}, 1, "patterns  FOUND 0, 2 WRONG"),
        ({"BLIND": "memcheck"}, 2, "faulty    NOT SEEN"),
        pytest.param(
            *({"HANGS": "check_programs"}, 2, "programs  DID NOT END (codes 124 124)"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_found_or_does_not_end_is_told(
    folder: Path, said: dict[str, str], code: int, text: str
) -> None:
    ended, out = run(folder, "memcheck", seconds=20 if "HANGS" not in said else 2, **said)
    assert ended == code
    assert text in out
