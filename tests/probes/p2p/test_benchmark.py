"""The CUDA program: it compiles without warnings, and reports in one line why it cannot measure."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from probes.p2p.report import Figure, P2pQuantity, read_p2p_report
from probes.p2p.run import ENVIRONMENT, run_p2p
from tests.kept_builds import compiler_words, content_sum, kept
from tuccl.errors import MachineError

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "probes" / "p2p" / "benchmark"
NATIVE = Path(__file__).with_name("native")


@pytest.fixture(scope="session")
def benchmark() -> Path:
    """The program, compiled once with warnings as errors."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None or shutil.which("cmake") is None:
        pytest.skip("the CUDA program cannot be compiled here: no nvcc or no cmake")
    target, place = "tuccl-p2p", Path("probes", "p2p", "benchmark")
    options = ["-DTUCCL_WARNINGS_AS_ERRORS=ON", "-DCMAKE_CUDA_ARCHITECTURES=75"]

    def compile_in(folder: Path) -> None:
        build = folder / "build"
        for command in (
            ["cmake", "-S", str(ROOT), "-B", str(build), *options],
            ["cmake", "--build", str(build), "--target", target, "-j2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        (build / place / target).rename(folder / target)
        shutil.rmtree(build)

    sources = [path for path in SOURCES.rglob("*") if path.is_file()]
    lists = [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*"), *SOURCES.rglob("*.txt")]
    compilers = [word for name in (nvcc, "cmake", "c++") for word in compiler_words(name)]
    everything = sorted(path for path in [*sources, *lists] if path.is_file())
    return kept(content_sum([*compilers, *options], everything), compile_in) / target


@pytest.fixture(scope="session")
def describe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    output = tmp_path_factory.mktemp("describe") / "describe"
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", "-o"]
    sources = [NATIVE / "describe.cpp", SOURCES / "report.cpp"]
    subprocess.run([*command, output, *sources], check=True)
    return output


def call(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program without visible GPUs."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, env=environment
    )


def test_without_a_gpu_the_reason_is_one_line_of_json(benchmark: Path) -> None:
    done = call(benchmark)
    assert done.returncode == 3
    assert done.stdout.count("\n") == 1
    assert set(json.loads(done.stdout)) == {"error"}
    assert "driver" in done.stdout or "no GPU is visible" in done.stdout


def test_without_a_gpu_the_reason_reaches_the_caller(
    benchmark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv(ENVIRONMENT, str(benchmark))
    with pytest.raises(MachineError, match=r"^tuccl-p2p: .*(driver|GPU).*$"):
        run_p2p()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--bytes", "3"),
        ("--bytes", "many"),
        ("--bytes", "nan"),
        ("--bytes", "70000.5"),
        ("--repetitions", "0"),
        ("--seconds", "-1"),
        ("--only", "latency,everything"),
        ("--only", ""),
        ("--only",),
        ("--faster", "1"),
        ("file",),
    ],
)
def test_wrong_arguments_are_reported(benchmark: Path, arguments: tuple[str, ...]) -> None:
    done = call(benchmark, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tuccl-p2p: {arguments[0]}: ")
    assert done.stderr.count("\n") == 1


def test_help_names_every_option_and_exit_code(benchmark: Path) -> None:
    done = call(benchmark, "--help")
    assert done.returncode == 0
    for word in ("--bytes", "--repetitions", "--seconds", "--only", "Exit codes: 0", "2", "3"):
        assert word in done.stdout


def test_the_program_needs_no_cuda_library(benchmark: Path) -> None:
    if shutil.which("ldd") is None:
        pytest.skip("no ldd")
    done = subprocess.run(["ldd", benchmark], capture_output=True, text=True, check=True)
    needed = {line.split()[0] for line in done.stdout.splitlines()}
    assert not [name for name in needed if "cuda" in name.lower()]


@pytest.mark.parametrize("count", range(2, 17))
def test_rounds_hold_every_pair_once_and_no_gpu_twice(describe: Path, count: int) -> None:
    rounds = [line.split() for line in call(describe, "rounds", str(count)).stdout.splitlines()]
    pairs = [tuple(map(int, pair.split("-"))) for pairs in rounds for pair in pairs]
    assert sorted(pairs) == list(itertools.combinations(range(count), 2))
    assert len(rounds) == count - 1 + count % 2
    for members in rounds:
        ends = [end for pair in members for end in pair.split("-")]
        assert len(set(ends)) == len(ends)


@pytest.mark.parametrize(
    ("memory", "each", "left"), [(200, 64, 72), (128, 64, 0), (100, 32, 36), (8, 4, 0), (7, 0, 7)]
)
def test_buffers_shrink_until_both_fit_and_nothing_is_lost(
    describe: Path, memory: int, each: int, left: int
) -> None:
    assert call(describe, "memory", str(memory)).stdout == f"{each} {left}\n"


def test_one_gpu_needs_no_round(describe: Path) -> None:
    assert not call(describe, "rounds", "1").stdout.split()


def test_the_programs_report_is_readable(describe: Path) -> None:
    text = call(describe).stdout
    assert json.loads(text)["gpus"][0]["name"] == 'A "quoted" \\ name???'
    report = read_p2p_report(text)
    assert report.has_peer_access(1, 0)
    assert report.samples[P2pQuantity.COPY_ENGINE, (0, 1)] == (386.5, 0.333333)
    assert report.corrupt_pairs == {(0, 1)}
    assert [failure.detail for failure in report.failures] == ["other data", "a?b"]
    assert report.figure(P2pQuantity.FAN_OUT, 0) == Figure(0.001, 0.0)
    assert report.notes == ("one", "two")


def test_a_figure_that_is_not_a_number_is_refused(describe: Path) -> None:
    with pytest.raises(MachineError, match="valid number"):
        read_p2p_report(call(describe, "nan").stdout)
