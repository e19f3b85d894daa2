"""Ray: its nodes are places as all others are, tune the same table, and a wrong start has its line.

The clusters are real, each of nodes that are raylets of this host with GPUs by name only.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.crew.places_conformance import CHECKS, is_running
from tests.tuccl.crew.test_places import ROOT
from tuccl.crew import ray_places as module
from tuccl.crew.asking import Lost
from tuccl.crew.connection import Connection
from tuccl.crew.messages import Done
from tuccl.crew.probe_station import Stop
from tuccl.crew.ray_driver import RayNode, _nodes_with_gpus
from tuccl.crew.ray_places import RayPlaces, ray_places
from tuccl.errors import MeasurementError

GUIDE = ROOT / "docs" / "guide" / "mpi.md"
TUNE = ("tune", "--topology", "box.json", "--operations", "all_reduce", "--min-size", "1M",
        "--max-size", "1M", "--json")  # fmt: skip
HAS_RAY = importlib.util.find_spec("ray") is not None
RAY = importlib.metadata.version("ray") if HAS_RAY else "2.60.0"
requires_ray = pytest.mark.skipif(
    not HAS_RAY, reason="ray is not installed: pip install tuccl[ray]"
)


def ray(*words: str) -> None:
    """Run `ray`, with a home of its own: Ray keeps a token there."""
    subprocess.run(
        [Path(sys.executable).parent / "ray", *words], check=True, capture_output=True, timeout=60
    )


class Cluster:
    """A cluster of this host, whose head has no GPUs; nodes join it."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        self.folder = folder
        self.address = f"127.0.0.1:{port}"
        common = ("--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats")
        self._common = common
        ray("start", "--head", "--port", str(port), "--include-dashboard=false", "--num-gpus", "0",
            "--temp-dir", str(folder), *common)  # fmt: skip

    def add(self, name: str, gpus: int) -> None:
        words = ("--address", self.address, "--node-name", name, "--num-gpus", str(gpus))
        ray("start", *words, *self._common)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head without GPUs."""
    before = set(psutil.pids())
    # Sockets have short paths.
    folder = Path(tempfile.mkdtemp(prefix="ray."))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield Cluster(folder)
        for process in psutil.process_iter(["cmdline"]):
            words = " ".join(process.info["cmdline"] or [])
            if process.pid not in before and str(folder) in words:
                for each in (*process.children(recursive=True), process):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def nodes(head: Cluster) -> Cluster:
    """The cluster with two nodes that have GPUs."""
    head.add("node2", 2)
    head.add("node1", 2)
    return head


@pytest.fixture(scope="module")
def places(nodes: Cluster) -> Iterator[RayPlaces]:
    with closing(ray_places(nodes.address, 60.0)) as made:
        yield made


def tuccl(
    folder: Path, *words: str, limit_s: float = 60.0, **environment: str
) -> tuple[int, str, str]:
    """Run a command; a host is waited for so long, and a cluster too."""
    code = (
        "import sys; from tuccl.api.hosts.probing import with_hosts; from tuccl.cli.app import main"
        f"; with_hosts.__defaults__ = ({limit_s}, None); import tuccl.crew.ray_places as places"
        f"; places._JOIN_S = min({limit_s}, places._JOIN_S); main()"
    )
    (folder / "box.json").write_text(topology_to_json(cluster(2, 2, 1)))
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def refused(*words: str, folder: Path, **said: str) -> str:
    """The one line of a start that ends with exit code 3, as the guide has it."""
    limit_s = float(said.pop("limit_s", "60"))
    code, _, errors = tuccl(folder, *TUNE, *words, limit_s=limit_s, **said)
    (line,) = errors.splitlines()
    assert code == 3, errors
    for here, there in (
        (r"127\.0\.0\.1:\d+", "head:6379"),
        (r"within [\d.]+ s", "within 60 s"),
        (r"(?<=Ray node )\S+?(?=[: ])", "node1"),
        (re.escape(RAY), "2.60.0"),
        (r"(?<=Python: )\d\.\d+\.\d+", "3.11.7"),
        (r"\d+\.\d+\.\d+\.\d+", "10.0.0.1"),
    ):
        line = re.sub(here, there, line)
    assert f"`{line.removeprefix('tuccl: ')}`" in GUIDE.read_text(encoding="utf-8"), line
    return line


def test_nodes_that_live_and_have_gpus_come_by_name_and_namesakes_are_numbered() -> None:
    def node(host: str, name: str, gpus: float, *, alive: bool = True) -> dict[str, object]:
        return {
            "NodeManagerHostname": host, "NodeName": name, "NodeID": f"id-{name}", "Alive": alive,
            "Resources": {"CPU": 8.0, "GPU": gpus} if gpus else {"CPU": 8.0},
        }  # fmt: skip

    listed = [node("n10", "a", 8), node("head", "b", 0), node("n2", "d", 4), node("n2", "c", 2),
              node("n1", "e", 8, alive=False), node("n3", "f", 0.5)]  # fmt: skip
    assert _nodes_with_gpus(listed) == [
        (RayNode("n2", 2), "id-c"), (RayNode("n2#2", 4), "id-d"), (RayNode("n10", 8), "id-a"),
    ]  # fmt: skip


@pytest.mark.long
def test_a_missing_ray_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError(\"No module named 'ray'\")")
    path = f"{tmp_path}:{ROOT}"
    refused("--ray", "head:6379", folder=tmp_path, PYTHONPATH=path)


def test_a_driver_that_is_killed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = [sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"]
    monkeypatch.setattr(module, "worker_command", lambda _: killed)
    line = "the driver of Ray is lost (killed by signal 9 (SIGKILL)): start the same command again"
    with pytest.raises(MeasurementError, match=f"^{re.escape(line)}$"):
        ray_places("head:6379", 1.0)
    assert f"`{line}`" in GUIDE.read_text(encoding="utf-8")
    # Ray ends the actors, whose connections close first.
    with closing(RayPlaces(module.Driver(), [RayNode("node1", 1)])) as places:
        ours, theirs = socket.socketpair()
        theirs.close()
        places._take(0, Connection(ours))
        why = "the driver of Ray is lost: killed by signal 9 (SIGKILL)"
        assert places.ask({0: Stop()}, 1.0) == {0: Lost("Ray node node1", why)}


@pytest.mark.long
def test_an_address_that_is_none_and_two_ways_at_once_are_refused(tmp_path: Path) -> None:
    lines = {
        "--ray /shared/tuccl": "--ray '/shared/tuccl' is not an address: write HOST:PORT, as "
        "head:6379, or nothing and an option behind it",
        "--ray --hosts a,b": "--ray beside --hosts: leave one out, as each names all hosts",
    }
    for words, line in lines.items():
        assert tuccl(tmp_path, *TUNE, *words.split()) == (2, "", f"tuccl: {line}\n")
        assert f"`{line}`" in GUIDE.read_text(encoding="utf-8")


@requires_ray
@pytest.mark.long
class TestWithoutNodes:
    """A cluster of a head without GPUs; before the nodes of other tests have joined it."""

    def test_no_cluster(self, tmp_path: Path) -> None:
        refused("--ray", "127.0.0.1:1", folder=tmp_path)

    def test_another_service(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            refused("--ray", address, folder=tmp_path, limit_s="3")

    def test_no_gpus(self, head: Cluster, tmp_path: Path) -> None:
        refused("--ray", head.address, folder=tmp_path)

    def test_another_version(self, head: Cluster, tmp_path: Path) -> None:
        (tmp_path / "sitecustomize.py").write_text("import ray\nray.__version__ = '2.9.3'\n")
        refused("--ray", head.address, folder=tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")


@requires_ray
@pytest.mark.long
@pytest.mark.parametrize("name", CHECKS)
def test_places_of_ray(places: RayPlaces, name: str) -> None:
    CHECKS[name](places)


@requires_ray
@pytest.mark.long
def test_gpus_that_others_have_are_waited_for_and_named(
    places: RayPlaces, nodes: Cluster, tmp_path: Path
) -> None:
    assert [place.local_rank for place in places.places] == [0, 1, 0, 1]
    refused("--ray", nodes.address, folder=tmp_path, limit_s="6")


def actors(of: Cluster) -> list[psutil.Process]:
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if (each.info["cmdline"] or [""])[0].startswith("ray::RayHost")
        and str(of.folder) in " ".join(psutil.Process(each.ppid()).cmdline())
    ]


@requires_ray
@pytest.mark.long
def test_an_actor_that_dies_is_lost_and_one_that_hangs_is_killed(
    places: RayPlaces, nodes: Cluster
) -> None:
    places.close()
    with closing(ray_places(nodes.address, 60.0)) as own:
        assert own.ask({0: Stop(), 2: Stop()}, 30) == {0: Done(), 2: Done()}
        dying, hanging = found = actors(nodes)
        dying.kill()
        hanging.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        answers = own.ask({0: Stop(), 2: Stop()}, 3.0)
        assert time.monotonic() - began < 10
    reasons = sorted(each.reason for each in answers.values() if isinstance(each, Lost))
    assert reasons[1] == "no answer within 3 s"
    assert reasons[0] == "The actor is dead because its worker process has died"
    deadline = time.monotonic() + 15
    while any(is_running(each.pid) for each in found):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@requires_ray
@pytest.mark.long
def test_a_job_of_ray_makes_the_table_of_one_process(
    places: RayPlaces, nodes: Cluster, tmp_path: Path
) -> None:
    places.close()
    started = ("--backend", "simulated", "--workspace")
    outcomes = {
        "alone": tuccl(tmp_path, *TUNE, *started, "alone"),
        "by its address": tuccl(tmp_path, *TUNE, *started, "ray", "--ray", nodes.address),
        "within a job": tuccl(
            tmp_path,
            *TUNE,
            *started,
            "job",
            RAY_ADDRESS=nodes.address,
            RAY_JOB_CONFIG_JSON_ENV_VAR="{}",
        ),
    }
    assert {name: code for name, (code, *_) in outcomes.items()} == dict.fromkeys(outcomes, 0)
    tables = [json.loads(text)["keys"] for _, text, _ in outcomes.values()]
    assert tables[0] == tables[1] == tables[2]


@requires_ray
@pytest.mark.slow
def test_sockets_between_nodes_time_the_keys_of_sockets_on_one_host(
    places: RayPlaces, nodes: Cluster, tmp_path: Path
) -> None:
    places.close()
    words = (
        "init",
        *TUNE[1:],
        "--shapes",
        "whole",
        "--budget",
        "20s",
        "--backend",
        "sockets",
        "--workspace",
    )
    outcomes = [
        tuccl(tmp_path, *words, "alone", "--fake-nodes"),
        tuccl(tmp_path, *words, "ray", "--ray", nodes.address),
    ]
    assert [code for code, *_ in outcomes] == [0, 0], outcomes
    names = [
        [{name: key[name] for name in ("operation", "size_bytes", "shape")} for key in keys]
        for keys in (json.loads(text)["keys"] for _, text, _ in outcomes)
    ]
    assert names[0] == names[1] != []
