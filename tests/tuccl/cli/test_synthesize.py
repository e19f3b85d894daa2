"""`tuccl synthesize` as a user runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from probes.files.bench_topologies import read_bench_topology
from sketches.candidates import sketch_candidates
from sketches.sketch_json import sketch_to_json
from synthesizer.formats.msccl_xml import read_msccl_xml
from synthesizer.prove.verifier import verify
from tests.sketches.taccl.files import RELAYED, SWITCHED, relaying, text
from tests.tuccl.conftest import Run
from tuccl.cli import app
from tuccl.errors import UsageError
from tuccl.options.machine import load_machine
from tuccl.options.machine_argument import absolute_machine_argument, read_machine_argument
from tuccl.options.machine_options import MachineOptions
from tuccl.schedules.best_schedule import best_schedule
from tuccl.schedules.synthesis_report import Synthesis

pytestmark = pytest.mark.long

Link = dict[str, Any]


def both_ways(a: str, b: str, gb_per_s: float, latency_us: float) -> list[Link]:
    figures = {"bandwidth_gb_per_s": gb_per_s, "latency_us": latency_us}
    return [{"src": a, "dst": b} | figures, {"src": b, "dst": a} | figures]


def entry(nodes: int, *, gb_per_s: float = 100.0, networked: bool = True) -> dict[str, Any]:
    """Nodes of four GPUs behind a switch, and one NIC of 10 GB/s for all of them."""
    links = []
    for node in range(nodes):
        for gpu in range(4):
            links += both_ways(f"n{node}g{gpu}", f"n{node}nvs", gb_per_s, 0.5)
            links += both_ways(f"n{node}g{gpu}", f"n{node}nic0", 20.0, 0.0)
        if networked:
            links += both_ways(f"n{node}nic0", "fabric", 10.0, 1.0)
    gpus = [f"n{node}g{gpu}" for node in range(nodes) for gpu in range(4)]
    return {"gpus": gpus, "links": links, "allgather_bound_gb_per_s": 133.33}


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    """A file of benchmark topologies: one node, two, two without a network, and a wrong one."""
    path = tmp_path / "machines.json"
    entries = {"one": entry(1), "two": entry(2), "apart": entry(2, networked=False)}
    path.write_text(json.dumps(entries))
    (tmp_path / "broken.json").write_text(json.dumps({"zero": entry(1, gb_per_s=0.0)}))
    return path


def test_the_result_is_written_and_told_in_json(run_inside: Run, machines: Path) -> None:
    schedule = machines.with_name("out") / "gather.xml"
    done = run_inside(
        "synthesize", "--topology", f"{machines}#one", "--operation", "all_gather", "--size", "4M",
        "--time-limit", "5s", "-o", schedule, "--json",
    )  # fmt: skip
    assert done.returncode == 0
    found = json.loads(done.stdout)
    # Three of four blocks enter each GPU at 100 GB/s, half an alpha on either side of the switch.
    assert found["bound_gb_per_s"] == pytest.approx(400 / 3)
    assert found["latency_bound_us"] == pytest.approx(1.0)
    # 4 MiB at that speed after the latency.
    assert found["time_bound_us"] == pytest.approx(32.457, abs=1e-3)
    assert 32.457 < found["time_us"] < 33
    assert found["algbw_gb_per_s"] == pytest.approx((4 << 20) * 1e-3 / found["time_us"])
    assert found["bandwidth_ratio"] == pytest.approx(found["algbw_gb_per_s"] / (400 / 3))
    assert found["ratio"] == pytest.approx(found["time_bound_us"] / found["time_us"])
    assert (found["ranks"], found["nodes"], found["size_bytes"]) == (4, 1, 4 << 20)
    assert found["sketch"]["name"] == "direct"
    assert found["across_hosts"] is None
    assert found["sketch"]["why"]
    assert set(found["solver"]) == {"status", "gap", "fallback"}
    assert {"reading", "sketching", "routing", "verifying", "bounding"} <= found["seconds"].keys()
    times = [tried["time_us"] for tried in found["tried"]]
    assert times == sorted(times)
    assert {tried["origin"] for tried in found["tried"]} == {"expert", "synthesized"}
    assert (found["file"], found["format"]) == (str(schedule), "msccl")
    algorithm = read_msccl_xml(schedule.read_text(), "gather.xml")
    assert verify(algorithm).proved
    assert algorithm.name == found["algorithm"]
    assert algorithm.step_count == found["steps"]
    assert algorithm.chunks_per_loop == found["chunks"]


def test_people_read_a_few_lines_and_get_the_schedule_where_they_want(
    run_inside: Run, machines: Path
) -> None:
    task = ("--operation", "AllReduce", "--size", "1M", "--time-limit", "1s")
    shown = run_inside("synthesize", "--topology", f"{machines}#two", *task)
    assert shown.returncode == 0
    first, *others = shown.stdout.splitlines()
    assert first.startswith("all_reduce of 1M on two, 8 GPUs on 2 node(s): all_reduce_")
    assert any(line.startswith("  bounds of the machine 2.00 us and ") for line in others)
    assert any(line.startswith("  beside it: ") for line in others)
    assert any(line.startswith("  across hosts, 2 nodes of 4 ranks: ") for line in others)
    file = ("-o", "-", "--format", "msccl-microsoft")
    printed = run_inside("synthesize", "--topology", f"{machines}#one", *task, *file)
    assert printed.stdout.startswith('<algo name="all_reduce_')
    assert verify(read_msccl_xml(printed.stdout, "stdout")).proved


def test_a_sketch_of_ours_is_used(run_inside: Run, machines: Path) -> None:
    topology = read_bench_topology(machines, "two").topology
    relay = next(sketch for sketch in sketch_candidates(topology) if sketch.name == "relay")
    file = machines.with_name("relay.json")
    file.write_text(sketch_to_json(relay))
    done = run_inside(
        "synthesize", "--topology", f"{machines}#two", "--operation", "broadcast", "--size", "1M",
        "--root", "5", "--sketch", file, "--json",
    )  # fmt: skip
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["sketch"]["name"] == "relay"
    assert {tried["sketch"] for tried in found["tried"]} == {"relay"}
    assert found["file"] is None
    assert 0 < found["ratio"] <= 1
    refused = run_inside(
        "synthesize", "--topology", f"{machines}#one", "--operation", "broadcast", "--size", "1M",
        "--sketch", file,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "a sketch for 8 ranks on 2 node(s), but topology one has 4 GPUs on 1" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_files_of_taccl_are_used_as_they_are(run_inside: Run, tmp_path: Path) -> None:
    (tmp_path / "topo.json").write_text(text(SWITCHED))
    (tmp_path / "sk.json").write_text(text(RELAYED, **relaying(enforce_ordering=True)))
    done = run_inside(
        "synthesize", "--topology", "topo.json", "--sketch", "sk.json", "--operation", "all_gather",
        "--size", "8M", "--time-limit", "3s", "--json",
    )  # fmt: skip
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert (found["topology"], found["ranks"], found["nodes"]) == ("Box_1MB", 8, 2)
    assert found["sketch"] == {"name": "sk", "why": "TACCL's sketch sk.json", "sizes": None}
    # Half of the data enters a node through two NICs of 16.384 GB/s.
    assert found["bound_gb_per_s"] == pytest.approx(65.536)
    assert found["ratio"] > 0.9
    assert any(note.startswith("assumed: betas are per chunk of") for note in found["notes"])
    assert any(note.startswith("enforce_ordering is passed over") for note in found["notes"])


def test_figures_of_a_sketch_that_beat_the_machine_are_reported(
    run_inside: Run, machines: Path
) -> None:
    (sketch,) = sketch_candidates(read_bench_topology(machines, "one").topology)
    wrong = sketch_to_json(sketch).replace("100.0", "1000.0")
    file = machines.with_name("fast.json")
    file.write_text(wrong)
    done = run_inside(
        "synthesize", "--topology", f"{machines}#one", "--operation", "all_gather", "--size", "64M",
        "--sketch", file,
    )  # fmt: skip
    assert done.returncode == 0
    assert "note: faster than this machine can be: sketch direct has" in done.stderr


def test_the_fastest_schedule_that_the_format_can_tell_is_written(
    run_inside: Run, machines: Path
) -> None:
    graph = machines.with_name("rings.graph.xml")
    done = run_inside(
        "synthesize", "--topology", f"{machines}#one", "--operation", "all_reduce", "--size", "64M",
        "-o", graph, "--json",
    )  # fmt: skip
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["format"] == "nccl-graph"
    assert found["algorithm"].startswith("all_reduce_ring")
    assert any(note.startswith("left out on sketch direct: ") for note in found["notes"])
    assert graph.read_text().startswith("<graphs ")
    assert graph.read_text().count("<gpu ") % 4 == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("#apart", "--size", "1M"), "topology apart: no path from rank 0 (n0g0) to rank 4 (n1g0)"),
        (("#one", "--size", "3"), "3 bytes are less than one byte for each of 4 chunks"),
        (("#one", "--size", "1M", "--sketch", "cut.json"), "cut.json: internode_sketch."),
        (("#one", "--size", "1M", "--sketch", "isle.json"), "no path from rank 0 to rank 3"),
        (("#one", "--size", "1M", "--json", "-o", "-"), "both want standard output"),
        (("#one", "--size", "1M", "-o", "x", "--format", "pdf"), "use one of msccl, msccl-"),
        (("#one", "--size", "1M", "-o", "x.yaml"), "x.yaml: no format for this name"),
        (("#one", "--size", "1M", "-o", "."), "--output . is a directory"),
        (("#one", "--size", "1M", "-o", "{machines}"), "is read by this command"),
        (("#one", "--size", "1M", "--sketch", "cut.json", "-o", "cut.json"), "is read by"),
        (("#one", "--size", "1M", "--root", "1"), "--root 1: all_gather has no root"),
        (("", "--size", "1M"), "name one of them as"),
    ],
)
def test_bad_input_is_one_clear_line(
    machines: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    which, *others = (word.format(machines=machines) for word in arguments)
    monkeypatch.chdir(machines.parent)
    cut = relaying(internode_conn={"7": [0]})
    machines.with_name("cut.json").write_text(text(RELAYED, **cut))
    (sketch,) = sketch_candidates(read_bench_topology(machines, "one").topology)
    isle = json.loads(sketch_to_json(sketch))
    isle["edges"] = [edge for edge in isle["edges"] if 3 not in (edge["src"], edge["dst"])]
    machines.with_name("isle.json").write_text(json.dumps(isle | {"symmetries": []}))
    if "cut.json" in others:
        which = "#two"
    command = [
        "tuccl",
        "synthesize",
        "--topology",
        f"{machines}{which}",
        "--operation",
        "all_gather",
    ]
    monkeypatch.setattr(sys, "argv", [*command, *others])
    with pytest.raises(SystemExit) as left:
        app.main()
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def synthesized(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `tuccl synthesize` in this process."""
    monkeypatch.setattr(sys, "argv", ["tuccl", "synthesize", *arguments])
    with pytest.raises(SystemExit) as left:
        app.main()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_one_node_is_tried_as_many(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = ("--topology", "shipped:a100-8gpu-8nic", "--operation", "all_gather", "--size", "16K")
    network = ("--network-gbps", "80", "--network-latency-us", "5", "--network-layout", "fabric")
    assert synthesized(monkeypatch, *machine, "--nodes", "2", *network, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["nodes"]) == (16, 2)
    # Half of the data enters a node through eight NICs of 10 GB/s.
    assert found["bound_gb_per_s"] == pytest.approx(160.0)
    assert found["latency_bound_us"] > 5
    assert synthesized(monkeypatch, *machine, "--nodes", "0") == 2
    assert "--nodes 0 is out of range: use 1 to 1024" in capsys.readouterr().err


def test_a_format_without_words_for_the_network_is_refused_before_anything_is_solved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tuccl.schedules.best_schedule.sketch_candidates", None)
    machine = ("--topology", "shipped:a100-8gpu-8nic", "--operation", "all_gather", "--size", "16K")
    network = ("--nodes", "2", "--network-gbps", "80", "--network-layout", "fabric")
    plan = tmp_path / "plan.json"
    assert synthesized(monkeypatch, *machine, *network, "-o", str(plan)) == 2
    error = capsys.readouterr().err
    assert "format mscclpp knows no messages between nodes" in error
    assert "take --format msccl, msccl-microsoft, nccl-graph, or one node" in error
    assert not plan.exists()


def test_nodes_that_differ_get_a_graph_file_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine = ("--topology", "shipped:a100-8gpu-8nic", "--nodes", "2")
    topology = load_machine(MachineOptions("shipped:a100-8gpu-8nic", nodes=2))
    sketch = next(each for each in sketch_candidates(topology) if each.name == "pruned")
    (tmp_path / "sketch.json").write_text(sketch_to_json(sketch))
    task = ("--sketch", str(tmp_path / "sketch.json"), "--operation", "all_gather")
    wanted = (
        *machine,
        *task,
        "--size",
        "64M",
        "--format",
        "nccl-graph",
        "--jobs",
        "1",
        "--time-limit",
    )
    graph = tmp_path / "rings.graph.xml"
    kept: list[Synthesis] = []

    def made_once(*arguments: Any) -> Synthesis:
        if not kept:
            kept.append(best_schedule(*arguments))
        return kept[0]

    monkeypatch.setattr("tuccl.schedules.best_schedule.best_schedule", made_once)
    assert synthesized(monkeypatch, *wanted, "1s", "-o", str(graph), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    files = [tmp_path / f"rings.node{node}.graph.xml" for node in range(2)]
    assert (found["file"], found["files"]) == (None, [str(file) for file in files])
    texts = [file.read_text() for file in files]
    assert texts[0] != texts[1]
    assert not graph.exists()
    assert synthesized(monkeypatch, *wanted, "1s", "-o", "-") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "tuccl: nccl-graph takes a file for each of 2 nodes: give -o FILE\n"


def test_machines_by_every_kind_of_name(machines: Path, tmp_path: Path) -> None:
    assert read_machine_argument("shipped:h200-4gpu").node_count == 1
    assert read_machine_argument(f"{machines}#two").node_count == 2
    taccl = tmp_path / "topo.json"
    taccl.write_text("\ufeff" + text(SWITCHED))
    assert read_machine_argument(str(taccl)).node_count == 1
    assert read_machine_argument(str(taccl), 3).node_count == 3
    with pytest.raises(UsageError, match="a file of many machines; name one of them as"):
        read_machine_argument(str(machines))
    zero = machines.with_name("broken.json")
    with pytest.raises(Exception, match=r"broken.json: zero.links.0.bandwidth_gb_per_s: Input"):
        read_machine_argument(f"{zero}#zero")


def test_names_that_hold_in_any_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_machine_argument("shipped:h200-4gpu") == "shipped:h200-4gpu"
    assert absolute_machine_argument("a/b.xml") == str(tmp_path / "a" / "b.xml")
    assert absolute_machine_argument("many.json#one") == f"{tmp_path / 'many.json'}#one"
