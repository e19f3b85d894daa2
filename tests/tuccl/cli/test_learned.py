"""`tuccl learned`: from the file of a job to the next table, and what is refused."""

from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.lookup import lookup
from lookup_tables.table import NcclAlgorithm, Shape
from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.reports.test_learned import NCCL, RING, learned_file, written
from tests.tuccl.reports.test_schemas import check
from tuccl.reports.tuning_result import current_run
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

ALL_GATHER, FOUR_GPUS = Collective.ALL_GATHER, Shape(4, 1, 4)


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


def test_explain_tells_what_the_table_runs_at_sizes_beside_the_tuned_ones(
    run_inside: Run, tuned: TunedWorkspace, tmp_path: Path
) -> None:
    entry = lookup(current_run(tuned.root).table.entries, ALL_GATHER, 512 << 10, FOUR_GPUS)
    assert entry is not None
    least, most = entry.key.min_bytes, entry.key.max_bytes
    arms = [{"is": "table", "time_us": 26.0, "refused": False}, NCCL, RING]
    document = learned_file(arms=arms)
    (communicator,) = document["communicators"]
    communicator |= {"ranks": 4, "nodes": 1, "ranks_per_node": 4}
    (key,) = communicator["keys"]
    communicator["keys"] = [
        key | {"bytes": 64 << 10, "choice": 1},
        key | {"bytes": 70_000, "choice": 2},
        key | {"bytes": 400_000, "choice": 2},
        key | {"bytes": 2_000_000, "choice": 1},
    ]
    done = run_inside("learned", "import", written(tmp_path, document))
    assert done.returncode == 0, done.stderr
    # NCCL's own choice to 69,999 bytes, a ring to the end of that range and to 400,000, the entry
    # to 1,999,999, and NCCL's own choice to its end.
    for size, end, code in (
        (80_000, least - 1, 0),
        (least, 400_000, 0),
        (400_000, 400_000, 0),
        (1_999_999, 1_999_999, 1),
    ):
        done = run_inside("explain", "all_gather", str(size), "--json")
        told = check("explain", done.stdout)
        assert (told["entry"]["max_bytes"], done.returncode) == (end, code)
        if code == 0:
            assert told["runs"] == "ring LL128 ch32 chunk128K"
            assert (told["gain"]["ratio"], told["times"]) == (2.5, "measured")
        else:
            assert told["decision"]["size_bytes"] == 512 << 10
    done = run_inside("explain", "all_gather", str(least))
    assert done.stdout.splitlines()[1] == (
        "  ring LL128 ch32 chunk128K takes 10.00 us, stock NCCL 25.00 us: 2.500x"
    )
    assert "learned in the job" in done.stdout.splitlines()[2]
    assert run_inside("explain", "all_gather", "69999").returncode == 1
    done = run_inside("explain", "all_gather", str(most))
    assert done.returncode == 1
    assert "own choice was faster between 512K and 4M than the entries of both" in done.stdout
    (report,) = [
        key
        for key in current_run(tuned.root).report.keys
        if (key.operation, key.size_bytes) == (ALL_GATHER, 512 << 10)
    ]
    assert (report.min_bytes, report.max_bytes) == (400_001, 1_999_999)


@pytest.mark.usefixtures("tuned")
def test_what_cannot_be_imported_is_a_line(run_inside: Run, tmp_path: Path) -> None:
    larger = written(tmp_path, learned_file())
    for words, code in (
        (("learned", "import", larger), 2),
        (("learned", "import", tmp_path / "none.json"), 2),
        (("learned", "show", tmp_path / "none.json"), 2),
        (("learned", "show", tmp_path), 2),
    ):
        done = run_inside(*words)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") == 1
