"""SIGTERM, as Slurm, `timeout` and `scancel` send it, ends a command as Ctrl-C does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import run_in
from tests.tuccl.crew.test_places import requires_mpirun
from tests.tuccl.crew.test_ranks import requires_mpi4py
from tuccl.crew.interrupts import (
    interrupts_kept,
    raise_if_interrupted,
    tell_stopped,
)
from tuccl.errors import ExitCode, Terminated
from tuccl.workspace.atomic_file import PARTIAL_PREFIX, write_atomically
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[4]
MANY_GPUS = ("init", "--topology", "box.json", "--operations", "all_reduce",
                "--min-size", "16K", "--max-size", "256K")  # fmt: skip
"""A run that makes schedules with several processes."""
LAST_LINE = "tuccl: terminated; the same command continues where it stopped"
ENDS_WITHIN_S = 8.0

Send = Callable[[int], None]
Start = Callable[[Sequence[str | Path], Path], subprocess.Popen[str]]


def alone(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def to_the_group(pid: int) -> None:
    os.killpg(pid, signal.SIGTERM)


def twice(pid: int) -> None:
    """As `timeout` sends it: to its child, then to its group."""
    os.kill(pid, signal.SIGTERM)
    os.killpg(pid, signal.SIGTERM)


def followed_by_ctrl_c(pid: int) -> None:
    os.killpg(pid, signal.SIGTERM)
    time.sleep(0.05)
    os.killpg(pid, signal.SIGINT)


def when_workers_are_busy(process: subprocess.Popen[str], _: Path) -> None:
    wait_until(process, lambda: len(busy_children(process.pid)) == 2)


def when_workers_start(process: subprocess.Popen[str], _: Path) -> None:
    wait_until(process, lambda: bool(psutil.Process(process.pid).children()))


def when_it_measures(process: subprocess.Popen[str], root: Path) -> None:
    before = measured_bytes(root)
    wait_until(process, lambda: measured_bytes(root) > before + 1000)


def measured_bytes(root: Path) -> int:
    return sum(log.stat().st_size for log in root.glob("runs/*/measurements.jsonl"))


def busy_children(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    return [child for child in children if child.cpu_times().user > 0.6]


def wait_until(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def named_semaphores(pid: int) -> list[Path]:
    """Files of the semaphores that a process has mapped, under the names of their making."""
    mapped = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    inodes = {line.split()[4] for line in mapped.splitlines()}
    found = []
    for path in Path("/dev/shm").glob("sem.mp-*"):  # noqa: S108 - where glibc keeps them
        with suppress(FileNotFoundError):  # Of another process.
            found += [path] if str(path.stat().st_ino) in inodes else []
    return found


@pytest.fixture(autouse=True)
def box(tmp_path: Path) -> None:
    """A host of sixteen GPUs."""
    (tmp_path / "box.json").write_text(topology_to_json(cluster(1, 16, 1)))


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command in a session of its own; kills what is left of it after the test."""
    started: list[subprocess.Popen[str]] = []

    def popen(command: Sequence[str | Path], folder: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*map(str, command)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield popen
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def terminated(
    process: subprocess.Popen[str], send: Send, children: Sequence[psutil.Process] = ()
) -> list[str]:
    """Return its output, once it has ended with all processes that it started."""
    semaphores = named_semaphores(process.pid)
    began = time.monotonic()
    send(process.pid)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - began < ENDS_WITHIN_S
    assert process.returncode == ExitCode.TERMINATED, said
    _, alive = psutil.wait_procs(list(children), timeout=5)
    assert alive == []
    assert not any(semaphore.exists() for semaphore in semaphores)
    return said.splitlines()


def is_clean(lines: Sequence[str]) -> bool:
    """Whether a run said nothing but what it runs, and how far it is."""
    return all(
        re.match(r"(cluster: 16 GPUs|[a-zA-Z ]+: \d+ |still running)", line) for line in lines
    )


MOMENTS: list[tuple[Callable[[subprocess.Popen[str], Path], None], Send]] = [
    (when_workers_start, to_the_group),
    (when_workers_are_busy, followed_by_ctrl_c),
    (when_it_measures, twice),
]
FURTHER_MOMENTS = [
    (when_workers_are_busy, alone),
    (when_workers_are_busy, to_the_group),
    (when_it_measures, alone),
]


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(MOMENTS, id="three", marks=pytest.mark.slow),
        pytest.param(FURTHER_MOMENTS, id="further", marks=pytest.mark.slow),
    ],
)
def test_terminated_at_any_moment_it_continues_and_ends_with_the_same_bundle(
    start: Start,
    tuccl_command: str,
    tmp_path: Path,
    moments: Sequence[tuple[Callable[[subprocess.Popen[str], Path], None], Send]],
) -> None:
    whole = run_in(tmp_path, [tuccl_command, *MANY_GPUS, "--workspace", "whole"])
    assert whole.returncode == 0, whole.stderr
    root = tmp_path / "stopped"
    for moment, send in moments:
        process = start([tuccl_command, *MANY_GPUS, "--workspace", root], tmp_path)
        moment(process, root)
        children = psutil.Process(process.pid).children(recursive=True)
        said = terminated(process, send, children)
        assert said[-1] == LAST_LINE
        assert is_clean(said[:-1])
        assert not list(root.rglob(f"{PARTIAL_PREFIX}*"))
    done = run_in(tmp_path, [tuccl_command, *MANY_GPUS, "--workspace", root])
    assert done.returncode == 0, done.stderr
    bundles = [Workspace(place).current().bundle for place in (tmp_path / "whole", root)]
    assert bundles[0].read_bytes() == bundles[1].read_bytes()


def test_ctrl_c_leaves_no_semaphore_and_no_traceback_of_a_worker(
    start: Start, tuccl_command: str, tmp_path: Path
) -> None:
    process = start([tuccl_command, *MANY_GPUS], tmp_path)
    wait_until(process, lambda: bool(named_semaphores(process.pid)))
    semaphores = named_semaphores(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    *lines, last = said.splitlines()
    assert last == LAST_LINE.replace("terminated", "interrupted")
    assert is_clean(lines)
    assert not any(semaphore.exists() for semaphore in semaphores)


def test_a_command_that_does_not_continue_does_not_promise_it(start: Start, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "tuccl", "synthesize", "--topology", "shipped:a100-8gpu-8nic",
        "--nodes", "4", "--operation", "all_gather", "--size", "1G", "--jobs", "2",
    ]  # fmt: skip
    process = start(command, REPOSITORY)
    when_workers_are_busy(process, tmp_path)
    children = psutil.Process(process.pid).children()
    *lines, last = terminated(process, to_the_group, children)
    assert last == "tuccl: terminated"
    assert is_clean(lines)


def test_workers_that_measure_end_at_once(start: Start, tuccl_command: str, tmp_path: Path) -> None:
    command = [tuccl_command, "tune", "--topology", "shipped:h200-4gpu", "--backend", "sockets"]
    process = start(command, tmp_path)
    root = tmp_path / "tuccl-workspace"
    wait_until(process, lambda: len(psutil.Process(process.pid).children()) == 4)
    when_it_measures(process, root)
    children = psutil.Process(process.pid).children(recursive=True)
    assert terminated(process, to_the_group, children)[-1] == LAST_LINE


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_what_does_not_end_is_ended_by_force(how: signal.Signals) -> None:
    program = (
        "import hashlib\n"
        "from tuccl.crew import interrupts\n"
        "interrupts._PATIENCE_S = 0.3\n"
        "with interrupts.interrupts_kept(ends_process=True):\n"
        "    print('begun', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'key', b'salt', 2**31 - 1)  # Hours of native code.\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        wait_until(process, lambda: psutil.Process(process.pid).cpu_times().user > 0.5)
        process.send_signal(how)
        _, said = process.communicate(timeout=30)
    ends = {signal.SIGTERM: (143, "terminated"), signal.SIGINT: (130, "interrupted")}
    assert (process.returncode, said) == (ends[how][0], f"tuccl: {ends[how][1]}\n")


def test_sigterm_is_a_kind_of_ctrl_c_and_only_the_first_signal_counts() -> None:
    cleaned = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            cleaned.append(True)

    with pytest.raises(Terminated), interrupts_kept():
        work()
    assert cleaned == [True]


def test_what_fails_after_a_signal_failed_by_it() -> None:
    def lose_workers() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise RuntimeError("a worker is gone") from None

    with pytest.raises(Terminated), interrupts_kept():
        lose_workers()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_a_process_that_does_something_else_at_sigterm_goes_on_to(
    handler: signal.Handlers | Callable[..., None],
) -> None:
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with interrupts_kept():
            signal.raise_signal(signal.SIGTERM)
            raise_if_interrupted()
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handlers_are_as_before_after_the_block() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with interrupts_kept(), interrupts_kept():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_file_that_is_being_written_is_finished_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal arrives with the first byte on its way."""
    sync = os.fsync

    def interrupted(descriptor: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(Terminated), interrupts_kept():
        write_atomically(tmp_path / "folder" / "file", "whole")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]
    assert (tmp_path / "folder" / "file").read_text() == "whole"


@pytest.mark.parametrize(("rank", "says"), [("0", True), ("1", False)])
def test_rank_0_of_an_mpi_job_alone_says_it(
    capfd: pytest.CaptureFixture[str], rank: str, says: bool
) -> None:
    with interrupts_kept():  # What was said before is forgotten.
        started = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2"}
        tell_stopped(ExitCode.TERMINATED, started)
    assert bool(capfd.readouterr().err) == says


@requires_mpirun
@requires_mpi4py
@pytest.mark.slow
def test_mpirun_passes_it_on_and_one_rank_says_so(
    start: Start, tuccl_command: str, tmp_path: Path
) -> None:
    mpirun = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "4")
    tune = ("tune", "--topology", "shipped:h200-4gpu", "--backend", "sockets")
    process = start([*mpirun, tuccl_command, *tune], tmp_path)
    when_it_measures(process, tmp_path / "tuccl-workspace")
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("tuccl: terminated; the same command continues where it stopped") == 1
    assert "Traceback" not in said
    assert "leaked" not in said
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
