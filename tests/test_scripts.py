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


@pytest.mark.long
@pytest.mark.parametrize("script", WITH_OPTIONS, ids=lambda path: path.stem)
def test_a_script_has_help(script: Path, tmp_path: Path) -> None:
    """Start a script as a user does, without pytest's search path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(script), "--help"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {script.name}")


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.stem)
def test_bash_parses_a_script(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
