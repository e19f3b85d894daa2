"""`tuccl probe` on this host, behind launchers and under MPI."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from probes.files.read import read_topology
from tests.tuccl.conftest import Run
from tuccl.api.hosts.probe_options import ProbeOptions
from tuccl.api.hosts.probing import host_slots
from tuccl.cli.probe import ProbeOutput, probe
from tuccl.errors import MachineError, UsageError, WorkspaceError

pytestmark = pytest.mark.long

TIMEOUT_S = 150
MPIRUN = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np")
requires_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")


@pytest.fixture(scope="module")
def local_run(
    tuccl_command: str, tmp_path_factory: pytest.TempPathFactory
) -> subprocess.CompletedProcess[str]:
    """This host, probed alone; the topology is in the last of the arguments."""
    file = str(tmp_path_factory.mktemp("local") / "local.json")
    return subprocess.run(
        [tuccl_command, "probe", "--no-p2p", "--json", "-o", file],
        check=True, timeout=TIMEOUT_S, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture
def local(local_run: subprocess.CompletedProcess[str]) -> Path:
    """The topology of this host, probed alone."""
    return Path(local_run.args[-1])


@pytest.fixture
def mpi_tuccl(tuccl_command: str, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    def start(tasks: int, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*MPIRUN, str(tasks), tuccl_command, "probe", "--no-p2p", *args],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def ended(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and streams, however the job ends."""
    try:
        output, errors = job.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        raise
    return job.returncode, output, errors


def test_one_host_gives_a_topology_and_a_summary(run_tuccl: Run, tmp_path: Path) -> None:
    done = run_tuccl("probe", "--no-p2p", "-o", "here.json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "topology written to here.json\n"
    topology = read_topology(tmp_path / "here.json")
    assert topology.hosts == (os.uname().nodename,)
    assert topology.fingerprint() in done.stdout
    assert all(note in done.stdout for note in topology.notes)


def test_json_is_the_only_word_on_stdout(
    local_run: subprocess.CompletedProcess[str], local: Path
) -> None:
    document = json.loads(local_run.stdout)
    assert document["schema_version"] == 1
    assert document["fingerprint"] == read_topology(local).fingerprint()
    assert document["topology"] == json.loads(local.read_text())
    assert local_run.stderr == f"topology written to {local}\n"


def test_a_hostfile_has_hosts_and_their_slots(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    lines = ("# ours", "node[1-2] slots=8", "", "me@far  slots = 16 max_slots=32 # last")
    file.write_text("\n".join((*lines, "login", "login")))
    found = host_slots(str(file))
    assert list(found.items()) == [("node1", 8), ("node2", 8), ("me@far", 16), ("login", 1)]
    assert list(host_slots("b,a[1-2],b").items()) == [("b", 1), ("a1", 1), ("a2", 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no host"),
        ("# nothing\n", "names no host"),
        ("n1 slots=0", "line 1: 'n1 slots=0', expected hosts and maybe slots=N"),
        ("n1\nn2 slots=-o", "line 2: 'n2 slots=-o', expected"),
        ("n1 -oProxyCommand=reboot", "line 1: 'n1 -oProxyCommand=reboot', expected"),
        ("n1 slots=8 slots=8", "line 1: "),
        ("n[1-", "host list 'n\\[1-'"),
        ("n1 slots=2\nn1 slots=4", "line 2: host n1 has 2 slots above, and 4"),
    ],
)
def test_a_hostfile_that_says_something_else_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(MachineError, match=said):
        host_slots(str(tmp_path / "hosts"))


def test_a_hostfile_that_is_not_there_is_no_host(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*/hosts: No such file or directory; name"):
        host_slots(str(tmp_path / "hosts"))


def test_bad_usage_is_one_line(run_tuccl: Run) -> None:
    done = run_tuccl("probe", "--hosts", "n1", "--launcher", "ssh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tuccl: --launcher 'ssh' does not say where the host's name goes: write {host}\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"launcher": "ssh {host}"}, "--hosts"),
        ({"remote_python": "/opt/python"}, "--hosts"),
        ({"hosts": "n[1-"}, "n\\[1-"),
        ({"root": Path("/no/such/place")}, "/no/such/place"),
        ({"root": Path("/"), "hosts": "n1"}, "--root"),
        ({"host_timeout": "0s"}, "--host-timeout"),
        ({"host_timeout": "nan"}, "--host-timeout"),
        ({"seconds_per_pair": 0}, "--seconds-per-pair"),
        ({"rack_map": Path("/no/such/map")}, "/no/such/map"),
        ({"ibnetdiscover": Path("/no/such/list")}, "/no/such/list"),
        ({"ibnetdiscover": Path("/dev/null")}, "no switch in it"),
        ({"ibnetdiscover": Path("/dev/zero")}, "/dev/zero: more than 67,108,864 bytes"),
        ({"hosts": " "}, "--hosts names no host"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises((UsageError, MachineError), match=said):
        probe.run(ProbeOptions(**options), ProbeOutput())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "output", "said"),
    [
        ({}, {"output": Path("/")}, "directory"),
        ({}, {"output": Path("-")}, "never written to standard output"),
        ({"rack_map": Path(__file__)}, {"output": Path(__file__)}, "is read by this command"),
        ({}, {"output": Path("x.json"), "check": True}, "--check writes no topology"),
        ({"hosts": "n1"}, {"check": True}, "--check"),
    ],
)
def test_an_output_that_cannot_be_is_refused(
    options: dict[str, object], output: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        probe.run(ProbeOptions(**options), ProbeOutput(**output))  # type: ignore[arg-type]


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_probed() -> None:
    with pytest.raises(WorkspaceError, match="cannot write /proc/none/h"):
        probe.run(ProbeOptions(root=Path("/dev")), ProbeOutput(output=Path("/proc/none/h.json")))


def test_a_directory_without_a_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=str(tmp_path)):
        probe.run(ProbeOptions(root=tmp_path), ProbeOutput())


def test_check_names_every_part_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    code = probe.run(ProbeOptions(), ProbeOutput(check=True, as_json=True))
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {"NVML", "LLDP", "Slurm"} <= {check["subject"] for check in checks}
    assert all(check["why"] for check in checks)
    (tree,) = [check for check in checks if check["subject"] == "PCI tree"]
    assert code == (1 if tree["status"] == "missing" else 0)


def test_two_names_of_one_host_are_one_host(run_tuccl: Run, tmp_path: Path, local: Path) -> None:
    done = run_tuccl(
        "probe", "--no-p2p", "--hosts", "one,two", "--launcher", "env H={host}", "-o", "t.json"
    )
    assert done.returncode == 0, done.stderr
    topology = read_topology(tmp_path / "t.json")
    assert topology.hosts == ("one",)
    assert topology.fingerprint() == read_topology(local).fingerprint()
    assert "two is the same host as one, and was counted once." in topology.notes


_FATES = "case $0 in bad) echo no route >&2; exit 255;; slow) sleep 60;; esac"
FAILS = f"sh -c '{_FATES}; exec \"$@\"' {{host}}"


def test_hosts_that_fail_or_hang_are_named_and_nothing_is_written(
    run_tuccl: Run, tmp_path: Path
) -> None:
    started = time.monotonic()
    done = run_tuccl(
        "probe", "--no-p2p", "--hosts", "good,bad,slow", "--launcher", FAILS,
        "--host-timeout", "4s", "-o", "t.json",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "tuccl: 2 of 3 hosts did not answer (bad: the launcher ended with exit 255: no route; "
        "slow: no answer within 4 s); mend them, or go on without them with --allow-missing\n"
    )
    assert not (tmp_path / "t.json").exists()
    assert time.monotonic() - started < 50


def test_with_allow_missing_the_rest_is_the_topology(
    run_tuccl: Run, tmp_path: Path, local: Path
) -> None:
    done = run_tuccl(
        "probe", "--no-p2p", "--hosts", "good,bad", "--launcher", FAILS,
        "--allow-missing", "-o", "t.json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    topology = read_topology(tmp_path / "t.json")
    assert topology.hosts == ("good",)
    assert topology.notes[0] == ("bad is missing: the launcher ended with exit 255: no route.")
    assert topology.fingerprint() == read_topology(local).fingerprint()


@requires_mpirun
def test_ranks_of_one_host_give_what_a_local_run_gives(
    mpi_tuccl: Callable[..., subprocess.Popen[str]], tmp_path: Path, local: Path
) -> None:
    code, output, errors = ended(mpi_tuccl(2, "-o", "mpi.json", "--json"))
    assert code == 0, errors
    assert (tmp_path / "mpi.json").read_bytes() == local.read_bytes()
    assert json.loads(output)["topology"] == json.loads(local.read_text())


@requires_mpirun
@pytest.mark.parametrize(
    ("number", "timeout_s", "said"),
    [
        # mpirun's words, which of the two depends on whether the other rank notices first.
        (signal.SIGKILL, 60, "exited on signal 9|a non-zero exit code"),
        (signal.SIGSTOP, 2, "MPI did not start within 2 s"),
    ],
)
def test_a_rank_that_dies_or_hangs_ends_the_run_with_a_word(
    mpi_tuccl: Callable[..., subprocess.Popen[str]],
    number: signal.Signals,
    timeout_s: int,
    said: str,
) -> None:
    job = mpi_tuccl(2, "--host-timeout", f"{timeout_s}s")
    rank = _process_of_rank(job.pid, "1")
    rank.send_signal(number)
    started = time.monotonic()
    code, _, errors = ended(job)
    assert code != 0
    assert re.search(said, " ".join(errors.split())), errors
    assert "Traceback" not in errors
    assert time.monotonic() - started < 100


def _process_of_rank(job: int, rank: str) -> psutil.Process:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in psutil.Process(job).children():
            try:
                if child.environ().get("OMPI_COMM_WORLD_RANK") == rank:
                    return child
            except psutil.Error:
                continue
        time.sleep(0.01)
    raise AssertionError("mpirun did not start the rank")
