"""`init` with variables of NCCL, over a stand-in that one value of one of them makes faster."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lookup_tables.table import Shape
from probes.files.read import shipped_machines
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.reports.report import read_report
from tuccl.search.trials.config import AXIS_VARIABLES
from tuccl.shipping.manifest import read_manifest
from tuccl.workspace.runs import Workspace

Tuccl = Callable[..., subprocess.CompletedProcess[str]]
KEYS = ("--min-size", "16K", "--max-size", "16K", "--operations")
PEERS = "NCCL_NCHANNELS_PER_NET_PEER"
BASE = {
    "NCCL_NTHREADS": "256",
    "NCCL_BUFFSIZE": "4194304",
    "NCCL_MIN_CTAS": "16",
    "NCCL_SOCKET_IFNAME": "lo",
}
FOUND = {PEERS: "2", "NCCL_SITES_OWN": "low"}
SITE = """
format = "tuccl-nccl-variables"
version = 1

[[variable]]
name = "NCCL_SITES_OWN"
values = ["low"]
"""


@pytest.fixture
def tuccl(stand_ins: StandIns, run_tuccl: Run, tmp_path: Path) -> Tuccl:
    """The command on two GPUs, where calls take exactly the time that NCCL states."""
    (tmp_path / "machine.json").write_text(topology_to_json(cluster(1, 2, 1)))
    (tmp_path / "site.toml").write_text(SITE)
    variables = {name: value for name, value in os.environ.items() if "NCCL" not in name}
    variables |= {
        **stand_ins.variables,
        "PYTHONPATH": str(stand_ins.libraries),
        "STAND_IN_GPUS": "2",
        "STAND_IN_COUNTS_TIME": "1",
    }
    return lambda *words, **more: run_tuccl(*words, env=variables | more)


def init(
    tuccl: Tuccl, operations: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Tune, with fewer profiles to visit, since the site sets the variables of every machine."""
    site = (f"--set={name}={BASE[name]}" for name in AXIS_VARIABLES.values())
    machine = ("--backend", "nccl", "--topology", "machine.json", *KEYS, operations)
    return tuccl("init", *machine, *site, *words, NCCL_SOCKET_IFNAME="lo", **environment)


@pytest.mark.slow
def test_values_that_help_are_found_shipped_and_shown(tuccl: Tuccl, tmp_path: Path) -> None:
    vary = (f"--vary={PEERS}=1,2", "--knobs=site.toml")
    done = init(
        tuccl, "all_gather", *vary, "--json", STAND_IN_SLOW_UNLESS=f"{PEERS}=2 NCCL_SITES_OWN=low"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile"] == FOUND
    assert read_report(Workspace(tmp_path / "tuccl-workspace").current()).base == BASE

    explained = tuccl("explain", "all_gather", "16K")
    assert f"NCCL under the profile {PEERS}=2 NCCL_SITES_OWN=low: 20.00 us" in explained.stdout
    assert "NCCL_SOCKET_IFNAME=lo, which stock NCCL had, too" in explained.stdout

    assert tuccl("ship", "shipped").returncode == 0
    manifest = read_manifest(tmp_path / "shipped")
    assert manifest is not None
    assert (manifest.profile, manifest.base) == (FOUND, BASE)
    script = (tmp_path / "shipped" / "tuccl.env").read_text()
    assert f"\n    export {PEERS}=2\n" in script
    assert "\n#     NCCL_MIN_CTAS=16\n" in script

    well = tuccl("doctor", "shipped", **BASE)
    assert "ok variables" in " ".join(well.stdout.split())
    other = tuccl("doctor", "shipped", **BASE | {"NCCL_NTHREADS": "", "NCCL_P2P_DISABLE": "1"})
    said = " ".join(other.stdout.split())
    assert "NCCL_NTHREADS is not set, and the table was measured with NCCL_NTHREADS=256" in said
    assert (
        "NCCL_P2P_DISABLE=1 is set in the environment, and the table was measured without" in said
    )
    assert "NCCL_SOCKET_IFNAME" not in said


@pytest.mark.long
def test_collnet_of_a_cluster_whose_network_sums_is_a_profile_or_the_base(
    run_tuccl: Run, tmp_path: Path
) -> None:
    """Two nodes of eight A100 with SHARP, in the model: 64 MB take 0.6 of the time with it."""
    text = shipped_machines()["a100-8gpu-8nic"].read_text()
    (tmp_path / "sharp.xml").write_text(text.replace('gdr="1"/>', 'gdr="1" coll="1"/>'))

    def stock_and_profile(*words: str) -> tuple[float, dict[str, str]]:
        size = ("--min-size", "64M", "--max-size", "64M", "--shapes", "whole")
        machine = ("--topology", "sharp.xml", "--nodes", "2", "--operations", "all_reduce")
        done = run_tuccl("init", *machine, *size, *words, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        return report["keys"][0]["stock_us"], report["profile"]

    plain_us, profile = stock_and_profile()
    assert profile["NCCL_COLLNET_ENABLE"] == "1"
    base_us, profile = stock_and_profile("--set", "NCCL_COLLNET_ENABLE=1")
    assert "NCCL_COLLNET_ENABLE" not in profile
    assert base_us < 0.65 * plain_us
    base = read_report(Workspace(tmp_path / "tuccl-workspace").current()).base
    assert base == {"NCCL_COLLNET_ENABLE": "1"}


@pytest.mark.long
def test_a_value_under_which_nccl_sums_wrongly_is_caught_and_named(tuccl: Tuccl) -> None:
    wrong = {"STAND_IN_CORRUPTS": "all_gather", "STAND_IN_CORRUPTS_UNDER": f"{PEERS}=4"}
    vary = (f"--vary={PEERS}=4", "--knobs=site.toml")
    # Without the variable of --set calls would be twice as fast at most.
    slow_unless = f"{PEERS}=4 NCCL_MIN_CTAS=16"
    done = init(tuccl, "all_reduce,all_gather", *vary, STAND_IN_SLOW_UNLESS=slow_unless, **wrong)
    assert done.returncode == 0, done.stderr
    assert "process profile: none" in done.stdout, "the site's own changes nothing"
    assert (
        "NCCL's variables tried in one start, the best NCCL_SITES_OWN=low at 1.000x" in done.stdout
    )
    said = f"Not used: {PEERS}=4 is 150.000x faster on average, but its data are wrong: all_gather"
    assert said in done.stdout


@pytest.mark.long
def test_stock_nccl_whose_averages_are_sums_is_named(tuccl: Tuccl) -> None:
    """It is the reference all the same, and what a profile has in common with it is not held
    against the profile."""
    words = (f"--vary={PEERS}=2", "--knobs=site.toml", "--budget", "60s")
    slow_unless = f"{PEERS}=2"
    wrong = {"STAND_IN_SUMS_FOR_AVERAGES": "reduce_scatter", "STAND_IN_SLOW_UNLESS": slow_unless}
    done = init(tuccl, "reduce_scatter,all_gather", *words, **wrong)
    assert done.returncode == 0, done.stderr
    said = "Stock NCCL's own choice is wrong here: 2 ranks on 1 node(s): wrong data: "
    assert said in done.stdout
    assert "reduce_scatter of 16384 bytes: the average at element 0 is" in done.stdout
    assert f"process profile: {PEERS}=2" in done.stdout
    assert "its data are wrong" not in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vary", "NCCL_PROTO=LL,Simple"), "NCCL_PROTO is not varied, because it overrules"),
        (("--set", "NCCL_ALGO=ring"), "NCCL_ALGO cannot be set, because it overrules every table"),
        (("--knobs", "missing.toml"), "missing.toml: No such file or directory"),
        (("--vary", "NCCL_IB_SPLIT_DATA_ON_QPS"), "--vary 'NCCL_IB_SPLIT_DATA_ON_QPS': value ''"),
    ],
)
def test_a_refusal_is_a_line(tuccl: Tuccl, words: tuple[str, ...], said: str) -> None:
    done = tuccl("init", "--backend", "nccl", "--topology", "machine.json", *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.mark.slow
def test_communicators_that_are_not_tuned_are_timed_under_the_profile(
    tuccl: Tuccl, tmp_path: Path
) -> None:
    """Pairs of four GPUs, which the variable makes faster as well."""
    (tmp_path / "machine.json").write_text(topology_to_json(cluster(1, 4, 1)))
    slow = {"STAND_IN_SLOW_UNLESS": f"{PEERS}=2", "STAND_IN_GPUS": "4"}
    shapes = ("--shapes", "whole", f"--vary={PEERS}=2")
    done = init(tuccl, "all_gather", *shapes, **slow)
    assert done.returncode == 0, done.stderr
    assert f"process profile: {PEERS}=2" in done.stdout
    floor = read_report(Workspace(tmp_path / "tuccl-workspace").current()).floor
    assert floor is not None
    assert [(own.shape, own.size_bytes) for own in floor.untuned] == [(Shape(2, 1, 2), 16384)]
    assert floor.untuned[0].ratio > 100.0
    assert "Communicators that are not tuned have the profile's variables" in done.stdout
