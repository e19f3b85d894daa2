import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes.network.instruments.processes import Program, run
from probes.network.instruments.tcp import wait_until


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_both_streams_in_their_order_and_the_exit_code() -> None:
    ended = run(["sh", "-c", "echo a; echo b >&2; echo c; exit 3"], timeout_s=5)
    assert (ended.output, ended.exit_code, ended.timed_out) == ("a\nb\nc\n", 3, False)


def test_a_program_past_its_time_is_ended_and_what_it_wrote_is_kept() -> None:
    start = time.monotonic()
    ended = run(["sh", "-c", "echo here; sleep 60"], timeout_s=0.2)
    assert (ended.output, ended.timed_out) == ("here\n", True)
    assert time.monotonic() - start < 30


@pytest.mark.long
@pytest.mark.parametrize("trap", ["", "trap '' TERM;"], ids=["obedient", "stubborn"])
def test_nothing_that_it_started_outlives_it(trap: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"{trap} sleep 60 & echo $! > {pids}; echo $$ >> {pids}; wait; sleep 60"
    program = Program(["sh", "-c", script], lifetime_s=30)
    assert wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, 5)
    program.end()
    assert not program.is_running
    started = [int(pid) for pid in pids.read_text().split()]
    assert wait_until(lambda: not any(map(_is_alive, started)), 5)
    assert program.end() == ""


def test_a_background_process_of_one_that_ended_well_is_ended_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    run(["sh", "-c", f"sleep 60 >&- 2>&- & echo $! > {pid}"], timeout_s=5)
    assert wait_until(lambda: not _is_alive(int(pid.read_text())), 5)


@pytest.mark.long
def test_a_program_ends_in_time_even_if_its_parent_was_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"""
import time
from probes.network.instruments import processes
processes._TIMEOUT_MARGIN_S = 0
processes.Program(["sh", "-c", "echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 60"], 1)
time.sleep(60)
"""
    root = Path(__file__).resolve().parents[4]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root) as parent:
        assert wait_until(pid.exists, 10)
        os.kill(parent.pid, signal.SIGKILL)
    assert wait_until(lambda: not _is_alive(int(pid.read_text())), 5)


def test_what_cannot_be_started_is_an_error_or_said() -> None:
    try:
        ended = run(["/nowhere/to/be/found"], timeout_s=5)
    except OSError:
        return  # without `timeout` in between
    assert ended.exit_code == 127
    assert "No such file" in ended.output
