"""Scripts start from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
WITH_OPTIONS = sorted(
    path for path in SCRIPTS.glob("*/*.py") if "ArgumentParser(" in path.read_text(encoding="utf-8")
)
SHELL = sorted(SCRIPTS.rglob("*.sh"))


def test_scripts_are_found() -> None:
    assert {path.parent.name for path in WITH_OPTIONS} == {"attack", "bench", "check", "make"}
    assert len(SHELL) > 10


STARTER = """
import os, runpy, sys
import optuna, pandas, pyarrow, tuccl.api.tuning, tuccl.cli.app
for script in sys.argv[1:]:
    if os.fork() == 0:
        sys.argv, sys.path[0] = [script, "--help"], os.path.dirname(script)
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)
        os._exit(1)
    if os.wait()[1]:
        raise SystemExit(script)
"""
"""Starts scripts as a user does, without pytest's search path, but imports for all of them once."""


@pytest.mark.long
def test_scripts_have_help(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", STARTER, *map(str, WITH_OPTIONS)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for script in WITH_OPTIONS:
        assert f"usage: {script.name}" in done.stdout


def test_bash_parses_the_scripts() -> None:
    for script in SHELL:
        done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script
