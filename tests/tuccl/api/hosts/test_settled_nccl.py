"""Which of several NCCLs a run measures: said once, or asked before anything is probed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.runtime.builds import compile_native
from tests.tuccl.conftest import TINY_RUN, run_in
from tests.tuccl.measuring.engines.nccl_stand_ins import ROOT, StandIns, build_stand_ins
from tests.tuccl.ready_command import ReadyCommand
from tuccl.api.hosts.settled_nccl import HostNccl, tell_nccl
from tuccl.errors import NcclLibraryError, SeveralNcclsError

pytestmark = pytest.mark.long

COMMAND = (sys.executable, "-c", "from tuccl.cli.app import main; main()")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe")
requires_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return build_stand_ins(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an NCCL 2.27.3 that does nothing but say so."""
    folder = tmp_path_factory.mktemp("system")
    source = folder / "old.c"
    source.write_text("int ncclGetVersion(int *v) { *v = 22703; return 0; }\n")
    compile_native(folder / "libnccl.so.2", [source], "-shared")
    return folder


@pytest.fixture(scope="module")
def several(stand_ins: StandIns, system: Path) -> dict[str, str]:
    """A host with four GPUs and two NCCLs."""
    return {
        "LD_LIBRARY_PATH": f"{stand_ins.folder}:{system}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{stand_ins.libraries}",
        "STAND_IN_GPUS": "4",
        "STAND_IN_NCCL_VERSION": "22809",
    }


@pytest.fixture(scope="module")
def ready(several: dict[str, str]) -> Iterator[ReadyCommand]:
    """Runs `tuccl` on that host with its modules loaded; under MPI the others start it."""
    command = ReadyCommand({**os.environ, **several})
    yield command
    command.close()


@pytest.fixture
def with_torch(
    stand_ins: StandIns, system: Path, several: dict[str, str], tmp_path: Path
) -> dict[str, str]:
    """The same host with a torch that brings one of them; the other is the system's."""
    packages = tmp_path / "packages"
    (packages / "torch" / "lib").mkdir(parents=True)
    (packages / "torch" / "__init__.py").write_text("raise RuntimeError\n")
    shutil.copy(stand_ins.nccl, packages / "torch" / "lib")
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "libcuda.so.1").symlink_to(stand_ins.folder / "libcuda.so.1")
    return {
        **several,
        "LD_LIBRARY_PATH": f"{driver}:{system}",
        "PYTHONPATH": f"{several['PYTHONPATH']}{os.pathsep}{packages}",
    }


def tuccl(
    folder: Path, variables: dict[str, str], *words: str, launcher: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    return run_in(folder, [*launcher, *COMMAND, *words], env={**os.environ, **variables})


@pytest.mark.parametrize(
    "words",
    [
        ("init",),
        ("init", "--backend", "nccl"),
        ("init", "--backend", "nccl,executor"),
        ("tune",),
        ("tune", "--backend", "nccl", "--topology", "shipped:h200-4gpu"),
    ],
)
def test_several_and_no_torch_are_asked_about_before_anything_is_probed(
    tmp_path: Path,
    ready: ReadyCommand,
    several: dict[str, str],
    system: Path,
    words: tuple[str, ...],
) -> None:
    (tmp_path / "here").mkdir()
    here = {**os.environ, **several}
    done = ready.run(tmp_path / "here", ["tuccl", *words], environment=here)
    assert (done.returncode, done.stdout) == (3, "")
    *before, last = done.stderr.splitlines()
    assert last.startswith("tuccl: different NCCLs here: 2.28.9 in ")
    assert f"2.27.3 in {system}/libnccl.so.2" in last
    assert last.endswith("name the one that the job loads in TUCCL_NCCL_LIBRARY")
    # Not modelled, on a machine with GPUs.
    assert all(line.startswith("backend: nccl") for line in before)
    assert list((tmp_path / "here").iterdir()) == []


def test_no_nccl_at_all_is_told_before_anything_is_probed(
    tmp_path: Path, ready: ReadyCommand, several: dict[str, str]
) -> None:
    (tmp_path / "here").mkdir()
    nowhere = {**os.environ, **several, "TUCCL_NCCL_LIBRARY": str(tmp_path / "none")}
    words = ["tuccl", "init", "--backend", "nccl"]
    done = ready.run(tmp_path / "here", words, environment=nowhere)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "is not an NCCL that can be loaded" in done.stderr
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.slow
def test_torchs_is_taken_and_said_once_and_retune_asks_where_torch_has_gone(
    tmp_path: Path, several: dict[str, str], with_torch: dict[str, str], system: Path
) -> None:
    tune = ("tune", "--topology", "shipped:h200-4gpu", "--backend", "nccl", "--floor", "none",
            *TINY_RUN, "--budget", "1s", "--json")  # fmt: skip
    done = tuccl(tmp_path, with_torch, *tune)
    assert done.returncode == 0, done.stderr
    own = tmp_path / "packages" / "torch" / "lib" / "libnccl.so.2"
    (said,) = (line for line in done.stderr.splitlines() if "NCCL 2.28.9" in line)
    assert said == (
        f"note: NCCL 2.28.9 in {own} is used, as this Python's torch loads it, not 2.27.3 in "
        f"{system}/libnccl.so.2; to choose another: TUCCL_NCCL_LIBRARY=PATH"
    )
    same = tuccl(tmp_path, with_torch, "retune", "--json")
    assert same.returncode == 0, same.stderr
    assert json.loads(same.stdout)["changes"] == []
    assert same.stderr.count("note: NCCL 2.28.9 in ") == 1
    asked = tuccl(tmp_path, several, "retune")
    assert (asked.returncode, len(asked.stderr.splitlines())) == (3, 1)
    assert "different NCCLs here" in asked.stderr
    named = {**with_torch, "TUCCL_NCCL_LIBRARY": str(own)}
    assert "note: NCCL" not in tuccl(tmp_path, named, *tune).stderr


@requires_mpirun
def test_under_mpi_rank_0_asks_for_all(tmp_path: Path, several: dict[str, str]) -> None:
    (tmp_path / "here").mkdir()
    done = tuccl(tmp_path / "here", several, "init", launcher=(*MPIRUN, "-np", "3"))
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("tuccl: ") == done.stderr.count("tuccl: different NCCLs here") == 1
    assert list((tmp_path / "here").iterdir()) == []


@requires_mpirun
def test_under_mpi_each_rank_looks_and_the_versions_are_one(
    tmp_path: Path, several: dict[str, str], stand_ins: StandIns, system: Path
) -> None:
    (tmp_path / "here").mkdir()

    def ranks(*named: Path) -> subprocess.CompletedProcess[str]:
        words = (*COMMAND, "init", "--backend", "nccl")
        parts = [["-np", "1", "-x", f"TUCCL_NCCL_LIBRARY={path}", *words, ":"] for path in named]
        line = [*MPIRUN, *(word for part in parts for word in part)][:-1]
        return run_in(tmp_path / "here", line, env={**os.environ, **several})

    done = ranks(stand_ins.nccl, system / "libnccl.so.2")
    assert done.returncode == 3, done.stderr
    assert "tuccl: ranks of different NCCLs cannot join: 2.28.9 on " in done.stderr
    assert "install one version on all hosts" in done.stderr
    done = ranks(stand_ins.nccl, tmp_path / "none")
    assert done.returncode == 3, done.stderr
    assert f"tuccl: {tmp_path / 'none'} is not an NCCL that can be loaded" in done.stderr
    assert list((tmp_path / "here").iterdir()) == []


def test_hosts_that_are_alike_are_noted_once_and_others_named() -> None:
    notes: list[str] = []
    first, alike = HostNccl("a", "2.28.9", "the wheel's"), HostNccl("b", "2.28.9", "the wheel's")
    tell_nccl([first, alike, alike], required=True, note=notes.extend)
    assert notes == ["the wheel's"]
    with pytest.raises(SeveralNcclsError, match=r"^on b, different"):
        tell_nccl(
            [first, HostNccl("b", problem="different", unclear=True)],
            required=False,
            note=notes.extend,
        )
    missing = HostNccl("b", problem="none here")
    with pytest.raises(NcclLibraryError, match=r"^on b, none here"):
        tell_nccl([first, missing], required=True, note=notes.extend)
    tell_nccl([first, missing], required=False, note=notes.extend)
    with pytest.raises(NcclLibraryError, match=r"2\.28\.9 on a and 2\.27\.3 on c; install"):
        tell_nccl([first, HostNccl("c", "2.27.3")], required=False, note=notes.extend)
