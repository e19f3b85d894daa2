"""docs/guide/python.md and examples/: their code runs as it is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kept_builds import ROOT

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "guide" / "python.md").read_text(encoding="utf-8")
EXAMPLES = {
    "links_of_a_machine.py": "16 links of nvlink: 300.0 to 300.0 GB/s",
    "schedule_against_ring.py": "all_gather.xml: proved",
    "tune_and_look_up.py": "on 16 ranks, profile: no entry: the table is for 4 ranks on 1 node",
    "own_schedule.py": "neighbours_first",
    "compare_machines.py": "NIC n0/nic0 (eth0) is new.",
}


def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/guide/python.md", "exec"), names)  # noqa: S102 - our own page
    said = capsys.readouterr().out
    assert "no-such-file.xml: cannot be read" in said
    assert "confirmation: " in said


def test_every_example_is_tried_and_named_on_the_page() -> None:
    assert {path.name for path in (ROOT / "examples").iterdir() if path.is_file()} == set(EXAMPLES)
    assert all(f"(../../examples/{name})" in PAGE for name in EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_printed(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert EXAMPLES[name] in done.stdout
