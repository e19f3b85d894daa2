"""Ctrl-C that arrives where Python drops it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.tuccl.conftest import SMALL_RUN, run_in
from tuccl.crew.interrupts import interrupts_kept, raise_if_interrupted

REPOSITORY = Path(__file__).parents[3]
# The signal arrives as the run's first record is written, in the place that is named.
INTERRUPTED_RUN = """
import os, signal, sys
from tuccl.cli.app import main

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        len("the interrupt is raised at the end of the call above")

def swallowed():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        len("the interrupt is raised at the end of the call above")
    except BaseException:
        pass

where, sys.argv = sys.argv[1], ["tuccl", *sys.argv[2:]]
arrived = []

def hook(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("run.json") and not arrived:
        arrived.append(True)
        Finalized() if where == "finalizer" else swallowed()

sys.addaudithook(hook)
main()
"""


@pytest.mark.long
@pytest.mark.parametrize("where", ["finalizer", "swallowed"])
def test_an_interrupt_that_python_drops_still_ends_the_run(
    h200: Path, tmp_path: Path, where: str
) -> None:
    command = [
        sys.executable, "-c", INTERRUPTED_RUN, where, "init", "--topology", str(h200),
        "--workspace", str(tmp_path / "w"), *SMALL_RUN,
    ]  # fmt: skip
    done = run_in(REPOSITORY, command)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1].startswith("tuccl: interrupted; ")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("w/runs/*/table.parquet")), "the run went on"


def test_a_dropped_interrupt_is_raised_again_though_nothing_asks_for_it() -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def drop_and_wait() -> None:
        Finalized()
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        drop_and_wait()
    assert time.monotonic() - started < 30


def test_handlers_are_as_before_after_the_block() -> None:
    def state() -> tuple[object, ...]:
        return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), sys.unraisablehook

    before = state()
    with interrupts_kept():
        raise_if_interrupted()
        assert state() != before
    assert state() == before


def test_a_command_that_ignores_ctrl_c_keeps_ignoring_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_kept():
            signal.raise_signal(signal.SIGINT)
            raise_if_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_ctrl_c_while_the_command_line_is_loaded_shows_no_traceback(
    tuccl_command: str, tmp_path: Path
) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    for command in ([tuccl_command], [sys.executable, "-m", "tuccl"]):
        done = run_in(tmp_path, [*command, "table"], env=variables)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "tuccl: interrupted\n")
    helped = run_in(REPOSITORY, [sys.executable, "-m", "tuccl", "--help"])
    assert helped.returncode == 0
    assert "retune" in helped.stdout
