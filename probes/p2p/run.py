"""The run of the P2P benchmark: its program, deadline, progress and report."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from probes.nvidia.gpu_programs import GpuProgram, find_build
from probes.p2p.report import P2pReport, read_p2p_report
from tuccl.errors import MachineError

PROGRAM = "tuccl-p2p"
ENVIRONMENT = "TUCCL_P2P_BENCHMARK"
"""Path of another build of the program."""

Progress = Callable[[str], None]
"""Receives the current step: `2/25 copy engine, round 2/3`."""

_NOTHING_TO_MEASURE = 3
"""The program's exit code with `{"error": ...}`."""
_KILL_WAIT_S = 5.0
_MAX_REPORT = 16 << 20


def p2p_binary() -> Path:
    """Return the benchmark program of this installation.

    Raises:
        MachineError: it was not compiled from this installation's sources, or
            TUCCL_P2P_BENCHMARK names no program.
    """
    given = os.environ.get(ENVIRONMENT)
    if given:
        if os.access(given, os.X_OK) and Path(given).is_file():
            return Path(given)
        raise MachineError(f"{ENVIRONMENT}={given}: no executable file; unset or correct it")
    build = find_build(p2p_program())
    if build is None or not os.access(build.path, os.X_OK):
        raise MachineError(
            f"no {PROGRAM} in this installation: `tuccl build-executor` compiles it, which needs "
            f"nvcc (CUDA toolkit); a build from elsewhere can be named in {ENVIRONMENT}"
        )
    return build.path


def p2p_program() -> GpuProgram:
    """Return the description of the benchmark's sources and builds."""
    package = Path(__file__).parent
    return GpuProgram(PROGRAM, package, "probes/p2p", package / "benchmark")


def run_p2p(timeout_s: float = 60.0, on_progress: Progress | None = None) -> P2pReport:
    """Measure the GPUs that CUDA shows this process.

    The program is killed after `timeout_s`; it starts no step after three quarters of it.

    Raises:
        MachineError: There is no program; this host cannot be measured, or the program crashed; the
            program did not end in time and was killed with its children; its report is invalid.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - the installation's own program, without a shell
            [str(p2p_binary()), "--seconds", f"{timeout_s * 0.75:.3f}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise MachineError(f"{PROGRAM}: cannot be started: {error.strerror or error}") from error
    reader = _OutputReader(process, on_progress)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"{PROGRAM}: did not end within {timeout_s:g} s and was killed"
            f"{reader.last_line_text()}; see dmesg for the GPU driver's messages"
        ) from error
    finally:
        _end(process)
        reader.join()
    return _report(process.returncode, reader)


class _OutputReader:
    """Collects standard output, and passes on the lines of standard error as they arrive."""

    def __init__(self, process: subprocess.Popen[bytes], on_progress: Progress | None) -> None:
        self.lines: list[str] = []
        self._output: list[bytes] = []
        self._on_progress = on_progress
        self._threads = [
            threading.Thread(target=work, args=(stream,), daemon=True)
            for work, stream in ((self._collect, process.stdout), (self._follow, process.stderr))
            if stream is not None
        ]
        for thread in self._threads:
            thread.start()

    @property
    def output(self) -> str:
        """Standard output, complete after `join`."""
        return b"".join(self._output).decode("utf-8", "replace")

    def last_line_text(self) -> str:
        """Return a phrase with the last line of standard error, for an error message."""
        return f", its last message was '{self.lines[-1]:.200}'" if self.lines else ""

    def join(self) -> None:
        """Wait for the end of both streams, with a limit, since a hung driver keeps them open."""
        for thread in self._threads:
            thread.join(_KILL_WAIT_S)

    def _follow(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self.lines.append(line.decode("utf-8", "replace").strip())
                if self._on_progress is not None:
                    self._on_progress(self.lines[-1])

    def _collect(self, stream: IO[bytes]) -> None:
        with stream:
            self._output.append(stream.read(_MAX_REPORT))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the group and wait with a limit, since a process may hang in the driver."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_WAIT_S)


def _report(code: int | None, reader: _OutputReader) -> P2pReport:
    if code in {0, _NOTHING_TO_MEASURE} and reader.output.strip():
        report = read_p2p_report(reader.output)
        if code == 0:
            return report
        raise MachineError(f"{PROGRAM}: exit code {code} with a report; reinstall TuCCL")
    outcome = (
        f"was killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    )
    raise MachineError(f"{PROGRAM}: {outcome} without a report{reader.last_line_text()}")
