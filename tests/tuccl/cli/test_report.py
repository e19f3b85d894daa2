"""`tuccl report`: the page of a workspace and of a shipped directory, and what it refuses."""

import json
import os
from pathlib import Path

import pytest

from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.reports.verdict_logs import two_keys, verdict, write_log
from tests.tuccl.views.page.reported import seen
from tuccl.views.page.page import MOST_BYTES

pytestmark = pytest.mark.long


def test_the_page_of_a_workspace(run_inside: Run, tuned: TunedWorkspace, tmp_path: Path) -> None:
    done = run_inside("report")
    assert (done.returncode, done.stdout) == (0, "tuccl-report.html\n"), done.stderr
    written = (tmp_path / "tuccl-report.html").read_bytes()
    assert len(written) < MOST_BYTES
    texts = " ".join(seen(written.decode()).texts)
    table = json.loads(run_inside("table", "--json").stdout)
    assert f"{table['speedup']:.3f}x" in texts
    assert "modelled" in texts
    run = json.loads((tuned.root / "current.json").read_text())["identity"]
    again = run_inside("report", "--run", run, "--json")
    figures = check("report", again.stdout)["figures"]["tables"][0]
    assert figures["speedup"] == pytest.approx(table["speedup"])
    assert figures["facts"]["read from"] == f"tuccl-workspace, run {run}"
    assert len(figures["keys"]) == len(table["keys"])


def test_the_page_of_a_shipped_directory(
    run_inside: Run, tuned: TunedWorkspace, tmp_path: Path
) -> None:
    assert run_inside("ship", "shipped").returncode == 0
    done = run_inside("report", "shipped", "--output", "of-ship.html", "--json")
    figures = check("report", done.stdout)["figures"]["tables"][0]
    assert figures["shipped"]
    table = json.loads(run_inside("table", "--json").stdout)
    assert len(figures["keys"]) == len(table["entries"])
    assert "A shipped directory holds" in (tmp_path / "of-ship.html").read_text()
    (tmp_path / "shipped" / "table.parquet").write_bytes(b"PAR1")
    refused = run_inside("report", "shipped")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "`tuccl ship` writes it again" in refused.stderr


def test_the_page_of_two_tables(run_inside: Run, tuned: TunedWorkspace, tmp_path: Path) -> None:
    assert run_inside("ship", "shipped").returncode == 0
    done = run_inside("report", "tuccl-workspace", "shipped", "--output", "both.html", "--json")
    figures = check("report", done.stdout)["figures"]
    assert [table["shipped"] for table in figures["tables"]] == [False, True]
    comparison = figures["comparison"]
    assert len(comparison["keys"]) == len(figures["tables"][1]["keys"])
    # Both are the same table: a job gets the same, where the directory knows its time.
    known = [key for key in comparison["keys"] if key["second"]["runner"] == "plugin"]
    assert known
    assert [key["ratio"] for key in known] == pytest.approx([1.0] * len(known), rel=0.05)
    assert "two tables compared" in (tmp_path / "both.html").read_text()
    twice = run_inside("report", "shipped", "shipped")
    assert (twice.returncode, twice.stdout) == (2, "")
    assert "shipped is named twice" in twice.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("empty",), 3, "no finished run in workspace empty; run `tuccl init` there first"),
        (("empty", "--run", "abc"), 2, "workspace empty has no run 'abc'; its runs: none"),
        (("empty", "--output", "empty"), 2, "--output empty is a directory: name a file in it"),
        (("empty", "--output", "notes.txt"), 2, "notes.txt was not written by this command"),
        (("empty", "--output", "pipe"), 2, "--output pipe: "),
    ],
)
def test_a_refusal_is_one_line(
    run_inside: Run, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    done = run_inside("report", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["report.json", "topology.json", "table.parquet"])
def test_a_damaged_file_of_the_workspace_is_one_line(
    run_inside: Run, tuned: TunedWorkspace, tmp_path: Path, name: str
) -> None:
    (run,) = (tuned.root / "runs").iterdir()
    (run / name).write_bytes(b"{")
    done = run_inside("report")
    assert (done.returncode, done.stdout) == (3, "")
    assert name in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "tuccl-report.html").exists()


def test_the_guards_verdicts(run_inside: Run, tmp_path: Path) -> None:
    folder = tmp_path / "verdicts"
    folder.mkdir()
    two_keys(folder)
    done = run_inside("report", "--verdicts", "verdicts", "--output", "guard.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "41 verdicts on 2 keys in 1 file: 40 changes"
    page = (tmp_path / "guard.html").read_text()
    assert len(page) < MOST_BYTES
    assert "Which choice runs from each verdict on" in page
    again = run_inside("report", "--verdicts", "verdicts", "--output", "guard.html", "--json")
    figures = check("report-verdicts", again.stdout)["figures"]
    assert [key["changes"] for key in figures["keys"]] == [0, 40]
    assert figures["keys"][1]["runs"] == {"table": 1}
    write_log(folder, verdict(1, version=2))
    refused = run_inside("report", "--verdicts", "verdicts", "--output", "guard.html")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "version 2 of verdicts" in refused.stderr
    both = run_inside("report", "workspace", "--verdicts", "verdicts")
    assert both.stderr == (
        "tuccl: --verdicts reports what was found in jobs: leave out workspace\n"
    )
