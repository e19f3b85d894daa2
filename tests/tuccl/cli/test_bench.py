"""`tuccl bench` from the command line, over stand-ins of CUDA and NCCL."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.conftest import Run, run_in
from tests.tuccl.crew.test_places import requires_mpirun
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns, build_release
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.bench.shipped_tables import (
    TWO_RANKS,
    M,
    all_gather_entry,
    placed_pairs,
    ship_entries,
)
from tests.tuccl.shipping.watching.watched_tables import watched_table
from tests.tuccl.workloads.made_workloads import call, workload, written
from tuccl.cli.bench import BenchOptions, request_of
from tuccl.search.trials.timing import Computation

SIZE = M + 65536
"""The smallest with few calls in a launch."""
WORDS = ("--sizes", "1088K", "--rounds", "2")
STOCK_IS_SLOW = {"STAND_IN_CHANNELS": "1"}
SLOWER = {"STAND_IN_SLOW_MS": "60"}
"""One channel is far from many on a busy machine, too, where each call waits for its turns."""
BY_THE_CLOCK = {"STAND_IN_COUNTS_TIME": ""}
"""Calls take the time of this host, as a computation beside them does."""
BenchOf = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bench(stand_ins: StandIns, run_tuccl: Run) -> BenchOf:
    """The command on two GPUs, where one channel says that it takes 20 ms."""

    def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {"PYTHONPATH": str(stand_ins.libraries), "STAND_IN_GPUS": "2"}
        slow = {"STAND_IN_SLOW_MS": "20", "STAND_IN_COUNTS_TIME": "1"}
        environment = os.environ | stand_ins.variables | own | slow | variables
        given = {name: value for name, value in environment.items() if value}
        return run_tuccl("bench", *words, env=given)

    return run


@pytest.fixture
def place(stand_ins: StandIns, tmp_path: Path) -> Callable[..., Path]:
    """A shipped table of one entry, for so many channels, with this promise."""

    def make(name: str, nchannels: int, promised: float = 1.5, *, executor: bool = False) -> Path:
        entry = all_gather_entry(nchannels, promised, SIZE)
        return ship_entries(tmp_path / name, stand_ins, entry, executor=executor)

    return make


@pytest.mark.slow
def test_a_table_that_gains(bench: BenchOf, place: Callable[..., Path]) -> None:
    done = bench(place("shipped", 8), *WORDS, **STOCK_IS_SLOW)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 ranks on 1 node(s), float16, out of place, CUDA graphs; 2 rounds")
    row = next(line for line in lines if line.startswith("1088K"))
    assert row.split()[:4] == ["1088K", "278528", "half", "none"]
    assert row.endswith("1.500 ring Simple ch8")
    assert "slower than stock NCCL, beyond the noise: no key" in done.stdout
    assert "1 key, 2 rounds of new processes for stock NCCL and the table in turn" in done.stderr
    assert "the whole of 2 about " in done.stderr


@pytest.mark.slow
def test_a_table_that_loses_is_a_finding_also_in_a_shell_that_has_sourced_it(
    bench: BenchOf, place: Callable[..., Path]
) -> None:
    shipped = place("shipped", 1)
    sourced = {
        "NCCL_TUNER_PLUGIN": str(shipped / "libnccl-tuner-tuccl.so"),
        "TUCCL_BUNDLE": str(next(shipped.glob("bundle-*"))),
    }
    done = bench(shipped, "--sizes", "1088K", "--rounds", "3", **sourced, **SLOWER)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "slower than stock NCCL: all_gather 1088K, 0." in done.stdout
    assert done.stdout.splitlines()[-2].endswith(", promised 1.500x")


@pytest.mark.long
def test_a_table_that_promises_too_much_is_a_finding(
    bench: BenchOf, stand_ins: StandIns, tmp_path: Path
) -> None:
    # Two rounds whose ratios differ threefold leave a gain of a million within the bounds.
    entry = all_gather_entry(8, size_bytes=SIZE)
    entry = replace(entry, default_time_us=1e12, time_us=1e-6, builtin_time_us=1e-6)
    shipped = ship_entries(tmp_path / "shipped", stand_ins, entry)
    # Against stock NCCL that is as fast, noise would make it slower than stock in some runs.
    done = bench(shipped, *WORDS, STAND_IN_CHANNELS="1", STAND_IN_SLOW_MS="3")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "slower than the table promised: all_gather 1088K, " in done.stdout
    assert "promised 1000000000000000000.000x" in done.stdout


@pytest.mark.long
def test_a_variable_that_would_be_in_both_is_refused(
    bench: BenchOf, place: Callable[..., Path]
) -> None:
    done = bench(place("shipped", 8), *WORDS, NCCL_MAX_CTAS="8")
    assert done.returncode == 3
    said = "NCCL_MAX_CTAS=8 is set in the environment, and the table was measured without it"
    assert said in done.stderr


@pytest.mark.slow
def test_two_tables_in_json(bench: BenchOf, place: Callable[..., Path]) -> None:
    first, second = place("a", 1, 0.5), place("b", 8, executor=True)
    done = bench(first, second, *WORDS, "--json", "--plain", **STOCK_IS_SLOW, **SLOWER)
    document = check("bench", done.stdout)
    # The first table is as fast as stock NCCL, and noise may make it slower.
    found = document["tables"][0]["keys"][0]["finding"]
    assert document["tables"][1]["keys"][0]["finding"] is None
    assert done.returncode == (1 if found else 0), done.stderr
    assert [table["place"] for table in document["tables"]] == [str(first), str(second)]
    assert [table["executor"] for table in document["tables"]] == [False, True]
    assert [table["keys"][0]["runner"] for table in document["tables"]] == ["plugin", "plugin"]
    assert [len(table["keys"][0]["table_rounds_us"]) for table in document["tables"]] == [2, 2]
    assert document["graphs"] is False
    assert document["versions"].startswith("NCCL 2.28.9, CUDA ")
    slow, fast = (table["keys"][0]["gain"]["ratio"] for table in document["tables"])
    assert fast > 1.5 > slow
    assert document["comparison"]["keys"][0]["gain"]["ratio"] == pytest.approx(fast / slow)


@pytest.mark.slow
def test_faked_nodes_that_share_gpus_and_a_process_profile_alone(
    bench: BenchOf, stand_ins: StandIns, tmp_path: Path
) -> None:
    entry = all_gather_entry(8, 0.01, SIZE, shape=Shape(4, 2, 2))
    shared = ship_entries(tmp_path / "shared", stand_ins, entry)
    words = ("--fake-nodes", "2", "--share-gpus", "--rounds", "2", "--json")
    done = bench(shared, *words, STAND_IN_MPS="2", **STOCK_IS_SLOW)
    assert done.returncode == 0, done.stderr
    document = check("bench", done.stdout)
    assert document["shape"] == {"ranks": 4, "nodes": 2, "ranks_per_node": 2}
    assert document["tables"][0]["keys"][0]["runner"] == "plugin"
    alone = bench(shared, *words)
    assert alone.returncode == 3
    assert "MPS does not share GPU 0" in alone.stderr
    profile = ship_entries(tmp_path / "profile", stand_ins, profile={"NCCL_NTHREADS": "128"})
    done = bench(profile, "--operations", "all_gather", "--sizes", "1K", "--budget", "1s")
    # The stand-in is as fast with the profile as without it, so that noise decides.
    slower = "slower than stock NCCL, beyond the noise: no key" not in done.stdout
    assert done.returncode == (1 if slower else 0), done.stdout + done.stderr
    assert "process profile NCCL_NTHREADS=128" in done.stdout
    assert "; 2 rounds of new processes in " in done.stdout, "fewer tell nothing"
    row = next(line for line in done.stdout.splitlines() if line.startswith("   1K"))
    assert row.endswith(" - NCCL under the profile")


@pytest.mark.slow
def test_one_gpu_stands_in_for_a_host_of_four(
    bench: BenchOf, stand_ins: StandIns, tmp_path: Path
) -> None:
    entry = all_gather_entry(8, 0.01, SIZE, shape=Shape(4, 1, 4))
    place = ship_entries(tmp_path / "t", stand_ins, entry)
    words = ("--gpus", "4", "--share-gpus", "--rounds", "2", "--json")
    single = {"STAND_IN_GPUS": "1", "STAND_IN_MPS": "1", **STOCK_IS_SLOW}
    done = bench(place, *words, STAND_IN_NCCL_VERSION="23007", **single)
    assert done.returncode == 0, done.stderr
    document = check("bench", done.stdout)
    assert document["shape"] == {"ranks": 4, "nodes": 1, "ranks_per_node": 4}
    assert "share 1 GPU of this host" in done.stderr
    old = bench(place, *words, **single)
    assert old.returncode == 3
    assert "NCCL 2.28.9 takes no two ranks of a node on one GPU" in old.stderr


@pytest.mark.slow
def test_communicators_are_benched_by_where_ranks_sit(
    bench: BenchOf, stand_ins: StandIns, tmp_path: Path
) -> None:
    """Pairs two apart have an entry that the stand-in is fast by, neighbours one that is slow."""
    placements = placed_pairs((1,), (8,), size_bytes=SIZE)
    place = ship_entries(tmp_path / "t", stand_ins, placements=placements)
    words = ("--rounds", "2", "--json")
    done = bench(place, *words, STAND_IN_GPUS="4", **STOCK_IS_SLOW)
    keys = check("bench", done.stdout)["tables"][0]["keys"]
    assert [key["placement"] for key in keys] == ["gpu0 and gpu1", "gpu0 and gpu2"], done.stderr
    assert [key["promised"]["ratio"] for key in keys] == pytest.approx([1.5, 2.5])
    assert [key["runs"] for key in keys] == ["ring Simple ch1", "ring Simple ch8"]
    slow, fast = (key["gain"]["ratio"] for key in keys)
    assert fast > 1.5 > slow
    fewer = bench(place, *words, **STOCK_IS_SLOW)
    assert (
        "entries by where ranks sit were timed with 4 ranks on 1 node(s), here run" in fewer.stderr
    )


@pytest.mark.slow
def test_all_communicators_of_a_table_run_side_by_side(
    bench: BenchOf, stand_ins: StandIns, tmp_path: Path
) -> None:
    shapes = (Shape(2, 1, 2), Shape(2, 2, 1), Shape(4, 2, 2))
    entries = [
        all_gather_entry(n, 0.01, SIZE, shape=s) for n, s in zip((8, 1, 8), shapes, strict=True)
    ]
    shipped = ship_entries(tmp_path / "shipped", stand_ins, *entries)
    four = {"STAND_IN_GPUS": "4", "STAND_IN_CHANNELS": "1", **SLOWER}
    words = ("--gpus", "4", "--fake-nodes", "2", "--rounds", "2")
    done = bench(shipped, *words, "--json", **four)
    document = check("bench", done.stdout)
    assert document["shape"] == {"ranks": 4, "nodes": 2, "ranks_per_node": 2}
    (table,) = document["tables"]
    found = {Shape(**key["shape"]): key for key in table["keys"]}
    assert list(found) == [shapes[2], shapes[0], shapes[1]], "the whole machine comes first"
    assert {key["runner"] for key in found.values()} == {"plugin"}
    # Stock NCCL has one slow channel, as the entry of rails.
    assert found[shapes[2]]["gain"]["ratio"] > 1.5
    assert found[shapes[0]]["gain"]["ratio"] > 1.5
    assert 0.5 < found[shapes[1]]["gain"]["ratio"] < 1.5
    assert found[shapes[1]]["count"] == SIZE // 2 // 2
    shown = bench(shipped, *words, **four)
    headings = [line for line in shown.stdout.splitlines() if line.startswith("# ")]
    assert headings == [
        "# all_gather",
        "# all_gather of 2 ranks on 1 node(s)",
        "# all_gather of 2 ranks on 2 node(s)",
    ]


@pytest.mark.long
def test_a_directory_that_is_not_there_is_none_for_several_hosts(
    tmp_path: Path, run_tuccl: Run
) -> None:
    where = tmp_path / "nowhere"
    done = run_tuccl("bench", where, "--hosts", "a,b", "--launcher", "env HOST={host}")
    line = f"tuccl: {where}/tuccl.env is missing: name a directory of `tuccl ship`\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


@pytest.mark.slow
@requires_mpirun
def test_ranks_of_mpi_bench_together(
    stand_ins: StandIns, tuccl_command: str, place: Callable[..., Path], tmp_path: Path
) -> None:
    own = {"PYTHONPATH": str(stand_ins.libraries), "STAND_IN_GPUS": "2"}
    launcher = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2")
    words = ("--sizes", "1K", "--rounds", "2", "--json")
    done = run_in(
        tmp_path,
        [*launcher, tuccl_command, "bench", place("shipped", 8), *words],
        env=os.environ | stand_ins.variables | own,
    )
    document = check("bench", done.stdout)
    assert done.returncode == (1 if document["tables"][0]["keys"][0]["finding"] else 0)
    assert document["shape"] == {"ranks": 2, "nodes": 1, "ranks_per_node": 2}
    refused = run_in(tmp_path, [*launcher, tuccl_command, "bench", "--gpus", "2"])
    assert "--gpus and --fake-nodes choose among one host's GPUs" in refused.stderr


@pytest.mark.slow
def test_wrong_data_and_a_table_that_nccl_refuses_are_no_result(
    bench: BenchOf, place: Callable[..., Path]
) -> None:
    shipped = place("shipped", 8)
    wrong = bench(shipped, *WORDS, STAND_IN_CORRUPTS="all_gather")
    assert wrong.returncode == 3
    assert wrong.stdout == ""
    assert f"tuccl: {shipped}, all_gather of 1088K: wrong data: rank 0" in wrong.stderr
    (bundle,) = shipped.glob("bundle-*.tuccl")
    environment = shipped / "tuccl.env"
    crc = bundle.stem.removeprefix("bundle-")
    environment.write_text(environment.read_text().replace(f"CRC={crc}", "CRC=00000000"))
    refused = bench(shipped, *WORDS)
    assert refused.returncode == 3
    assert f"tuccl: {shipped}: the job does not start: " in refused.stderr
    assert refused.stderr.count("\n") <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no finished run in workspace tuccl-workspace"),
        (
            ("nowhere",),
            "nowhere/tuccl.env is missing: name a directory of `tuccl ship`",
        ),
        (("--rounds", "1"), "two at least"),
        (("a", "b", "--baseline", "c.csv"), "under one NCCL: leave out the second table"),
        (("--baseline", "missing.csv"), "missing.csv: No such file or directory; name a tuner's"),
        (("--sizes", ","), "no size given"),
        (("--operations", "all_sum"), "'all_sum' is unknown"),
        (("--budget", "soon"), "--budget 'soon'"),
        (
            ("--share-gpus",),
            "what GPUs faked nodes have: name two --fake-nodes or more",
        ),
        (("--fake-nodes", "3+"), "is neither a number of nodes nor sizes, such as 2 or 3+1"),
        (("--gpus", "0"), "one at least"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    run_inside: Run, words: tuple[str, ...], said: str
) -> None:
    done = run_inside("bench", *words)
    assert done.returncode in {2, 3}
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_calls_are_timed_as_those_of_the_shipped_table_were(
    bench: BenchOf, stand_ins: StandIns, tmp_path: Path
) -> None:
    """Plain, and beside 20 ms of computation, unless they are to be timed alone."""
    beside = Computation(Collective.ALL_GATHER, TWO_RANKS, SIZE, 20_000.0)
    entry = all_gather_entry(8, size_bytes=SIZE)
    shipped = watched_table(
        tmp_path / "shipped", stand_ins, entry, graphs=False, computations=(beside,)
    )
    words = (shipped, "--sizes", "1088K", "--rounds", "2")
    together = bench(*words, **BY_THE_CLOCK)
    alone = bench(*words, "--alone", "--graphs", "--json")
    assert (
        "float16, out of place, calls one by one, beside computation; 2 rounds" in together.stdout
    )
    row = next(line for line in together.stdout.splitlines() if line.startswith("1088K"))
    document = check("bench", alone.stdout)
    assert document["graphs"] is True
    assert document["computations"] == []
    (key,) = document["tables"][0]["keys"]
    assert row.split()[-4] == "1.500", "promised"
    assert key["promised"] is None
    assert "was tuned with other computation beside its calls than" in alone.stderr
    together_us = float(row.split()[4].replace(",", ""))
    assert together_us > 19_000.0 > min(key["stock_rounds_us"])


def test_a_shipped_directory_that_lacks_its_bundle_is_one_line(
    run_inside: Run, place: Callable[..., Path]
) -> None:
    shipped = place("shipped", 8)
    (bundle,) = shipped.glob("bundle-*.tuccl")
    bundle.unlink()
    done = run_inside("bench", shipped)
    assert done.returncode == 2
    assert done.stderr == (
        f"tuccl: {bundle} is missing, which {shipped / 'tuccl.env'} names; `tuccl ship` there "
        "again, or name another directory\n"
    )


@pytest.mark.long
def test_another_ranks_table_and_no_gpus_are_one_line(
    stand_ins: StandIns, bench: BenchOf, tmp_path: Path
) -> None:
    shipped = ship_entries(tmp_path / "shipped", stand_ins, all_gather_entry(8, size_bytes=SIZE))
    many = bench(shipped, STAND_IN_GPUS="3")
    assert many.returncode == 2
    assert "has no entries for 3 ranks on 1 node(s)" in many.stderr
    none = bench(shipped, STAND_IN_GPUS="0")
    assert none.returncode == 3
    assert "visible here: 0 " in none.stderr


@pytest.mark.slow
def test_the_keys_of_a_workload_are_timed_and_its_step_told(
    bench: BenchOf, place: Callable[..., Path], tmp_path: Path
) -> None:
    calls = (
        call(Collective.ALL_GATHER, SIZE, 2.0, ranks=2, graph=False),
        call(Collective.ALL_REDUCE, 4096, 1.0, ranks=3),
    )
    job = written(tmp_path / "job.json", workload(*calls))
    words = ("--workload", job, "--rounds", "2")
    done = bench(place("shipped", 8), *words, "--json", **STOCK_IS_SLOW)
    assert done.returncode == 0, done.stderr
    assert "not tuned: all_reduce of 3 ranks on 1 node(s), 1 calls a step: " in done.stderr
    document = check("bench", done.stdout)
    assert document["graphs"] is False, "as the workload's calls are made"
    (table,) = document["tables"]
    (key,), step = table["keys"], table["step"]
    assert (key["operation"], key["size_bytes"]) == ("all_gather", SIZE)
    assert step["stock_us"] == pytest.approx([2 * time for time in key["stock_rounds_us"]])
    assert step["gain"]["ratio"] == pytest.approx(key["gain"]["ratio"])
    assert step["predicted"]["ratio"] == pytest.approx(1.5)


@pytest.mark.slow
def test_an_upgrade_that_chooses_better_takes_the_worth_of_an_entry(
    bench: BenchOf, stand_ins: StandIns, tmp_path: Path
) -> None:
    # The old release takes one channel by itself, the new one many, as the table does.
    old = build_release(tmp_path / "old", 22809, own_channels=1)
    new = build_release(tmp_path / "new", 22903)
    shipped = ship_entries(tmp_path / "shipped", stand_ins, all_gather_entry(8, size_bytes=65536))
    words = (shipped, "--rounds", "4", "--nccl", new, "--plain", "--json")
    done = bench(*words, TUCCL_NCCL_LIBRARY=str(old), STAND_IN_SLOW_MS="20")
    document = check("bench-upgrade", done.stdout)
    assert (document["old"]["version"], document["new"]["version"]) == ("2.28.9", "2.29.3")
    (key,) = document["keys"]
    assert key["old_gain"]["ratio"] > 1.5
    # Under the new release both are as fast, so that noise chooses among these.
    assert key["effect"] in {"no_gain", "slower_than_stock", "less_gain"}
    assert done.returncode == (0 if key["effect"] == "less_gain" else 1), done.stderr
    assert "stock NCCL and the table, each under NCCL 2.28.9 and 2.29.3, in turn" in done.stderr


def test_an_nccl_of_the_same_release_or_alone_is_benched_by_itself(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = build_release(tmp_path / "same", 22809)
    monkeypatch.setenv("TUCCL_NCCL_LIBRARY", str(stand_ins.nccl))
    wanted = request_of(BenchOptions(nccl=same))
    assert wanted.upgrade is None
    assert wanted.environment["TUCCL_NCCL_LIBRARY"] == str(same)
    monkeypatch.setenv("TUCCL_NCCL_LIBRARY", str(tmp_path / "none" / "libnccl.so.2"))
    newer = build_release(tmp_path / "newer", 22903)
    wanted = request_of(BenchOptions(nccl=newer))
    assert wanted.upgrade is None
    monkeypatch.setenv("TUCCL_NCCL_LIBRARY", str(same))
    found = request_of(BenchOptions(nccl=newer)).upgrade
    assert found is not None
    assert (found.old.version_text, found.new.version_text) == ("2.28.9", "2.29.3")


@pytest.mark.long
def test_an_upgrade_that_cannot_be_loaded_or_takes_no_plugin_is_one_line(
    run_inside: Run, stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_NCCL_LIBRARY", str(stand_ins.nccl))
    (tmp_path / "libnccl.so.2").write_text("no library")
    done = run_inside("bench", "a", "--nccl", "libnccl.so.2")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "libnccl.so.2 is not an NCCL that can be loaded" in done.stderr
    ancient = build_release(tmp_path / "ancient", 21903)
    done = run_inside("bench", "a", "--nccl", ancient)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "is NCCL 2.19.3, whose tuner ABI the plugin does not speak" in done.stderr
    newer = build_release(tmp_path / "newer", 22903)
    done = run_inside("bench", "a", "b", "--nccl", newer)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is NCCL 2.29.3, jobs here load 2.28.9: name one table" in done.stderr


@pytest.mark.long
def test_an_upgrade_that_does_not_load_the_plugin_is_one_line(
    bench: BenchOf, place: Callable[..., Path], tmp_path: Path
) -> None:
    new = build_release(tmp_path / "new", 22703)
    done = bench(place("shipped", 8), *WORDS, "--nccl", new, "--plain")
    assert (done.returncode, done.stdout) == (3, "")
    said = done.stderr.splitlines()[-1]
    assert "shipped under NCCL 2.27.3: the job does not start: " in said
    assert "NCCL 2.27.3 did not load the tuner plugin" in said


@pytest.mark.long
def test_a_tuners_file_is_compared_with_stock_nccl_and_the_table(
    bench: BenchOf, place: Callable[..., Path], tmp_path: Path
) -> None:
    # The table takes eight channels; the file one, on which a call is far slower, for graphs.
    file = tmp_path / "site.csv"
    file.write_text(
        "allgather,0,1048576,ring,ll,8,-1,-1\n"
        "allgather,0,-1,ring,simple,8,1,2,1,0\n"
        "allgather,0,-1,ring,simple,1,1,2,1,1\n"
    )
    shipped = place("shipped", 8, 1.0)
    words = ("--baseline", file, "--rounds", "2", "--sizes", "1088K")
    done = bench(shipped, *words, "--json", STAND_IN_SLOW_MS="5", STAND_IN_COUNTS_TIME="1")
    document = check("bench", done.stdout)
    table, own = document["tables"]
    assert (own["place"], own["is_baseline"], table["is_baseline"]) == (str(file), True, False)
    (key,) = own["keys"]
    assert (key["runner"], key["runs"], key["promised"]) == ("plugin", "ring Simple ch1", None)
    assert key["gain"]["ratio"] < 0.67
    assert document["comparison"]["keys"][0]["gain"]["ratio"] < 0.67
    assert (done.returncode, key["finding"]) == (0, "slower_than_stock"), "a file's loss is none"
    assert "1 key, 2 rounds of new processes for stock NCCL, the table and site.csv in turn" in (
        done.stderr
    )
    assert "note: site.csv has choices by regBuff: those for 1 are taken, which is what NC" in (
        done.stderr
    )
