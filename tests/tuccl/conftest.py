"""The installed command, and a small machine to run it on."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack
from urllib.parse import quote

import pytest

from probes.files.read import shipped_machines
from tests.tuccl.measuring.workers.worker_fixtures import (  # noqa: F401 - fixtures
    cores,
    open_backend,
    stand_ins,
)
from tests.tuccl.ready_command import ReadyCommand, ReadyCommands
from tuccl.cli.app import main
from tuccl.views.terminal.progress import EVERY_VARIABLE
from tuccl.workspace.runs import Workspace

Run = Callable[..., subprocess.CompletedProcess[str]]

SMALL_RUN = ("--operations", "all_reduce,all_gather", "--min-size", "64K", "--max-size", "4M",
             "--step", "8")  # fmt: skip
TINY_RUN = ("--operations", "all_gather", "--min-size", "64K", "--max-size", "64K")
"""For what happens around a run, whatever it tunes."""


class StartOptions(TypedDict, total=False):
    """Arguments of `subprocess.run`."""

    env: Mapping[str, str]
    input: str


def run_in(
    folder: Path, command: Sequence[str | Path], **options: Unpack[StartOptions]
) -> subprocess.CompletedProcess[str]:
    """Output and exit code of a command, however it ends."""
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


@dataclass(frozen=True)
class TunedWorkspace:
    """Workspace and output of `tuccl init --topology H200 SMALL_RUN`."""

    root: Path
    stdout: str


@pytest.fixture(scope="session", autouse=True)
def _no_progress_lines() -> Iterator[None]:
    """Which lines come depends on how busy this host is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EVERY_VARIABLE, "1h")
        yield


@pytest.fixture(scope="session")
def tuccl_command() -> str:
    """Path of the installed `tuccl`: these tests show what a user gets from `pip install`."""
    beside = Path(sys.executable).with_name("tuccl")
    found = str(beside) if beside.exists() else shutil.which("tuccl")
    assert found is not None, "tuccl is not installed here: pip install '.[test]' first"
    return found


@pytest.fixture(scope="session")
def ready_command() -> Iterator[ReadyCommand]:
    """Runs `tuccl` with its modules loaded."""
    ready = ReadyCommand()
    yield ready
    ready.close()


@pytest.fixture(scope="session")
def ready_commands() -> Iterator[ReadyCommands]:
    """Run `tuccl` with its modules loaded, in environments of their own."""
    found = ReadyCommands()
    yield found
    found.close()


@pytest.fixture(scope="session")
def is_first(shared_base: Path) -> Callable[[str], bool]:
    """Whether no worker has started a command from the beginning, as users start it."""
    begun = shared_base / "begun"
    begun.mkdir(exist_ok=True)

    def is_first(name: str) -> bool:
        try:
            (begun / f"tuccl {quote(name, safe='')[:100]}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    return is_first


@pytest.fixture
def run_tuccl(
    tuccl_command: str,
    ready_command: ReadyCommand,
    ready_commands: ReadyCommands,
    is_first: Callable[[str], bool],
    tmp_path: Path,
) -> Run:
    """Run `tuccl ARGS` in an empty directory of its own.

    The first run of each command is of a new process; the others spare what they would import.
    """

    def run(*args: str | Path, **options: Unpack[StartOptions]) -> subprocess.CompletedProcess[str]:
        command, environment = [tuccl_command, *map(str, args)], options.get("env")
        ready: ReadyCommand | None = ready_command
        if environment is not None:
            ready = ready_commands.of(environment)
        if ready is None or is_first(" ".join(map(str, args[:1]))):
            return run_in(tmp_path, command, **options)
        given = options.get("input", "")
        return ready.run(tmp_path, command, given, environment=environment)

    return run


@pytest.fixture
def run_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """As `run_tuccl`, in this process: for mistakes, since a refusal is mostly imports."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
        words = ["tuccl", *map(str, args)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, int(left.value.code or 0), said.out, said.err)

    return run


@pytest.fixture(scope="session")
def shared_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of this run of the tests, the same in all its workers."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def finished_init(
    tuccl_command: str, ready_command: ReadyCommand, shared_base: Path
) -> TunedWorkspace:
    """Made once in a run of the tests, by the command, for all tests of what comes after it."""
    folder = shared_base / "finished-init"
    with (shared_base / "finished-init.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "stdout").exists():
            folder.mkdir()
            machine = str(shipped_machines()["h200-4gpu"])
            words = [tuccl_command, "init", "--topology", machine, *SMALL_RUN]
            done = ready_command.run(folder, words)
            assert done.returncode == 0, done.stderr
            (folder / "stdout").write_text(done.stdout)
    return TunedWorkspace(folder / "tuccl-workspace", (folder / "stdout").read_text())


@pytest.fixture
def tuned(finished_init: TunedWorkspace, tmp_path: Path) -> TunedWorkspace:
    """The test's own copy, where `run_tuccl` looks for one."""
    root = shutil.copytree(finished_init.root, tmp_path / "tuccl-workspace", symlinks=True)
    return replace(finished_init, root=root)


@pytest.fixture
def current_run() -> Callable[[Path], Path]:
    """Directory of the finished run of a workspace."""
    return lambda root: Workspace(root).current().root


@pytest.fixture
def h200() -> Path:
    """Four H200 behind NVSwitches."""
    return shipped_machines()["h200-4gpu"]


@pytest.fixture
def a100() -> Path:
    """Eight A100 with eight NICs."""
    return shipped_machines()["a100-8gpu-8nic"]
