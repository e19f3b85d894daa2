"""`tuccl workload trim`: jobs whose steps depend on the parts of the table that they get."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

import pytest

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import BuiltinConfig, Entry, Key, NcclAlgorithm, NcclProtocol, Shape, Table
from tests.tuccl.conftest import Run
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.job_roots import run_of_one_rank
from tuccl.reports.tuning_result import read_table_file
from tuccl.runtime import PLUGIN_NAME
from tuccl.shipping.bench.job_parts import job_parts
from tuccl.shipping.forms import Form
from tuccl.shipping.manifest import PROFILE_LEFT_OUT
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_directory import held, sourced_crc
from tuccl.workspace.runs import Run as Tuned

pytestmark = pytest.mark.long

RANK = Shape(1, 1, 1)
OPERATIONS = (Collective.ALL_GATHER, Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
METRIC = ("--metric", r"step (\S+) ms", "--unit", "ms")
PROFILE_256 = {"NCCL_NTHREADS": "256"}
STOCK_MS = 100.0
Times = Callable[[frozenset[Collective]], float]
Job = Callable[[Times, float], tuple[str, ...]]


def table_of(operations: tuple[Collective, ...], profile: Mapping[str, str]) -> Table:
    """A table with an entry for each operation."""
    ring = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 4)
    entries = tuple(
        Entry(Key(operation, 1024, 4095, RANK, "test"), 1024, ring, None, 1.0, 1.0, 2.0, 5, 0.0, "")
        for operation in operations
    )
    return Table("test", "test", (), entries, profile)


def shipped_table(
    tmp_path: Path, profile: Mapping[str, str], operations: tuple[Collective, ...] = OPERATIONS
) -> Table:
    """A shipped directory with entries of these operations; its table."""
    run = run_of_one_rank(tmp_path / "run", profile)
    table = table_of(operations, profile)
    run.table.write_bytes(table_to_parquet_bytes(table))
    ship(run, tmp_path / "shipped")
    return table


@pytest.fixture
def job(tmp_path: Path, program: Path) -> Job:
    """A job whose step takes so long with entries of these operations; the profile multiplies."""

    def command(times: Times, with_profile: float = 1.0) -> tuple[str, ...]:
        lines = []
        for own in (own for n in range(4) for own in combinations(OPERATIONS, n)):
            for factor, name, profile in ((1.0, "plain", {}), (with_profile, "256", PROFILE_256)):
                part = table_of(own, profile)
                crc = bundle_crc(bundle_bytes(part)) if own or profile else 0
                lines.append(f"{crc:08x}-{name} {times(frozenset(own)) * factor:.6f}\n")
        (tmp_path / "times").write_text("".join(lines))
        words = "${TUCCL_BUNDLE_CRC:-00000000}-${NCCL_NTHREADS:-plain}"
        look = f'echo "step $(sed -n "s/^{words} //p" times) ms"'
        return ("--", "sh", "-c", f"{program} && {look}")

    return command


def product_of(factors: Mapping[Collective, float]) -> Times:
    """Operations whose entries multiply the step's time by these factors."""

    def times(own: frozenset[Collective]) -> float:
        time_ms = STOCK_MS
        for operation in own:
            time_ms *= factors.get(operation, 0.99)
        return time_ms

    return times


@pytest.mark.usefixtures("jobs_find_nccl")
def test_what_slows_the_job_down_is_left_out(run_inside: Run, job: Job, tmp_path: Path) -> None:
    shipped_table(tmp_path, {})
    before = sourced_crc(tmp_path / "shipped")
    command = job(product_of({Collective.ALL_GATHER: 1.25, Collective.ALL_REDUCE: 0.8}), 1.0)
    words = ("shipped", "--output", "shipped", "--rounds", "2", *METRIC)
    done = run_inside("workload", "trim", *words, *command)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[-1] for row in rows[4:7]] == ["out", "1.250", "1.010"]
    assert rows[4][-6:] == ["0.800x", "0.800", "to", "0.800", "left", "out"]
    assert "the job is 1.263 times as fast with the rest" in done.stdout
    assert done.stdout.endswith("the rest is shipped: . shipped/tuccl.env\n")
    assert "3 parts of the table in 8 rounds, then 2 rounds of what is left" in done.stderr
    said = done.stderr.splitlines()
    assert any(line.startswith("parts round 1 of 8, with the table: 99 ms") for line in said)
    assert sum(line.startswith("parts round") for line in said) == 16
    table = read_table_file(tmp_path / "shipped" / "table.parquet")
    assert {entry.key.operation for entry in table.entries} == set(OPERATIONS[1:])
    back = run_inside("rollback", "shipped")
    assert back.returncode == 0
    assert sourced_crc(tmp_path / "shipped") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "shipped", "times"]


@pytest.mark.usefixtures("jobs_find_nccl")
def test_a_profile_that_slows_the_job_down(run_inside: Run, job: Job, tmp_path: Path) -> None:
    """Entries stay without it, and the directory says that their times were taken with it."""
    table = shipped_table(tmp_path, PROFILE_256)
    assert [str(part) for part in job_parts(table)][-1] == "process profile"
    command = job(product_of({}), 1.3)
    words = ("shipped", "--output", "trimmed", "--rounds", "2", "--json", *METRIC)
    done = run_inside("workload", "trim", *words, *command)
    assert done.returncode == 0, done.stderr
    document = check("workload-trim", done.stdout)
    assert [each["left_out"] for each in document["parts"]] == [False, False, False, True]
    assert document["parts"][-1]["shape"] is None
    assert document["parts"][-1]["gain"]["ratio"] == pytest.approx(1 / 1.3)
    assert document["part_rounds"][0]["parts"] == [0, 1, 2, 3]
    assert len(document["part_rounds"]) == 8
    assert (document["shipped"], document["load_seen"]) == ("trimmed", True)
    assert f"note: {PROFILE_LEFT_OUT}" in done.stderr
    manifest = json.loads((tmp_path / "trimmed" / "tuccl-manifest.json").read_text())
    assert (manifest["profile"], manifest["caveats"]) == ({}, [PROFILE_LEFT_OUT])
    environment = (tmp_path / "trimmed" / "tuccl.env").read_text()
    assert "NCCL_NTHREADS" not in environment
    assert "No process profile: that of the table's times is left out." in environment
    again = run_inside("workload", "trim", *words, *command)
    assert again.returncode == 0
    shown = run_inside("show", "trimmed")
    assert PROFILE_LEFT_OUT in shown.stderr
    assert "process profile: left out" in shown.stdout


@pytest.mark.usefixtures("jobs_find_nccl")
def test_nothing_to_leave_out_and_nothing_left(run_inside: Run, job: Job, tmp_path: Path) -> None:
    shipped_table(tmp_path, {})
    words = ("shipped", "--output", "trimmed", "--rounds", "2", *METRIC)
    done = run_inside("workload", "trim", *words, *job(product_of({}), 1.0))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("nothing to leave out; the table is shipped: . trimmed/tuccl.env\n")
    assert sourced_crc(tmp_path / "trimmed") == sourced_crc(tmp_path / "shipped")
    words = ("trimmed", "--output", "trimmed", "--rounds", "2", *METRIC)
    done = run_inside("workload", "trim", *words, *job(product_of({}), 1.0))
    assert done.stdout.endswith("beyond the noise: there is nothing to leave out\n")
    words = ("shipped", "--output", "none", "--rounds", "2", *METRIC)
    slow = product_of(dict.fromkeys(OPERATIONS, 1.1))
    done = run_inside("workload", "trim", *words, *job(slow, 1.0))
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("every part slows the job down: leave this job to stock NCCL\n")
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("jobs_find_nccl")
@pytest.mark.parametrize(("factor", "code"), [(0.8, 0), (1.25, 1)])
def test_of_a_table_of_one_part_its_rounds_are_all(
    run_inside: Run, job: Job, tmp_path: Path, factor: float, code: int
) -> None:
    shipped_table(tmp_path, {}, (Collective.ALL_REDUCE,))
    words = ("shipped", "--output", "trimmed", "--json", *METRIC)
    command = job(product_of({Collective.ALL_REDUCE: factor}), 1.0)
    done = run_inside("workload", "trim", *words, *command)
    assert done.returncode == code, done.stderr
    assert "1 part of the table in 8 rounds\n" in done.stderr
    document = check("workload-trim", done.stdout)
    assert document["gain"]["ratio"] == pytest.approx(1.0 / factor)
    assert len(document["rounds"]) == 8
    assert (document["load_seen"], document["slower"]) == (True, factor > 1.0)
    assert (tmp_path / "trimmed").exists() == (code == 0)


@pytest.mark.usefixtures("jobs_find_nccl")
def test_a_profile_may_be_all_that_is_left(run_inside: Run, job: Job, tmp_path: Path) -> None:
    shipped_table(tmp_path, PROFILE_256)
    slow = product_of(dict.fromkeys(OPERATIONS, 1.1))
    words = ("shipped", "--output", "trimmed", "--rounds", "2", *METRIC)
    done = run_inside("workload", "trim", *words, *job(slow, 0.9))
    assert done.returncode == 0, done.stderr
    assert "round 2 of 2, with the rest: 90 ms" in done.stderr
    manifest = json.loads((tmp_path / "trimmed" / "tuccl-manifest.json").read_text())
    assert (manifest["profile"], manifest["shapes"]) == (PROFILE_256, [])
    again = run_inside("workload", "trim", "trimmed", "--rounds", "2", "true")
    assert "1 part of the table in 8 rounds" in again.stderr


@pytest.mark.usefixtures("jobs_find_nccl")
def test_a_rest_that_is_slower_is_not_shipped(run_inside: Run, job: Job, tmp_path: Path) -> None:
    """Parts that are good beside one that is bad, and bad without it."""
    shipped_table(tmp_path, {})
    bad = Collective.ALL_GATHER

    def times(own: frozenset[Collective]) -> float:
        if not own or own == set(OPERATIONS):
            return STOCK_MS
        return 140.0 if bad in own else 110.0

    words = ("shipped", "--output", "trimmed", "--rounds", "2", "--json", *METRIC)
    done = run_inside("workload", "trim", *words, *job(times, 1.0))
    assert done.returncode == 1, done.stderr
    document = check("workload-trim", done.stdout)
    assert [each["left_out"] for each in document["parts"]] == [True, False, False]
    assert (document["slower"], document["shipped"]) == (True, None)
    assert document["gain"]["ratio"] == pytest.approx(100 / 110)
    assert not (tmp_path / "trimmed").exists()


@pytest.mark.usefixtures("jobs_find_nccl")
def test_mistakes_are_a_line_before_the_job_runs(run_inside: Run, tmp_path: Path) -> None:
    shipped_table(tmp_path, {})
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").touch()
    cases = [
        (("shipped",), "name the job: tuccl workload trim DIR"),
        (("--part-rounds", "1", "shipped", "false"), "--part-rounds 1 is out of range"),
        (("shipped", "--output", "own", "false"), "holds what `tuccl ship` did not"),
        (("shipped", "--output", "own/file", "false"), "own/file is a file"),
        (("nowhere", "false"), "nowhere/tuccl.env is missing"),
    ]
    for words, said in cases:
        done = run_inside("workload", "trim", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    plugin = tmp_path / "shipped" / PLUGIN_NAME
    whole = plugin.read_bytes()
    plugin.write_bytes(b"damaged")
    done = run_inside("workload", "trim", "shipped", "false")
    assert done.returncode == 2
    assert f"shipped: files differ from the manifest: {PLUGIN_NAME}" in done.stderr
    plugin.write_bytes(whole)
    (tmp_path / "shipped" / "tuccl-manifest.json").unlink()
    done = run_inside("workload", "trim", "shipped", "false")
    assert done.returncode == 2
    assert "tuccl-manifest.json is missing or of another release" in done.stderr


@pytest.mark.usefixtures("jobs_find_nccl")
def test_what_the_runs_have_told_is_said_where_shipping_fails(
    run_inside: Run, job: Job, tmp_path: Path
) -> None:
    """The directory is locked by another ship, and a new one keeps the forms of the table's."""
    shipped_table(tmp_path, {})
    ship(Tuned(tmp_path / "run"), tmp_path / "shipped", forms=[Form.SLURM])
    times = product_of({Collective.ALL_GATHER: 1.25})
    words = ("shipped", "--rounds", "2", *METRIC, "--output")
    with held(tmp_path / "shipped"):
        done = run_inside("workload", "trim", *words, "shipped", *job(times, 1.0))
    assert (done.returncode, done.stdout) == (3, "")
    assert "left out" in done.stderr
    assert "times as fast with the rest" in done.stderr
    done = run_inside("workload", "trim", *words, "trimmed", *job(times, 1.0))
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "trimmed" / "tuccl-manifest.json").read_text())
    assert manifest["forms"] == ["slurm"]
