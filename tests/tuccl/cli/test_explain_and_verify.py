"""`tuccl explain`, `table` and `verify` as people and machines read them."""

import json
from pathlib import Path

import pytest

from probes.topology.json_form import topology_to_json
from synthesizer.experts.ring import ring_all_reduce
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.lower.lowering import lower
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.long


@pytest.mark.usefixtures("tuned")
def test_explain_names_what_a_job_runs_then_what_stands_apart(run_tuccl: Run) -> None:
    done = run_tuccl("explain", "all_gather", "4M", "--json")
    found = json.loads(done.stdout)
    assert found["entry"]["min_bytes"] <= 4 << 20 <= found["entry"]["max_bytes"]
    assert found["decision"]["size_bytes"] == 4 << 20
    assert found["times"] == "modelled"
    assert found["apart"]["reason"] == "not_measured"
    applies = found["runner"] in {"plugin", "executor"}
    text = run_tuccl("explain", "AllGather", "4M")
    assert text.returncode == done.returncode == (0 if applies else 1)
    first = text.stdout.splitlines()[0]
    assert first.endswith(found["runs"])
    assert found["apart"]["schedule"] not in first
    assert f"  not run by a job here: {found['apart']['schedule']}" in text.stdout
    assert "expected by the model at 4M: stock NCCL" in text.stdout
    assert "measured at" not in text.stdout
    assert " %), against NCCL under the process profile, modelled" in text.stdout
    assert "schedule:" not in text.stdout, "schedules are named, not hashed"


@pytest.mark.usefixtures("tuned")
def test_explain_beyond_what_was_tuned_says_that_nccl_chooses_under_the_profile(
    run_tuccl: Run,
) -> None:
    done = run_tuccl("explain", "all_reduce", "1G")
    assert done.returncode == 1
    profile = "NCCL chooses under the process profile NCCL_"
    assert f"no entry, {profile}" in done.stdout
    assert "which was not measured here" in done.stdout
    assert "this size was not tuned" in done.stdout
    missing = run_tuccl("explain", "broadcast", "1M")
    assert missing.returncode == 2
    assert "not tuned" in missing.stderr
    other = run_tuccl("explain", "all_reduce", "1M", "--ranks", "2")
    assert other.returncode == 2
    assert all(profile in refused.stderr for refused in (missing, other))


@pytest.mark.parametrize("arguments", [("explain", "all_sum", "1M"), ("explain", "reduce", "x")])
def test_unknown_operation_and_size_are_one_line(run_inside: Run, arguments: list[str]) -> None:
    done = run_inside(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("tuned")
def test_the_table_shows_every_key_against_the_default(run_tuccl: Run) -> None:
    shown = run_tuccl("table").stdout
    assert shown.count("all_reduce") >= 3
    assert "geometric mean" in shown
    assert "process profile" in shown
    document = json.loads(run_tuccl("table", "--json").stdout)
    assert {key["operation"] for key in document["keys"]} == {"all_reduce", "all_gather"}
    assert document["caveats"][0].startswith("Computed by a model")
    assert f"{document['speedup']:.3f} times as fast" in shown
    assert f"would make it {document['speedup_with_all_schedules']:.3f}" in shown
    assert document["speedup"] < document["speedup_with_all_schedules"]


@requires_shared_data
@pytest.mark.parametrize(
    ("file", "code", "said"),
    [
        ("azure-ndv4/r48ll.xml", 0, "proved"),
        ("teccl-amd_32.xml", 0, "proved"),
        ("msccl-tools/experiments_ar_multi_ar_1.xml", 1, "connection"),
        ("msccl-tools/experiments_alltonext_4in.xml", 1, "custom"),
    ],
)
def test_verify_proves_or_names_the_defect(run_tuccl: Run, file: str, code: int, said: str) -> None:
    path = SHARED_DATA / "msccl_xml" / file
    done = run_tuccl("verify", path)
    assert done.returncode == code
    assert said in done.stdout
    document = json.loads(run_tuccl("verify", path, "--json").stdout)
    assert document["proved"] is (code == 0)


@requires_shared_data
def test_verify_sees_one_dropped_step(run_tuccl: Run, tmp_path: Path) -> None:
    text = (SHARED_DATA / "msccl_xml" / "azure-ndv4" / "r48ll.xml").read_text()
    assert read_msccl_xml(text, "r48ll").step_count == 960
    lines = text.splitlines()
    dropped = next(i for i, line in enumerate(lines) if 'type="rrs"' in line)
    broken = tmp_path / "broken.xml"
    lines[dropped] = lines[dropped].replace('type="rrs"', 'type="rcs"')
    broken.write_text("\n".join(lines))
    done = run_tuccl("verify", broken)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_verify_cuts_a_schedule_into_rounds_for_the_nodes_given(
    run_tuccl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "ring.xml"
    path.write_text(write_msccl_xml(lower(ring_all_reduce([(0, 1, 2, 3)]), "ring")))
    done = run_tuccl("verify", path, "--nodes", "2+2")
    assert done.returncode == 0
    assert "across hosts, 2 nodes of 2 ranks: 3 rounds on the network" in done.stdout
    document = json.loads(run_tuccl("verify", path, "--nodes", "3+1", "--json").stdout)
    assert document["proved"]
    assert len(document["across_hosts"]["messages"]) == 4
    refused = run_tuccl("verify", path, "--nodes", "2+1")
    assert refused.returncode == 1
    assert "cannot be cut into rounds: nodes of 2 + 1 ranks do not hold" in refused.stdout
    one = run_tuccl("verify", path, "--nodes", "4")
    assert (one.returncode, "across hosts" in one.stdout) == (0, False)
    for wrong in ("0+4", "2+", "2+x", "2+-2", "2+99999999999"):
        done = run_tuccl("verify", path, f"--nodes={wrong}")
        assert done.returncode == 2
        assert f"--nodes {wrong}: give the ranks of each node" in done.stderr


def test_verify_proves_programs_and_calls_their_functions_with_the_nodes(
    run_tuccl: Run, tmp_path: Path
) -> None:
    done = run_tuccl("verify", ROOT / "examples" / "schedules" / "all_to_next.py", "--nodes", "2+2")
    assert done.returncode == 0
    assert done.stdout.endswith("all_to_next, custom on 4 ranks: proved\n")
    unknown = run_tuccl("verify", ROOT / "examples" / "schedules" / "all_to_next.py")
    assert unknown.returncode == 2
    assert "the number of nodes and of GPUs on each, which are not known here" in unknown.stderr
    path = tmp_path / "pair.py"
    path.write_text(
        "from lookup_tables.collective import Collective\n"
        "from synthesizer.dsl import INPUT, OUTPUT, Schedule\n"
        "schedule = Schedule(Collective.ALL_GATHER, 2)\n"
        "for rank in range(2):\n"
        "    for peer in range(2):\n"
        "        schedule.chunk(rank, INPUT, 0).copy(peer, OUTPUT, rank)\n"
    )
    done = run_tuccl("verify", path, "--nodes", "1+1")
    assert done.returncode == 0
    assert "pair, all_gather on 2 ranks: proved" in done.stdout
    assert "1 round on the network" in done.stdout


def test_verify_simulates_a_schedule_on_a_machine(run_tuccl: Run, tmp_path: Path) -> None:
    ring = tmp_path / "ring.xml"
    ring.write_text(write_msccl_xml(lower(ring_all_reduce([tuple(range(8))]), "ring")))
    on_host = ("--topology", "shipped:a100-8gpu-8nic", "--size", "8,1G")
    document = json.loads(run_tuccl("verify", ring, *on_host, "--json").stdout)
    least, most = document["simulated"]
    # 14 steps of a byte take 14 times the 0.7 us of an NVLink.
    assert least["time_us"] == pytest.approx(14 * 0.7, rel=0.01)
    # A slot of 512 KiB takes 1.748 us at 300 GB/s, and each step waits 0.7 us for the one before.
    assert most["busbw_gb_per_s"] == pytest.approx(300 * 1.748 / 2.448, rel=0.001)
    assert most["bound_us"] / most["time_us"] == pytest.approx(1.748 / 2.448, rel=0.001)
    own = ROOT / "examples" / "schedules" / "all_to_next.py"
    done = run_tuccl("verify", own, *on_host, "--nodes", "4+4")
    assert done.stdout.splitlines()[1].startswith(f"{own}: 8 on 2 x a100-8gpu-8nic with 4+4 GPUs:")
    assert "busbw" not in done.stdout
    (tmp_path / "two.json").write_text(topology_to_json(cluster(2, 4, 1)))
    two = ("--topology", str(tmp_path / "two.json"))
    assert run_tuccl("verify", ring, *two, "--nodes", "4+4").returncode == 0
    for words, said in (
        (("--size", "1M"), "--size: give the machine to simulate it on"),
        ((*two, "--nodes", "5+3"), "--nodes 5+3: cluster has nodes of 4+4 GPUs; leave --nodes out"),
        ((*on_host, "--nodes", "4+4+4"), "schedule is for 8 ranks, and 3 x a100"),
        ((*on_host[:2], "--size", "1M,x"), "size 'x' is not understood"),
    ):
        wrong = run_tuccl("verify", ring, *words)
        assert (wrong.returncode, said in wrong.stderr) == (2, True), wrong.stderr


@pytest.mark.parametrize("content", [None, b"", b"<algo>", b"\xff\xfe", b"<system/>"])
def test_verify_of_no_schedule_is_one_line(
    run_inside: Run, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "file.xml").write_bytes(content)
    done = run_inside("verify", "file.xml")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "file.xml" in done.stderr


@requires_shared_data
def test_verify_notes_sizes_for_which_an_msccl_runtime_hangs(
    run_tuccl: Run, tmp_path: Path
) -> None:
    file = SHARED_DATA / "msccl_xml" / "rccl-removed" / "all-reduce-allpairs-ll-n1g16.xml"
    assert run_tuccl("verify", file).stderr == ""
    path = tmp_path / "any-size.xml"
    path.write_text(file.read_text().replace('maxBytes="1048576"', 'maxBytes="0"'))
    done = run_tuccl("verify", path)
    assert done.returncode == 0
    note = "note: an MSCCL runtime waits for ever in calls with larger messages than its buffers"
    assert done.stderr.startswith(note)
    (beyond,) = json.loads(run_tuccl("verify", path, "--json").stdout)["beyond_msccl_limits"]
    assert "cycle of 2 with 8 FIFO slots" in beyond


def test_a_plan_of_mscclpp_is_no_schedule(run_tuccl: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"name": "plan"}')
    done = run_tuccl("verify", tmp_path / "plan.json")
    assert done.returncode == 2
    assert "is JSON, not MSCCL XML" in done.stderr


def test_a_device_is_no_schedule_and_standard_input_may_be_one(run_tuccl: Run) -> None:
    endless = run_tuccl("verify", "/dev/zero")
    assert endless.returncode == 2
    assert "a device or pipe, not a file" in endless.stderr
    given = run_tuccl("verify", "/dev/stdin", input="<algo>")
    assert given.returncode == 2
    assert "/dev/stdin" in given.stderr
    assert "device" not in given.stderr
