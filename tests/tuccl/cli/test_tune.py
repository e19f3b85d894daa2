"""`tuccl tune` end to end, mostly on a record that is made here."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.confirmation import NoStarts, Reference
from probes.nccl_xml.export import topology_to_nccl_xml
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.records.small_record import machine
from tests.tuccl.measuring.records.tiny_grid import BEST, STOCK_US, tiny_grid
from tuccl.measuring.records.record import Record, order_of
from tuccl.measuring.records.record_file import read_record, write_record
from tuccl.reports.report import read_report
from tuccl.reports.tuning_result import read_table
from tuccl.search.trials.config import STOCK
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

Tuccl = Callable[..., tuple[int, str, str]]
GRID = SHARED_DATA / "replay" / "h200x4_nvlink_nccl2.28.9.csv"


@pytest.fixture
def tuccl(run_inside: Run) -> Tuccl:
    """Run `tuccl ARGS` in this process: exit code, standard output, standard error."""

    def run(*args: str | Path) -> tuple[int, str, str]:
        done = run_inside(*args)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def records(tmp_path: Path) -> Path:
    write_record(tmp_path / "r.parquet", tiny_grid())
    return tmp_path / "r.parquet"


def as_csv(record: Record, path: Path) -> None:
    """The record as a grid with its stock times and its topology beside it."""
    names = "op,bytes,algorithm,protocol,nchannels,nthreads,buffsize,min_nchannels"
    times = "t1,t2,t3,t4,t5"
    grid, stock = [f"{names},{times}"], [f"op,bytes,{times}"]
    for row in record.rows:
        key = f"{row.task.operation.value.replace('_', '')},{row.task.size_bytes}"
        samples = ",".join(map(str, row.samples_us))
        if row.config == STOCK:
            stock.append(f"{key},{samples}")
        else:
            config = row.config
            grid.append(f"{key},{config.algorithm},{config.protocol},{config.nchannels},0,0,0,"
                        f"{samples}")  # fmt: skip
    path.write_text("\n".join(grid) + "\n")
    path.with_name(f"{path.stem}_default.csv").write_text("\n".join(stock) + "\n")
    path.with_name("h200x4_topo.xml").write_text(topology_to_nccl_xml(record.topology))


def winners(document: dict[str, Any]) -> dict[tuple[Collective, int], tuple[str, int]]:
    return {
        (Collective.named(entry["key"]["operation"]), entry["tuned_bytes"]):
        (entry["builtin"]["protocol"], entry["builtin"]["nchannels"])
        for entry in document["entries"]
    }  # fmt: skip


def test_a_record_is_tuned_to_the_best_that_it_holds(
    run_tuccl: Run, records: Path, tmp_path: Path
) -> None:
    done = run_tuccl("tune", "--records", records, "--record", "again.parquet", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert winners(document) == BEST
    assert all(key["stock_us"] == pytest.approx(STOCK_US, rel=0.02) for key in document["keys"])
    run = Workspace(tmp_path / "tuccl-workspace").current()
    table = read_table(run)
    assert table.fingerprint == machine().fingerprint()
    provenance = replace(tiny_grid().provenance, replayed=True, machine=machine().name)
    assert {entry.provenance for entry in table.entries} == {provenance}
    for entry in table.entries:
        shown = entry.confirmation
        assert shown is not None
        assert (shown.starts, shown.reference) == (NoStarts.RECORDED, Reference.STOCK)
        assert shown.low <= entry.default_time_us / entry.time_us <= shown.high
    made, given = read_record(tmp_path / "again.parquet"), tiny_grid()
    recorded = {order_of(row): row for row in given.rows}
    for row in made.rows:
        assert row.samples_us[:5] == recorded[order_of(row)].samples_us[: len(row.samples_us)]
    assert made.provenance == replace(given.provenance, replayed=True)
    assert made.topology == given.topology


def test_the_table_says_what_was_not_beaten_what_the_profile_does_and_what_it_cost(
    tuccl: Tuccl, h200: Path
) -> None:
    common = ("tune", "--topology", h200, "--operations", "all_reduce", "--max-size", "1M")
    _, out, _ = tuccl(*common, "--budget", "1s")
    entries = json.loads(tuccl("table", "--json")[1])["entries"]
    assert len(re.findall(r"- +NCCL's own choice", out)) == 6 - len(entries) > 0
    assert "NCCL's own choice: no setting was faster beyond the noise" in out
    assert "schedules" not in out
    assert "--budget 1 s: stock NCCL, a first look at each key, the confirmation and" in out
    code, out, _ = tuccl(*common)
    assert code == 0
    document = json.loads(tuccl("table", "--json")[1])
    profile = document["profile"]
    assert profile
    own = len(re.findall(r"x +NCCL under the profile", out))
    assert own == len(document["keys"]) - len(document["entries"]) > 0
    (name, value), *_ = profile.items()
    code, text, _ = tuccl("explain", "all_reduce", "1M")
    assert code in {0, 1}
    assert f"NCCL under the profile {name}={value}: " in text
    code, text, _ = tuccl("explain", "all_reduce", "1G")
    assert code == 1
    assert f"NCCL chooses under the process profile {name}={value}, which was not" in text
    assert json.loads(tuccl("explain", "all_reduce", "1G", "--json")[1])["profile"] == profile


def test_the_table_says_what_the_profile_leaves_the_key_that_gets_least(
    tuccl: Tuccl, h200: Path, tmp_path: Path
) -> None:
    common = ("tune", "--topology", h200, "--operations", "all_reduce", "--max-size", "1M")
    assert "slowest key under the process profile" in tuccl(*common)[1]
    floor = read_report(Workspace(tmp_path / "tuccl-workspace").current()).floor
    assert floor is not None
    assert floor.least == 0.99
    assert floor.chosen is not None
    assert floor.chosen.holds
    assert floor.chosen.profile == json.loads(tuccl("table", "--json")[1])["profile"]
    assert "slowest key under" not in tuccl(*common, "--floor", "none")[1]
    assert "(all_reduce counts 2)" in tuccl(*common, "--weights", "all_reduce=2")[1]


def test_a_grid_as_csv_gives_the_same_table(tuccl: Tuccl, records: Path, tmp_path: Path) -> None:
    as_csv(tiny_grid(), tmp_path / "h200x4_grid.csv")
    code, out, err = tuccl("tune", "--records", "h200x4_grid.csv", "--json", "--workspace", "csv")
    assert code == 0, err
    assert winners(json.loads(out)) == BEST
    for beside in ("h200x4_grid_default.csv", "h200x4_topo.xml"):
        code, out, err = tuccl("tune", "--records", "h200x4_grid.csv", "--record", beside)
        assert (code, out) == (2, "")
        assert "is read by this command" in err


def test_run_again_there_is_nothing_to_do_but_the_record_can_be_written(
    tuccl: Tuccl, records: Path, tmp_path: Path
) -> None:
    first = tuccl("tune", "--records", records)
    again = tuccl("tune", "--records", records, "--record", "late.parquet", "--resume")
    assert (first[0], again[0]) == (0, 0)
    assert "nothing to do" in again[2]
    assert first[1] == again[1]
    assert read_record(tmp_path / "late.parquet").tasks == tiny_grid().tasks
    assert "not all that was measured" not in again[2]


def test_a_record_of_a_log_that_lost_lines_is_said_to_be_one(
    tuccl: Tuccl, records: Path, tmp_path: Path
) -> None:
    tuccl("tune", "--records", records)
    log = Workspace(tmp_path / "tuccl-workspace").current().measurements
    whole = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(whole[: len(whole) // 2]))
    code, _, err = tuccl("tune", "--records", records, "--record", "half.parquet")
    assert code == 0
    assert "note: the record is not all that was measured: tuccl-workspace/runs/" in err
    assert "measurements.jsonl has lost lines since" in err
    log.write_bytes(b"".join([*whole[:3], b"x" + whole[3], *whole[4:]]))
    code, _, err = tuccl("tune", "--records", records, "--record", "damaged.parquet")
    assert code == 0
    assert re.search(r"note: .*measurements\.jsonl is damaged in line 4 ", err)
    log.unlink()
    code, _, err = tuccl("tune", "--records", records, "--record", "none.parquet")
    assert code == 3
    assert "the log of this run holds no measurement" in err
    assert not (tmp_path / "none.parquet").exists()


def test_init_on_a_record_is_the_same_run(tuccl: Tuccl, records: Path) -> None:
    tuned = tuccl("tune", "--records", records)
    done = tuccl("init", "--records", records, "--record", "all.parquet")
    assert done[0] == 0
    assert "nothing to do" in done[2]
    assert done[1] == tuned[1]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8])
def test_stopped_anywhere_it_takes_the_same_steps_and_ends_with_the_same_table(
    tuccl: Tuccl, records: Path, tmp_path: Path, share: float
) -> None:
    command = ("tune", "--records", records, "--budget", "20s")
    assert tuccl(*command)[0] == 0
    run = Workspace(tmp_path / "tuccl-workspace").current()
    whole = {path: path.read_bytes() for path in (run.measurements, run.bundle, run.report)}
    log = whole[run.measurements]
    run.measurements.write_bytes(log[: int(len(log) * share)])
    run.table.unlink()
    code, _, err = tuccl(*command, "--resume")
    assert code == 0, err
    assert {path: path.read_bytes() for path in whole} == whole


def test_resume_never_begins_anything_and_says_what_differs(
    tuccl: Tuccl, records: Path, tmp_path: Path
) -> None:
    command = ("tune", "--records", records)
    code, _, err = tuccl(*command, "--resume")
    assert (code, "no run was begun" in err) == (2, True)
    assert not (tmp_path / "tuccl-workspace").exists()
    assert tuccl(*command)[0] == 0
    for option, said in (
        (("--seed", "3"), "--seed (0 there, 3 here)"),
        (("--budget", "1m"), "--budget (not given there, 1m here)"),
        (("--min-size", "64K"), "--min-size"),
        (("--operations", "all_reduce"), "--operations"),
    ):
        code, _, err = tuccl(*command, *option, "--resume")
        assert code == 2
        assert said in err
        assert len(err.splitlines()) == 1
    assert tuccl("init", "--records", records, "--resume")[0] == 2  # init has no --resume
    write_record(records, replace(tiny_grid(), rows=tiny_grid().rows[:-1]))
    code, _, err = tuccl(*command, "--resume")
    assert (code, "the record, the version of NCCL, or the release" in err) == (2, True)
    code, _, err = tuccl("tune", "--topology", "shipped:a100-8gpu-8nic", "--resume")
    assert (code, "--records" in err) == (2, True)
    assert len(Workspace(tmp_path / "tuccl-workspace").runs()) == 1


def test_resume_tells_a_run_of_init_with_schedules_from_one_without(
    tuccl: Tuccl, h200: Path
) -> None:
    key = ("--topology", h200, "--operations", "all_gather", "--min-size", "4K", "--max-size", "4K")
    assert tuccl("init", *key)[0] == 0
    code, _, err = tuccl("tune", *key, "--resume")
    assert code == 2
    assert "differs in whether schedules are tried (yes there, no here);" in err


def test_a_machine_that_is_as_it_was_keeps_the_table_of_a_record(
    tuccl: Tuccl, records: Path
) -> None:
    assert tuccl("tune", "--records", records)[0] == 0
    code, _, err = tuccl("retune")
    assert (code, "the machine is as it was" in err) == (0, True)
    code, _, err = tuccl("retune", "--topology", "shipped:a100-8gpu-8nic")
    assert (code, "was recorded on h200-4gpu" in err) == (2, True)


def test_dry_run_tells_the_size_of_the_search_and_does_nothing(
    tuccl: Tuccl, records: Path, tmp_path: Path
) -> None:
    code, out, _ = tuccl("tune", "--records", records, "--dry-run", "--budget", "20m")
    assert code == 0
    assert "keys: 4 (all_gather, all_reduce; 2 sizes, 4K to 64K)" in out
    assert "space: up to 9 for all_gather, 9 for all_reduce a key, 36 in all; 1 process" in out
    assert "  27 x 1, 9 x 3, 3 x 9, 1 x 27\n" in out
    assert "budget: 20 min" in out
    code, out, _ = tuccl("tune", "--records", records, "--dry-run", "--json", "--strategy", "grid")
    plan = json.loads(out)
    assert (plan["configurations_in_all"], plan["brackets"], plan["budget_s"]) == (36, [], None)
    # 9 configurations of 4 keys, 27 samples of 20 calls at about 20 us.
    assert plan["whole_space_s"] == pytest.approx(36 * 27 * 20 * 20e-6, rel=0.02)
    assert not (tmp_path / "tuccl-workspace").exists()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--backend", "magic"), 2, "backend 'magic' is unknown: use one of simulated, replay"),
        (("--backend", "replay"), 2, "--backend replay needs --records FILE"),
        (("--backend", "simulated", "--records", "r.parquet"), 2, "--records is for"),
        (("--records", "nowhere.parquet"), 2, "cannot read"),
        (("--records", "nowhere.csv"), 2, "no nowhere_topo.xml lies beside it"),
        (("--records", "r.parquet", "--step", "2"), 2, "--step does not apply"),
        (("--records", "r.parquet", "--operations", "broadcast"), 2, "no size in this range for"),
        (("--records", "r.parquet", "--min-size", "1M"), 2, "it holds all_gather 4K to 64K"),
        (("--records", "r.parquet", "--strategy", "luck"), 2, "strategy 'luck' is unknown"),
        (("--records", "r.parquet", "--budget", "soon"), 2, "--budget 'soon'"),
        (("--records", "r.parquet", "--topology", "shipped:a100-8gpu-8nic"), 2, "not on a100"),
        (("--records", "r.parquet", "--record", "r.parquet/x"), 3, "cannot write"),
        (("--records", "r.parquet", "--record", "."), 2, "is a directory"),
        (("--records", "r.parquet", "--record", "./r.parquet"), 2, "is read by this command"),
        (("--records", "r.parquet", "--record", "-"), 2, "never written to standard output"),
        (("--backend", ""), 2, "backend '' is unknown"),
        (("--dry-run",), 2, "--dry-run needs --topology or --records"),
        (("--dry-run", "--records", "r.parquet", "--record", "x"), 2, "--dry-run measures nothing"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_no_trace(
    tuccl: Tuccl, records: Path, tmp_path: Path, args: tuple[str, ...], code: int, said: str
) -> None:
    left, out, err = tuccl("tune", *args)
    assert (left, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "tuccl-workspace").exists()


def test_a_record_without_stock_times_is_refused(
    tuccl: Tuccl, records: Path, tmp_path: Path
) -> None:
    grid = tiny_grid()
    without = [row for row in grid.rows if row.config != STOCK]
    write_record(records, replace(grid, rows=tuple(without)))
    code, _, err = tuccl("tune", "--records", records)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "NCCL with nothing set" in err
    some = [row for row in grid.rows if row.config != STOCK or row.task.size_bytes == 4096]
    write_record(records, replace(grid, rows=tuple(some)))
    code, out, err = tuccl("tune", "--records", records, "--json")
    assert code == 0, err
    assert {key["size_bytes"] for key in json.loads(out)["keys"]} == {4096}
    assert "2 recorded keys are left out" in err


def test_the_model_is_tuned_without_schedules(tuccl: Tuccl, h200: Path, tmp_path: Path) -> None:
    code, out, err = tuccl("tune", "--topology", h200, "--operations", "all_gather", "--min-size",
                           "4M", "--max-size", "4M", "--budget", "60s", "--json", "--record",
                           "model.parquet")  # fmt: skip
    assert code == 0, err
    assert all(entry["schedule"] is None for entry in json.loads(out)["entries"])
    run = Workspace(tmp_path / "tuccl-workspace").current()
    assert not list(run.root.glob("schedules"))
    record = read_record(tmp_path / "model.parquet")
    assert (record.provenance.backend, record.shape.ranks) == ("simulated", 4)


def test_a_run_on_workers_can_be_replayed(run_tuccl: Run, h200: Path, tmp_path: Path) -> None:
    key = ("--operations", "all_reduce", "--min-size", "4K", "--max-size", "4K", "--budget", "1s")
    done = run_tuccl("tune", "--backend", "sockets", "--topology", h200, *key, "--record", "s")
    assert done.returncode == 0, done.stderr
    record = read_record(tmp_path / "s")
    assert record.provenance.backend == "sockets"
    assert sum(row.seconds for row in record.rows) > 0
    again = run_tuccl("tune", "--records", "s", "--workspace", "replayed", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["fingerprint"] == machine().fingerprint()


@requires_shared_data
def test_the_real_grid_gives_its_known_winner(tuccl: Tuccl) -> None:
    code, out, err = tuccl("tune", "--records", GRID, "--operations", "all_gather", "--min-size",
                           "4M", "--max-size", "16M", "--budget", "60s", "--json")  # fmt: skip
    assert code == 0, err
    document = json.loads(out)
    assert [key["size_bytes"] for key in document["keys"]] == [4 << 20, 16 << 20]
    gains = {e["tuned_bytes"]: e["default_time_us"] / e["time_us"] for e in document["entries"]}
    assert gains[4 << 20] > 1.4
