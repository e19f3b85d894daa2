"""Running the benchmark: real processes that behave, hang, crash or lie."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from probes.nvidia.gpu_programs import build_name
from probes.p2p.run import ENVIRONMENT, PROGRAM, p2p_binary, p2p_program, run_p2p
from tuccl.errors import MachineError

SOURCES = Path(__file__).resolve().parents[3] / "probes" / "p2p" / "benchmark"
GOLDEN = Path(__file__).with_name("golden") / "h200-4gpu.json"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program to be written by the test."""
    path = tmp_path / "program"
    monkeypatch.setenv(ENVIRONMENT, str(path))
    return path


def write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)


def test_a_report_and_the_progress_meanwhile(program: Path) -> None:
    write(program, "echo '1/2 copy engine' >&2", "echo '2/2 latency' >&2", f"cat '{GOLDEN}'")
    lines: list[str] = []
    report = run_p2p(on_progress=lines.append)
    assert lines == ["1/2 copy engine", "2/2 latency"]
    assert len(report.gpus) == 4


def test_the_program_starts_no_step_in_the_last_quarter(program: Path, tmp_path: Path) -> None:
    write(program, f"echo \"$@\" > '{tmp_path}/arguments'", f"cat '{GOLDEN}'")
    run_p2p(8)
    assert (tmp_path / "arguments").read_text().split() == ["--seconds", "6.000"]
    run_p2p()
    assert (tmp_path / "arguments").read_text().split() == ["--seconds", "45.000"]


@pytest.mark.long
def test_a_program_that_hangs_is_killed_with_its_children(program: Path, tmp_path: Path) -> None:
    write(
        program,
        "sleep 60 &",
        f"echo $! > '{tmp_path}/child'",
        "echo '3/9 latency' >&2",
        "trap '' TERM",
        "wait; wait; wait",
    )
    start = time.monotonic()
    with pytest.raises(MachineError, match=r"within 1 s and was killed.*'3/9 latency'"):
        run_p2p(1)
    assert time.monotonic() - start < 30
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not _runs(child):
            break
        time.sleep(0.02)
    assert not _runs(child)


def _runs(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_crash_is_reported_with_the_last_message(program: Path) -> None:
    write(program, "echo '1/9 copy engine' >&2", "kill -SEGV $$")
    with pytest.raises(MachineError, match=r"killed by signal 11 .*'1/9 copy engine'"):
        run_p2p()


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_no_report_at_all(program: Path, code: int) -> None:
    write(program, f"exit {code}")
    with pytest.raises(MachineError, match=f"exit code {code} without a report"):
        run_p2p()


def test_a_report_with_the_wrong_exit_code_is_refused(program: Path) -> None:
    write(program, f"cat '{GOLDEN}'", "exit 3")
    with pytest.raises(MachineError, match="exit code 3 with a report"):
        run_p2p()


def test_a_file_that_is_no_program(program: Path) -> None:
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    with pytest.raises(MachineError, match="cannot be started"):
        run_p2p()


def test_a_named_program_must_be_there(program: Path) -> None:
    with pytest.raises(MachineError, match=f"{ENVIRONMENT}=.*no executable file"):
        p2p_binary()
    program.write_text("")
    with pytest.raises(MachineError):
        p2p_binary()
    program.chmod(0o755)
    if os.geteuid() == 0 or os.access(program, os.X_OK):
        assert p2p_binary() == program


def test_without_a_program_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    folder = tmp_path / "sources"
    shutil.copytree(SOURCES, folder / "benchmark")
    monkeypatch.setattr("probes.p2p.run.__file__", str(folder / "run.py"))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MachineError, match="`tuccl build-executor` compiles it"):
        p2p_binary()
    build = build_name(p2p_program(), ["80", "90"])
    installed = tmp_path / "probes" / "p2p" / "built" / build / PROGRAM
    installed.parent.mkdir(parents=True)
    write(installed, "exit 0")
    assert p2p_binary() == installed
