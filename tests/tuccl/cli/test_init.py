"""`tuccl init` and its neighbours, end to end, as installed."""

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypedDict, Unpack

import pandas as pd
import pytest

from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.files.read import read_topology
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.synthesizer.programs.phased_schedules import is_uniform
from tests.tuccl.conftest import SMALL_RUN, TINY_RUN, Run, TunedWorkspace
from tests.tuccl.schedules.test_own_schedules import IN_THE_LANGUAGE
from tuccl.cli.init import OutputOptions
from tuccl.options.machine import load_machine
from tuccl.options.run_options import RunOptions
from tuccl.reports.tuning_result import finished, read_table
from tuccl.tuning.settings import make_settings
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long


def test_one_command_leaves_table_bundle_and_everything_on_the_way(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    weighed = ("--weights", "all_reduce=2")
    done = run_tuccl("init", "--topology", h200, *SMALL_RUN, *weighed, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: tuccl ship DIR, ")
    document = json.loads(done.stdout)
    assert document["schema_version"] == 13
    assert document["weights"] == {"all_reduce": 2.0}
    assert len(document["keys"]) == 6
    assert document["entries"], "nothing was faster than the default"
    root = Workspace(tmp_path / "tuccl-workspace").current().root
    frame = pd.read_parquet(root / "table.parquet")
    assert len(frame) == len(document["entries"])
    bundle = read_bundle((root / "bundle.tuccl").read_bytes(), "bundle")
    for entry in document["entries"]:
        operation = Collective.named(entry["key"]["operation"])
        found = bundle.lookup(operation, entry["tuned_bytes"], Shape(4, 1, 4))
        assert found is not None
    for schedule in (root / "schedules").glob("*/*.xml"):
        verdict = run_tuccl("verify", schedule)
        assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_alltoall_gets_entries_of_schedules_alone(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    small = ("--operations", "alltoall", "--min-size", "4K", "--max-size", "1M", "--step", "16")
    done = run_tuccl("init", "--topology", h200, *small, "--json")
    assert done.returncode == 0, done.stderr
    entries = json.loads(done.stdout)["entries"]
    assert entries
    root = Workspace(tmp_path / "tuccl-workspace").current().root
    bundle = read_bundle((root / "bundle.tuccl").read_bytes(), "bundle")
    for entry in entries:
        found = bundle.lookup(Collective.ALLTOALL, entry["tuned_bytes"], Shape(4, 1, 4))
        assert found is not None
        assert found.builtin is None
        assert found.schedule is not None
    asked = run_tuccl("explain", "alltoall", "4K")
    assert asked.returncode == 1, asked.stderr
    first, *rest = asked.stdout.splitlines()
    assert first == "alltoall of 4K, 4 ranks on 1 node(s): NCCL's own choice"
    assert any("not run by a job here: " in line for line in rest)


@pytest.mark.slow
def test_what_a_record_holds_of_alltoall_is_left_out(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    both = ("--operations", "alltoall,all_gather", "--min-size", "4K", "--max-size", "64K")
    made = run_tuccl("init", "--topology", h200, *both, "--step", "16", "--record", "r.parquet")
    assert made.returncode == 0, made.stderr
    tuned = run_tuccl("tune", "--records", "r.parquet", "--workspace", "again", "--json")
    assert tuned.returncode == 0, tuned.stderr
    assert {key["operation"] for key in json.loads(tuned.stdout)["keys"]} == {"all_gather"}
    named = run_tuccl("tune", "--records", "r.parquet", "--operations", "alltoall")
    assert (named.returncode, "asks no tuner" in named.stderr) == (2, True)
    fit = run_tuccl("calibrate", "r.parquet", "--topology", h200, "-o", "model.json")
    assert "times of all_gather" in fit.stdout + fit.stderr
    assert "alltoall" not in fit.stdout + fit.stderr


def test_run_again_there_is_nothing_to_do(
    run_tuccl: Run, h200: Path, tuned: TunedWorkspace
) -> None:
    before = {path: path.stat().st_mtime_ns for path in tuned.root.rglob("*")}
    again = run_tuccl("init", "--topology", h200, *SMALL_RUN)
    assert again.returncode == 0
    assert "nothing to do" in again.stderr
    assert tuned.stdout == again.stdout
    assert before == {path: path.stat().st_mtime_ns for path in before}


def table_without_dates(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path / "table.parquet").drop(columns="tuned_at")


def wait_until_written(log: Path, size_bytes: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and (not log.exists() or log.stat().st_size < size_bytes):
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_it_continues_and_ends_with_the_same_table(
    tuccl_command: str,
    h200: Path,
    tuned: TunedWorkspace,
    tmp_path: Path,
    seed: int,
) -> None:
    rng = random.Random(seed)
    command = [tuccl_command, "init", "--topology", str(h200), *SMALL_RUN, "--workspace", "killed"]
    whole_run = Workspace(tuned.root).current()
    killed_run = Workspace(tmp_path / "killed").run(whole_run.root.name)
    log = killed_run.measurements
    finished = b""
    kills = 0
    while True:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if kills < 6:
            left = whole_run.measurements.stat().st_size - len(finished)
            wait_until_written(log, len(finished) + int(rng.uniform(0.0, 0.6) * left), process)
            process.kill()
        _, said = process.communicate()
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, said
            break
        kills += 1
        recorded = log.read_bytes() if log.exists() else b""
        assert recorded.startswith(finished), "a finished measurement was lost"
        finished = recorded[: recorded.rfind(b"\n") + 1]
    assert kills > 0
    assert Workspace(tmp_path / "killed").current().root == killed_run.root
    assert whole_run.bundle.read_bytes() == killed_run.bundle.read_bytes()
    assert whole_run.measurements.read_bytes() == killed_run.measurements.read_bytes()
    pd.testing.assert_frame_equal(
        table_without_dates(whole_run.root), table_without_dates(killed_run.root)
    )
    assert not list(killed_run.root.rglob(".*")), "a killed write left its partial file"


def test_two_runs_in_one_workspace_exclude_each_other(
    tuccl_command: str, run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [tuccl_command, "init", "--topology", str(h200), "--workspace", "shared"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not list((tmp_path / "shared").glob("runs/*/run.json")):
            time.sleep(0.02)
            assert process.poll() is None
        second = run_tuccl("init", "--topology", h200, "--workspace", "shared")
        assert second.returncode == 3
        assert f"in use by process {process.pid}" in second.stderr
        assert_one_line(second.stderr)
    finally:
        process.kill()
        process.wait()


def assert_one_line(stderr: str) -> None:
    errors = [line for line in stderr.splitlines() if line.startswith("tuccl: ")]
    assert len(errors) == 1, stderr
    assert "Traceback" not in stderr


TWO_OF_ONE_NAME = """<system version="1"><cpu numaid="0">
<pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
<pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
</cpu></system>"""
ONE_GPU = """<system version="1"><cpu numaid="0">
<pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
</cpu></system>"""


Document = dict[str, list[dict[str, object]]]


def changed_topology(path: Path, change: Callable[[Document], None]) -> str:
    document = json.loads(topology_to_json(read_topology(path)))
    change(document)
    return json.dumps(document)


def zero_bandwidth(document: Document) -> None:
    document["links"][0]["bandwidth_gb_per_s"] = 0.0


def unreachable(document: Document) -> None:
    lonely = "n0/gpu0"
    document["links"] = [
        link for link in document["links"] if lonely not in {link["src"], link["dst"]}
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        ("not a topology", "does not describe a machine"),
        ("<graphs version='1'/>", "graph"),
        (ONE_GPU, "GPU"),
        (TWO_OF_ONE_NAME, "0000:01:00.0"),
        (zero_bandwidth, "bandwidth"),
        (unreachable, "reach"),
        ('{"schema_version": 99, "devices": [], "links": []}', "99"),
    ],
    ids=["empty", "text", "graph", "one GPU", "two of one name", "zero bandwidth", "unreachable",
         "unknown version"],
)  # fmt: skip
def test_a_machine_that_cannot_serve_is_one_line_and_nothing_is_written(
    run_inside: Run,
    h200: Path,
    tmp_path: Path,
    content: str | Callable[[Document], None],
    said: str,
) -> None:
    text = content if isinstance(content, str) else changed_topology(h200, content)
    path = tmp_path / "machine.txt"
    path.write_text(text)
    done = run_inside("init", "--topology", path)
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert said in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["machine.txt"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--operations", "all_scatter"), "all_scatter"),
        (("--operations", ","), "no operation"),
        (("--operations", "alltoall", "--backend", "nccl"), "asks no tuner"),
        (
            ("--operations", "alltoall", "--topology", "shipped:a100-8gpu-8nic", "--nodes", "2"),
            "alltoall across hosts",
        ),
        (("--min-size", "7Q"), "7Q"),
        (("--min-size", "1G", "--max-size", "1K"), "above"),
        (("--step", "1"), "--step 1"),
        (("--backend", "abacus"), "abacus"),
        (("--nodes", "0"), "--nodes 0"),
        (("--nodes", "2"), "NIC"),
        (("--nodes", "2", "--network-gbps", "-5"), "-5"),
        (("--network-layout", "torus"), "torus"),
        (("--nodes", "2", "--network-gbps", "1e-300"), "1e-300"),
        (("--network-gbps", "200"), "joins --nodes 2 or more"),
        (("--network-latency-us", "1e308"), "1e+308"),
        (("--network-latency-us", "nan"), "nan"),
        (("--min-size", "9" * 5000), "not understood"),
        (("--cycles", "0"), "--cycles 0"),
        (("--nodes", "many"), "--nodes"),
        (("--no-such-option",), "--no-such-option"),
    ],
)
def test_impossible_options_are_one_line_and_nothing_is_written(
    run_inside: Run, h200: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run_inside("init", "--topology", h200, *arguments)
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nics_without_a_speed_name_the_option_that_gives_it(
    run_inside: Run, a100: Path, tmp_path: Path
) -> None:
    machine = tmp_path / "silent.xml"
    # Without ports the file tells of NICs by their class only, as clouds write it.
    machine.write_text(re.sub(r"<nic>.*?</nic>", "", a100.read_text(), flags=re.DOTALL))
    done = run_inside("init", "--topology", machine, "--nodes", "2")
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert "does not state its speed" in done.stderr
    assert "--network-gbps 200" in done.stderr
    assert list(tmp_path.iterdir()) == [machine]


@pytest.mark.parametrize("kind", ["directory", "loop", "device"])
def test_what_is_no_file_is_one_line(run_inside: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "machine.xml"
    if kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to("/dev/zero")
    done = run_inside("init", "--topology", path)
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert "machine.xml" in done.stderr


def test_a_missing_file_is_named(run_inside: Run, tmp_path: Path) -> None:
    done = run_inside("init", "--topology", "nowhere.xml")
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert "nowhere.xml" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_workspace_is_one_line(run_tuccl: Run, h200: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a directory")
    done = run_tuccl("init", "--topology", h200, *SMALL_RUN, "--workspace", "taken/below")
    assert done.returncode == 3
    assert_one_line(done.stderr)
    assert "taken/below" in done.stderr


def test_another_machine_gives_a_run_of_its_own_and_the_old_one_stays(
    run_tuccl: Run, h200: Path, a100: Path, tuned: TunedWorkspace
) -> None:
    workspace = Workspace(tuned.root)
    old = workspace.current()
    bundle = old.bundle.read_bytes()
    assert run_tuccl("init", "--topology", a100, *TINY_RUN).returncode == 0
    assert workspace.current().root != old.root
    assert old.bundle.read_bytes() == bundle
    back = run_tuccl("init", "--topology", h200, *SMALL_RUN)
    assert "nothing to do" in back.stderr
    assert workspace.current().root == old.root


class Changed(TypedDict, total=False):
    network_latency_us: float
    network_gbps: float
    network_layout: str
    racks: str
    seed: int
    cycles: int


@pytest.mark.parametrize(
    "changed",
    [
        {"network_latency_us": 50.0},
        {"network_gbps": 190.0},
        {"network_layout": "fabric"},
        {"racks": "1,1"},
        {"seed": 1},
        {"cycles": 2},
    ],
)
def test_a_changed_option_is_another_run(a100: Path, changed: Changed) -> None:
    def identity(**changed: Unpack[Changed]) -> str:
        options = RunOptions(topology=str(a100), nodes=2, **changed)
        return make_settings(options).identity(load_machine(options))

    assert identity(**changed) != identity()
    assert identity() == identity()


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "damaged"])
def test_lost_and_damaged_files_are_made_again(
    run_tuccl: Run, h200: Path, tuned: TunedWorkspace, is_lost: bool
) -> None:
    run = Workspace(tuned.root).current()
    files = {path: path.read_bytes() for path in (run.report, run.table, run.bundle, run.topology)}
    for path, whole in files.items():
        path.unlink() if is_lost else path.write_bytes(whole[: len(whole) // 2])
        assert finished(run) is None, path.name
        path.write_bytes(whole)
    assert finished(run) is not None
    for path, whole in files.items():
        path.unlink() if is_lost else path.write_bytes(whole[: len(whole) // 2])
    again = run_tuccl("init", "--topology", h200, *SMALL_RUN)
    assert again.returncode == 0, again.stderr
    assert {path: path.read_bytes() for path in files} == files


def test_ctrl_c_is_one_line_and_the_same_command_continues(
    tuccl_command: str, run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [tuccl_command, "init", "--topology", str(h200), *SMALL_RUN],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob("tuccl-workspace/runs/*/run.json")):
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert_one_line(said)
    assert "the same command continues" in said
    assert run_tuccl("init", "--topology", h200, *SMALL_RUN).returncode == 0


@pytest.mark.usefixtures("tuned")
def test_a_reader_that_leaves_early_is_not_a_success_and_not_a_traceback(
    tuccl_command: str, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [tuccl_command, "table"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 3
    assert said == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_directory_without_permission_is_one_line(
    tuccl_command: str, h200: Path, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", tuccl_command, "init", "--topology",
         str(h200), "--workspace", str(closed / "w")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 127 or "setpriv" in done.stderr:
        pytest.skip("setpriv cannot drop capabilities here")
    assert done.returncode == 3
    assert_one_line(done.stderr)
    assert "that you may write" in done.stderr
    assert list(closed.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def test_a_disk_without_room_is_found_out_before_anything_is_made(
    run_tuccl: Run, h200: Path, small_disk: Path
) -> None:
    full = run_tuccl("init", "--topology", h200, *SMALL_RUN, "--workspace", small_disk / "w")
    assert full.returncode == 3
    assert_one_line(full.stderr)
    assert "free some space" in full.stderr
    files = {path.name for path in small_disk.rglob("*") if path.is_file()}
    assert files == {"lock"}


@pytest.mark.slow
def test_a_disk_that_fills_up_is_one_line_and_the_run_continues_with_more_space(
    tuccl_command: str, run_tuccl: Run, h200: Path, small_disk: Path
) -> None:
    resize(small_disk, "16m")
    command = ("init", "--topology", str(h200), *SMALL_RUN, "--workspace", str(small_disk / "w"))
    process = subprocess.Popen([tuccl_command, *command], stderr=subprocess.PIPE, text=True)
    while not list(small_disk.glob("w/runs/*/run.json")):
        assert process.poll() is None
        time.sleep(0.01)
    with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    _, said = process.communicate(timeout=100)
    assert process.returncode == 3
    assert_one_line(said)
    assert "free some space" in said
    (small_disk / "filler").unlink()
    done = run_tuccl(*command)
    assert done.returncode == 0, done.stderr


ONE_SIZE = (
    "--operations", "all_reduce", "--min-size", "64K", "--max-size", "64K", "--shapes", "whole",
)  # fmt: skip
BEYOND = "no release of TuCCL runs schedules of this kind across hosts"
TO_BE_MEASURED = "`tuccl init --backend nccl,executor` on the GPUs does it"


@pytest.mark.parametrize("nodes", ["1", "2", pytest.param("16", marks=pytest.mark.slow)])
def test_modelled_schedules_stand_apart_and_are_those_that_an_executor_runs(
    run_tuccl: Run, a100: Path, nodes: str, tmp_path: Path
) -> None:
    done = run_tuccl("init", "--topology", a100, "--nodes", nodes, *ONE_SIZE)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert told.index("A job here is expected to be") < told.index("Not included")
    assert TO_BE_MEASURED in told
    assert BEYOND not in told
    run = Workspace(tmp_path / "tuccl-workspace").current()
    stored = read_bundle(run.bundle.read_bytes(), "bundle").schedules
    assert {is_uniform(each.program) for each in stored} == {nodes != "1"}
    shipped = run_tuccl("ship", "shipped")
    assert shipped.returncode == 0, shipped.stderr
    written = list((tmp_path / "shipped" / "schedules").glob("*.xml"))
    of_one_node = len(stored) if nodes == "1" else 0
    assert len(written) == of_one_node, "across nodes no file has the steps of all ranks"
    assert "not run by a job here: " in run_tuccl("explain", "all_reduce", "64K").stdout


def test_nodes_of_different_sizes_are_tuned_without_schedules(
    run_tuccl: Run, tmp_path: Path
) -> None:
    unequal = cluster(2, 2, 1, absent=frozenset({"n1/gpu1"}))
    (tmp_path / "unequal.json").write_text(topology_to_json(unequal))
    done = run_tuccl("init", "--topology", "unequal.json", *ONE_SIZE)
    assert done.returncode == 0, done.stderr
    assert "3 GPUs on 2 node(s)" in done.stderr
    assert "A job here is expected to be" in done.stdout
    assert "Not included" not in done.stdout


def test_an_own_schedule_with_steps_across_hosts_is_told_apart(
    run_tuccl: Run, tmp_path: Path
) -> None:
    (tmp_path / "pairs.json").write_text(topology_to_json(cluster(2, 2, 2)))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "everyone.py").write_text(IN_THE_LANGUAGE)
    words = ("--operations", "all_gather", "--min-size", "1K", "--max-size", "1K")
    own = ("--shapes", "whole", "--schedules", "own")
    done = run_tuccl("init", "--topology", "pairs.json", *words, *own)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "A job here is expected to be 1.0" in told
    run = Workspace(tmp_path / "tuccl-workspace").current()
    entries = read_table(run).entries
    searched = json.loads(run.report.read_text())["schedules"]
    assert {row["name"] for row in searched.values()} > {"everyone", "all_gather_rails_first"}
    won = {searched[entry.schedule.schedule]["name"] for entry in entries if entry.schedule}
    assert (BEYOND in told) is ("everyone" in won)


def test_a_run_ends_with_the_next_command() -> None:
    assert OutputOptions().ship_command == "tuccl ship DIR"
    elsewhere = OutputOptions(workspace=Path("a b/w"))
    assert elsewhere.ship_command == "tuccl ship DIR --workspace 'a b/w'"
