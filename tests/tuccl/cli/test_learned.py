"""`tuccl learned`: from the file of a job to the next table, and what is refused."""

from pathlib import Path

import pytest

from lookup_tables.table import NcclAlgorithm, Shape
from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.reports.test_learned import learned_file, written
from tests.tuccl.reports.test_schemas import check
from tuccl.reports.tuning_result import current_run
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    document = learned_file()
    document["communicators"][0] |= {"ranks": 4, "nodes": 1, "ranks_per_node": 4}
    return written(tmp_path, document)


def test_show_prints_what_a_job_learned(run_inside: Run, learned: Path) -> None:
    done = run_inside("learned", "show", learned)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ring/LL128 on 32 channels" in done.stdout
    assert "2.500x" in done.stdout
    document = check("learned", run_inside("learned", "show", learned, "--json").stdout)
    assert document["keys"][0]["arms"][1]["time_us"] == 10.0


def test_import_makes_the_next_table_which_ships(
    run_inside: Run, tuned: TunedWorkspace, learned: Path
) -> None:
    before = current_run(tuned.root)
    printed = run_inside("learned", "import", learned, "--job", "llama", "--json").stdout
    document = check("learned-import", printed)
    after = current_run(tuned.root)
    assert (document["before"], document["run"]) == (before.run.root.name, after.run.root.name)
    (entry,) = [own for own in after.table.entries if own not in before.table.entries]
    assert entry.builtin is not None
    assert (entry.builtin.algorithm, entry.key.shape) == (NcclAlgorithm.RING, Shape(4, 1, 4))
    assert entry.provenance is not None
    assert entry.provenance.details == "learned in the job llama"
    page = ("report", "-o", "page.html")
    for words in (("table",), ("ship", "shipped"), ("retune",), ("runs",), page):
        assert run_inside(*words).returncode == 0
    assert "learned" in run_inside("show", "shipped").stdout
    # The table before can be had again, and nothing is learned twice.
    assert Workspace(tuned.root).named(before.run.root.name) is not None
    again = run_inside("learned", "import", learned)
    assert again.returncode == 0
    assert "nothing to change" in again.stderr


@pytest.mark.usefixtures("tuned")
def test_what_cannot_be_imported_is_a_line(run_inside: Run, tmp_path: Path) -> None:
    larger = written(tmp_path, learned_file())
    for words, code in (
        (("learned", "import", larger), 2),
        (("learned", "import", tmp_path / "none.json"), 3),
        (("learned", "show", tmp_path / "none.json"), 3),
    ):
        done = run_inside(*words)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") == 1
