"""`tuccl ship --check`: one verdict of each host, over MPI and by a launcher."""

import json
import os
import re
import shutil
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from json_reference import schema_of

from tests.runtime.builds import compile_native
from tests.tuccl.conftest import Run, run_in
from tests.tuccl.crew.test_launched import CLOCK
from tests.tuccl.measuring.engines.nccl_stand_ins import ROOT, StandIns
from tests.tuccl.shipping.job_roots import run_of_one_rank
from tuccl.api.hosts.shipped_hosts import verdict_here, verdicts, with_clock
from tuccl.crew.launched import LaunchedPlaces
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.shipping.doctor.ship_check import CheckedHost, ShipCheck
from tuccl.shipping.shipment import ship
from tuccl.views.terminal.findings_display import check_lines

pytestmark = pytest.mark.long

COMMAND = (sys.executable, "-c", "from tuccl.cli.app import main; main()")
NO_ROUTE = "ssh: connect to host far port 22: No route to host"
LAUNCHER = """\
#!/bin/sh
host=$1
shift
case $host in
far) echo "NO_ROUTE" >&2; exit 255 ;;
slow) exec sleep 60 ;;
greeting) echo "Welcome {to} greeting"; exec "$@" ;;
ring) NCCL_ALGO=Ring exec "$@" ;;
old) STAND_IN_NCCL_VERSION=22803 exec "$@" ;;
other) cd OTHER && exec "$@" ;;
ahead) LD_PRELOAD=CLOCK exec "$@" ;;
*) exec "$@" ;;
esac
"""


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, stand_ins: StandIns) -> None:
    for name in list(os.environ):
        if name.startswith(("NCCL_", "TUCCL_")) or name == "LD_PRELOAD":
            monkeypatch.delenv(name)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(stand_ins.nccl))


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    ship(run_of_one_rank(tmp_path / "run"), tmp_path / "shipped")
    return tmp_path / "shipped"


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    """Stands in for ssh: hosts by name, on this host; `other` has another table there."""
    ship(run_of_one_rank(tmp_path / "other-run", {}), tmp_path / "other" / "shipped")
    clock = compile_native(tmp_path / "clock.so", [CLOCK], "-shared")
    script = tmp_path / "launcher"
    script.write_text(
        LAUNCHER.replace("OTHER", str(tmp_path / "other"))
        .replace("NO_ROUTE", NO_ROUTE)
        .replace("CLOCK", str(clock))
    )
    script.chmod(0o755)
    return f"{script} {{host}}"


def on_hosts(launcher: str, directory: Path, *hosts: str, limit_s: float = 60) -> list[CheckedHost]:
    with closing(LaunchedPlaces(hosts, launcher)) as places:
        return verdicts(directory, places, limit_s)


def test_hosts_with_one_table_agree(shipped: Path, launcher: str) -> None:
    found = on_hosts(launcher, shipped, "a", "greeting")
    assert [host.host for host in found] == ["a", "greeting"]
    checked = ShipCheck(shipped, tuple(found))
    assert (checked.loads, checked.disagreements) == (True, ())


@pytest.mark.parametrize(
    ("host", "failure", "difference"),
    [
        (
            "far",
            "the launcher ended with exit 255: ssh: connect to host far port 22: No route to host",
            "",
        ),
        ("ring", "", ""),
        ("old", "", "the hosts have different NCCLs: 2.28.9 on a; 2.28.3 on old"),
        ("other", "", "the hosts have different tables: "),
    ],
)
def test_a_host_that_is_unlike_the_others_is_found(
    shipped: Path,
    launcher: str,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    failure: str,
    difference: str,
) -> None:
    monkeypatch.chdir(shipped.parent)
    found = on_hosts(launcher, Path("shipped"), "a", host)
    checked = ShipCheck(shipped, tuple(found))
    assert not checked.loads
    assert found[1].failure == failure
    assert [text.startswith(difference) for text in checked.disagreements] == (
        [True] if difference else []
    )


@pytest.mark.parametrize(
    ("told_s", "ahead_s", "sentence"),
    [
        (1300.0, 290.0, "far's clock is 290 s ahead of this host's: "),
        (900.0, -100.0, "far's clock is 100 s behind this host's: "),
        (1005.0, 0.0, ""),
        (1014.9, 0.0, ""),
    ],
)
def test_a_clock_that_is_not_this_hosts_is_told(
    shipped: Path, told_s: float, ahead_s: float, sentence: str
) -> None:
    diagnosis = verdict_here(shipped).diagnosis
    assert diagnosis is not None
    answer = replace(diagnosis, time_s=told_s)
    host = CheckedHost(host="far", diagnosis=answer)
    found = with_clock(host, 1000.0, 1010.0)
    assert found.clock_ahead_s == ahead_s
    checked = ShipCheck(shipped, (found,))
    assert checked.loads
    assert [text.startswith(sentence) for text in checked.warnings] == [True] * bool(sentence)
    assert all(text in list(check_lines(checked)) for text in checked.warnings)


def test_a_host_that_does_not_answer_is_not_waited_for(shipped: Path, launcher: str) -> None:
    (found,) = on_hosts(launcher, shipped, "slow", limit_s=0.3)
    assert found == CheckedHost(host="slow", failure="no answer within 0.3 s", diagnosis=None)
    (found,) = on_hosts("/no/launcher {host}", shipped, "a")
    assert "the launcher cannot be started: /no/launcher" in found.failure


def test_a_host_without_the_directory_says_so(tmp_path: Path) -> None:
    found = verdict_here(tmp_path / "nowhere")
    assert "is not a directory" in found.failure
    assert not ShipCheck(tmp_path, (found,)).loads


def test_the_command_prints_a_verdict_for_each_host(
    run_inside: Run, shipped: Path, launcher: str
) -> None:
    reach = ("--hosts", "node1,ahead,ring", "--launcher", launcher)
    done = run_inside("ship", "shipped", "--check", *reach)
    assert (done.returncode, done.stderr) == (1, "")
    assert "node1: would load the table" in done.stdout
    assert "ring: would not load the table" in done.stdout
    assert re.search(r"ahead's clock is 86[34]\d\d s ahead of this host's: ", done.stdout)
    assert "mend: unset NCCL_ALGO" in done.stdout
    done = run_inside("ship", "shipped", "--check", "--json")
    assert done.returncode == 0
    schema = schema_of("ship-check")
    jsonschema.validate(json.loads(done.stdout), schema, cls=jsonschema.Draft202012Validator)
    for wrong in (("--check", "--force"), ("--hosts", "a"), ("--check", "--launcher", "x {host}")):
        refused = run_inside("ship", "shipped", *wrong)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
@pytest.mark.parametrize("place", ["shipped", "nowhere"])
def test_ranks_of_one_host_are_one_verdict(shipped: Path, tmp_path: Path, place: str) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
    words = (*COMMAND, "ship", place, "--check", "--json")
    done = run_in(tmp_path, [*mpirun, *words], env=variables)
    document = json.loads(done.stdout)
    assert document["loads"] is (place == "shipped")
    assert (done.returncode == 0) is (place == "shipped")
    assert len(document["hosts"]) == 1
