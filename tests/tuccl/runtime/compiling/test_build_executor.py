"""`tuccl build-executor`: real compilers on a small library, and compilers that fail or hang."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from probes.nvidia.gpu_programs import GpuProgram, build_name, find_build
from probes.p2p.run import p2p_program
from tests.tuccl.conftest import Run
from tuccl.errors import HostError, UsageError
from tuccl.runtime import executor_program
from tuccl.runtime.compiling.cuda_toolkit import architectures_here, read_architectures
from tuccl.runtime.compiling.executor_build import build

pytestmark = pytest.mark.long

SOURCES = {
    "part/sources.cmake": "set(s ${part_folder}/one.cu ${part_folder}/two.cc ${x_folder}/../c.c)",
    "part/one.h": "int two(int);\n",
    "part/exports.map": "{ global: answer; local: *; };\n",
    "part/one.cu": '#include "one.h"\n#include "c.h"\n'
    "__global__ void kernel(int *at) { *at = 1; }\n"
    "void launch(int *at) { kernel<<<1, 1>>>(at); }\n"
    'extern "C" __attribute__((visibility("default"))) int answer() { return two(c()); }\n',
    "part/two.cc": '#include <cuda_runtime_api.h>\n#include "one.h"\n'
    "int two(int n) { return 2 * n + (CUDART_VERSION < 12000); }\n",
    "c.h": '#ifdef __cplusplus\nextern "C"\n#endif\nint c(void);\n',
    "c.c": '#include "c.h"\nint c(void) { return 21; }\n',
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuProgram:
    """A library of C, C++ and CUDA in a package of its own."""
    package = tmp_path / "installed" / "small"
    for name, text in SOURCES.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return GpuProgram("libsmall.so", package, "small", package / "part")


@pytest.fixture
def need_compilers() -> None:
    for name in ("nvcc", "g++", "gcc"):
        if shutil.which(name) is None:
            pytest.skip(f"no {name}")


@pytest.fixture
def stand_in_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Names an nvcc that tells about itself and does otherwise what a shell command says."""

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # Logs stay there.

    def put(command: str, release: str = "12.4") -> Path:
        path = tmp_path / "nvcc"
        path.write_text(
            "#!/bin/sh\ncase $1 in\n"
            f"--version) echo 'Cuda compilation tools, release {release}, V{release}.1'; exit ;;\n"
            "--list-gpu-arch) printf 'compute_80\\ncompute_90\\n'; exit ;;\nesac\n"
            f"{command}\n"
        )
        path.chmod(0o755)
        monkeypatch.setenv("CUDACXX", str(path))
        return path

    return put


def folders(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("*") if path.name != ".lock")


@pytest.mark.usefixtures("need_compilers")
def test_a_library_is_compiled_put_into_the_package_and_not_compiled_again(
    small: GpuProgram,
) -> None:
    said: list[str] = []
    (made,) = build([small], ["90"], said.append)
    assert made.compiled
    assert made.build.path == small.package / "built" / build_name(small, ["90"]) / "libsmall.so"
    assert ctypes.CDLL(str(made.build.path)).answer() == 42
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", made.build.path], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in shown.splitlines()] == ["answer"]
    assert "libsmall.so" in said[0]
    assert "9.0" in said[0]
    (again,) = build([small], ["90"], said.append)
    assert (again.compiled, again.build) == (False, made.build)
    assert folders(small.package / "built") == [build_name(small, ["90"])]


@pytest.mark.usefixtures("need_compilers")
def test_a_further_architecture_is_added_to_those_that_are_there(small: GpuProgram) -> None:
    build([small], ["90"], print)
    (made,) = build([small], ["80"], print)
    assert made.build.architectures == ("80", "90")
    assert find_build(small) == made.build
    code = made.build.path.read_bytes()
    assert b"sm_80" in code
    assert b"sm_90" in code


@pytest.mark.usefixtures("need_compilers")
def test_what_is_there_is_compiled_again_where_asked(small: GpuProgram) -> None:
    (first,) = build([small], ["90"], print)
    first.build.path.write_bytes(b"damaged")
    (made,) = build([small], ["90"], print, force=True)
    assert made.compiled
    assert made.build == first.build
    assert ctypes.CDLL(str(made.build.path)).answer() == 42
    assert folders(small.package / "built") == [build_name(small, ["90"])]


@pytest.mark.usefixtures("need_compilers")
def test_a_build_of_other_sources_is_not_taken(small: GpuProgram) -> None:
    build([small], ["90"], print)
    (small.package / "c.c").write_text(SOURCES["c.c"].replace("21", "4"))
    assert find_build(small) is None
    (made,) = build([small], ["90"], print)
    assert made.compiled
    assert ctypes.CDLL(str(made.build.path)).answer() == 8


@pytest.mark.usefixtures("need_compilers")
def test_where_the_package_cannot_be_written_the_users_cache_is_used(
    small: GpuProgram, tmp_path: Path
) -> None:
    (small.package / "built").write_text("no folder")  # Root may write into any.
    (made,) = build([small], ["90"], print)
    place = tmp_path / "cache" / "tuccl"
    assert made.build.path == place / build_name(small, ["90"]) / "libsmall.so"
    assert find_build(small) == made.build


@pytest.mark.usefixtures("need_compilers")
def test_of_two_builds_at_once_one_waits_and_takes_what_the_other_made(
    small: GpuProgram, stand_in_nvcc: Callable[..., Path], tmp_path: Path
) -> None:
    real = shutil.which("nvcc")
    stand_in_nvcc(f'echo x >>{tmp_path}/calls; exec {real} "$@"')
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: build([small], ["90"], said.append), range(2)))
    assert sorted(made.compiled for (made,) in results) == [False, True]
    assert (tmp_path / "calls").read_text().count("x") == 3  # one.cu, two.cc and the library.
    assert any("waiting" in line for line in said)


def test_what_a_killed_build_left_goes_with_the_next_one(
    small: GpuProgram, stand_in_nvcc: Callable[..., Path]
) -> None:
    left = small.package / "built" / ".tuccl-partial-x"
    left.mkdir(parents=True)
    stand_in_nvcc("exit 1")
    with pytest.raises(HostError):
        build([small], ["90"], print)
    assert folders(small.package / "built") == []


def test_a_compiler_that_fails_is_told_in_one_line_that_names_its_log(
    small: GpuProgram, stand_in_nvcc: Callable[..., Path]
) -> None:
    stand_in_nvcc("echo 'one.cu(3): error: wrong' >&2; exit 2")
    with pytest.raises(HostError, match=r"(one\.cu|two\.cc) does not compile") as caught:
        build([small], ["90"], print)
    message = str(caught.value)
    assert "\n" not in message
    log = Path(message.rsplit(" ", 1)[-1])
    assert "one.cu(3): error: wrong" in log.read_text()
    assert "--generate-code=arch=compute_90" in log.read_text() or "two.cc" in log.read_text()
    assert find_build(small) is None


def test_a_failure_ends_the_compilers_beside_it(
    small: GpuProgram, stand_in_nvcc: Callable[..., Path], tmp_path: Path
) -> None:
    stand_in_nvcc(
        f'case "$*" in *two.cc*) sleep 0.5; exit 1 ;; esac\n'
        f"echo $$ >{tmp_path}/pid; sleep 600 & wait"
    )
    started = time.monotonic()
    with pytest.raises(HostError):
        build([small], ["90"], print)
    assert time.monotonic() - started < 60
    if (tmp_path / "pid").exists():  # With one core only one runs at a time.
        assert group_ends(int((tmp_path / "pid").read_text()))


def group_ends(group: int, within_s: float = 20) -> bool:
    """Whether no process of this group runs, once those that were killed have died."""
    deadline = time.monotonic() + within_s
    while group_is_alive(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def group_is_alive(group: int) -> bool:
    """Whether a process of this group runs."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, in_group = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(in_group) == group and state != "Z":
            return True
    return False


@pytest.mark.parametrize(
    ("release", "architecture", "complaint"),
    [
        ("11.8", "90", r"is of CUDA 11\.8: the executor needs 12\.0 or later"),
        ("12.4", "100", r"does not compile for architecture 100; it knows 80, 90"),
    ],
)
def test_a_toolkit_that_is_too_old_is_told(
    release: str,
    architecture: str,
    complaint: str,
    small: GpuProgram,
    stand_in_nvcc: Callable[..., Path],
) -> None:
    stand_in_nvcc("exit 1", release)
    with pytest.raises(HostError, match=complaint):
        build([small], [architecture], print)


@pytest.mark.parametrize(
    ("text", "architectures"),
    [("90", ("90",)), ("9.0,8.0", ("80", "90")), ("100, 90a,90,90", ("90", "90a", "100"))],
)
def test_architectures_are_read(text: str, architectures: tuple[str, ...]) -> None:
    assert read_architectures(text) == architectures


@pytest.mark.parametrize("text", ["", ",", "hopper", "9", "90-real", "-90", "sm_90", "12345"])
def test_what_is_no_architecture_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--arch "):
        read_architectures(text)


def put_nvidia_smi(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "bin" / "nvidia-smi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("command", "architectures"),
    [
        (r"printf '9.0\n10.0\n9.0\n'", ("90", "100")),
        ("echo 'No devices were found'; exit 6", ()),
        ("echo 'NVIDIA-SMI has failed'", ()),
    ],
)
def test_the_gpus_of_this_machine_are_compiled_for(
    command: str, architectures: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path, command, monkeypatch)
    assert architectures_here() == architectures


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Builds of both programs for 80 and 121 in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = []
    for program in (executor_program(), p2p_program()):
        folder = tmp_path / "cache" / "tuccl" / build_name(program, ["80", "121"])
        folder.mkdir(parents=True)
        (folder / program.name).write_bytes(b"")
        (folder / program.name).chmod(0o755)
        paths.append(folder / program.name)
    return paths


def test_json_tells_what_is_there(finished: list[Path], run_inside: Run) -> None:
    done = run_inside("build-executor", "--arch", "121", "--json")
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert [build["path"] for build in document["builds"]] == list(map(str, finished))
    assert [build["architectures"] for build in document["builds"]] == [["80", "121"]] * 2
    assert [build["compiled"] for build in document["builds"]] == [False, False]


def test_without_gpus_architectures_must_be_named(
    tmp_path: Path, run_inside: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path, "exit 6", monkeypatch)
    done = run_inside("build-executor", "--force")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--arch 80,90" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_failure_is_one_line_and_exit_code_3(
    run_inside: Run, stand_in_nvcc: Callable[..., Path]
) -> None:
    stand_in_nvcc("echo wrong; exit 1")
    done = run_inside("build-executor", "--arch", "90", "--force")
    assert (done.returncode, done.stdout) == (3, "")
    *progress, error = done.stderr.splitlines()
    assert error.startswith("tuccl: ")
    assert "does not compile" in error
    assert "libtuccl-executor.so" in progress[0]
    assert Path(error.rsplit(" ", 1)[-1]).is_file()


def test_without_nvcc_the_exit_code_is_3(run_inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", "/there/is/no/nvcc")
    done = run_inside("build-executor", "--arch", "90", "--force")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "tuccl: no nvcc in CUDACXX=/there/is/no/nvcc: install the CUDA toolkit (12.0 or later), or "
        "name its nvcc in CUDACXX\n"
    )


def test_ctrl_c_ends_the_compilers(
    tuccl_command: str, stand_in_nvcc: Callable[..., Path], tmp_path: Path
) -> None:
    stand_in_nvcc(f"echo $$ >>{tmp_path}/pids; sleep 600 & wait")
    command = [tuccl_command, "build-executor", "--arch", "90", "--force"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pids").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "tuccl: interrupted"
    groups = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert groups
    assert [group for group in groups if not group_ends(group)] == []


@pytest.mark.slow
@pytest.mark.usefixtures("need_compilers")
def test_the_whole_executor_is_compiled(tmp_path: Path) -> None:
    """From a package that carries the sources, as the installed one does."""
    root = Path(__file__).resolve().parents[4]
    shutil.copytree(root / "tuccl", tmp_path / "tuccl", ignore=shutil.ignore_patterns("built"))
    command = [sys.executable, "-P", "-m", "tuccl", "build-executor", "--arch", "90", "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    executor, p2p = json.loads(done.stdout)["builds"]
    assert executor["compiled"]
    assert executor["path"].startswith(str(tmp_path / "tuccl" / "runtime" / "built"))
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", executor["path"]], capture_output=True, text=True, check=True
    ).stdout
    assert {"ncclAllReduce", "tuccl_executor_choose"} <= {
        line.split()[-1] for line in shown.splitlines()
    }
    answer = subprocess.run([p2p["path"]], capture_output=True, text=True, check=False)
    assert set(json.loads(answer.stdout)) <= {"error"} or answer.returncode == 0
