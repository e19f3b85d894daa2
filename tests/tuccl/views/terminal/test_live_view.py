"""The live view on a pseudo terminal: what it shows and leaves, and when it is not drawn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.conftest import SMALL_RUN, TINY_RUN
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.views.terminal.terminal_screen import Screen, Terminal, terminal
from tuccl.errors import ExitCode
from tuccl.search.trials import events
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.events import Progress
from tuccl.views.terminal.display import say
from tuccl.views.terminal.live_view import EVERY_S, LiveView, shown_progress
from tuccl.views.terminal.progress import EVERY_VARIABLE

pytestmark = pytest.mark.long

KEY = Task(Collective.ALL_REDUCE, 1 << 20, Shape(4, 1, 4))
TERM = {"TERM": "xterm"}


@contextmanager
def stderr_on_a_terminal() -> Iterator[Terminal]:
    """Standard error is a terminal in the block, which may close it to read what was written."""
    with terminal(100, 30) as opened, pytest.MonkeyPatch.context() as patch:
        stream = os.fdopen(os.dup(opened.follower), "w", encoding="utf-8")
        # Not in a fixture: pytest replaces the stream again before the test itself.
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm")
        patch.delenv("NO_COLOR", raising=False)
        with stream:
            yield opened


def take_events(view: Progress) -> None:
    assert isinstance(view, LiveView)
    view("stock NCCL", 1, 3)
    view.note(events.RunBegins("four-gpus", "nccl", (KEY,), 60.0))
    view.note(events.SamplesTaken(KEY, STOCK, (20.0,), 1.0))
    view.note(events.SamplesTaken(KEY, Config("ring", "LL", 4), (10.0,), 2.0))
    view.note(events.MeasuringBegins(KEY, Config("tree", "LL", 8), 3))


def screen_of(opened: Terminal, columns: int = 100) -> Screen:
    sys.stderr.close()
    screen = Screen(columns)
    screen.show(opened.ended())
    return screen


def test_notes_stand_above_and_the_last_state_stays() -> None:
    with stderr_on_a_terminal() as opened:
        with shown_progress(TERM) as view:
            take_events(view)
            assert isinstance(view, LiveView)
            view.draw()
            say("note: a line of 120 characters " + 89 * "x")
            sys.stderr.write("UserWarning: of a library\n")
            view.draw()
            view("stock NCCL", 3, 3)
            view.note(events.KeyDecided(KEY, Config("ring", "LL", 4), 10.0, 2.0))
        say("table and bundle written")
        screen = screen_of(opened)
        assert screen.cursor_is_visible
        note, rest, warning, run, budget, gains, sizes, row, after = screen.lines
        assert note + rest == "note: a line of 120 characters " + 89 * "x"
        assert warning == "UserWarning: of a library"
        assert run.startswith("run      four-gpus, backend nccl, 1 key, 1 s")
        assert budget == "budget   2 s of machine time of 60 s, 58 s left"
        assert gains.endswith("2.000x stock NCCL, mean of 1 key: best so far, * decided (1)")
        assert (sizes.split(), row.split()) == (["1M"], ["all_reduce", "2.00*"])
        assert after == "table and bundle written"


def test_a_command_without_a_run_shows_its_stages_and_leaves_what_took_time() -> None:
    with stderr_on_a_terminal() as opened:
        with shown_progress(TERM) as view:
            assert isinstance(view, LiveView)
            view("[red] 0000:ab:00.0", 1, 3)
            view.draw()
            time.sleep(0.6)
            view("[red] 0000:ab:00.0", 3, 3)
            view("network", 2, 2)
        assert "[red] 0000:ab:00.0: 1 of 3 (33 %)" in opened.text
        (line,) = screen_of(opened).lines
        assert line.startswith("over     [red] 0000:ab:00.0 ")


def test_it_is_drawn_by_itself_and_rarely() -> None:
    with stderr_on_a_terminal() as opened:
        began_s = time.monotonic()
        with shown_progress(TERM) as view:
            take_events(view)
            opened.wait_for("tree LL ch8, 3 samples", times=2)
        drawings = opened.text.count("tree LL ch8, 3 samples")
        assert 2 <= drawings <= 1 + 4.0 * (time.monotonic() - began_s)


@pytest.mark.parametrize("columns", [90, 60, 33, 160])
def test_a_terminal_of_another_width_shows_one_view(columns: int) -> None:
    with stderr_on_a_terminal() as opened:
        with shown_progress(TERM) as view:
            take_events(view)
            assert isinstance(view, LiveView)
            say("note: before")
            view.draw()
            sys.stderr.flush()
            opened.wait_for("all_reduce")
            screen = Screen(100)
            shown = opened.mark()
            screen.show(shown)
            screen.resize(columns)
            opened.resize(columns, 30)
            view.draw()
        sys.stderr.close()
        screen.show(opened.ended().removeprefix(shown))
        assert screen.lines[0] == "note: before"
        assert screen.lines[1].startswith("run      four-gpus")
        assert sum(line.startswith("run ") for line in screen.lines) == 1
        assert len(screen.lines) == 6
        assert screen.cursor_is_visible


@pytest.mark.parametrize(
    ("environment", "columns", "rows"),
    [
        ({"TERM": "dumb"}, 100, 30),
        ({}, 100, 30),
        (TERM, 79, 30),
        (TERM, 100, 19),
        (TERM, 0, 0),
        (TERM | {"OMPI_COMM_WORLD_RANK": "0"}, 100, 30),
    ],
)
def test_lines_are_printed_where_the_view_would_not_fit(
    environment: dict[str, str], columns: int, rows: int
) -> None:
    with stderr_on_a_terminal() as opened:
        opened.resize(columns, rows)
        with shown_progress(environment | {EVERY_VARIABLE: "20ms"}) as progress:
            progress("stock NCCL", 1, 3)
            opened.wait_for("stock NCCL: 1 of 3 (33 %)")
        assert "\x1b" not in opened.text


def test_lines_are_printed_where_the_bar_has_no_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal(100, 30) as opened:
        with os.fdopen(os.dup(opened.follower), "w", encoding="latin-1") as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            with shown_progress(TERM | {EVERY_VARIABLE: "20ms"}) as progress:
                progress("stock NCCL", 1, 3)
                opened.wait_for("stock NCCL: 1 of 3 (33 %)")
            monkeypatch.undo()
        assert "\x1b" not in opened.text


def test_no_color_leaves_colours_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with stderr_on_a_terminal() as opened:
        monkeypatch.setenv("NO_COLOR", "1")
        with shown_progress(TERM) as view:
            take_events(view)
            assert isinstance(view, LiveView)
            view.draw()
        assert "\x1b[32m" not in opened.text
        assert "2.00<" in screen_of(opened).lines[-1] or "2.00" in opened.text


def test_a_terminal_that_goes_away_costs_the_view_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal(100, 30) as opened:
        stream = os.fdopen(os.dup(opened.follower), "w", encoding="utf-8")
        monkeypatch.setattr(sys, "stderr", stream)
        with shown_progress(TERM) as view:
            take_events(view)
            opened.wait_for("four-gpus")
            opened.hang_up()
            time.sleep(1.5 * EVERY_S)
            view("stock NCCL", 3, 3)
        monkeypatch.undo()
        with suppress(OSError):  # Its buffer goes nowhere.
            stream.close()


def begun(folder: Path, opened: Terminal, *command: str) -> subprocess.Popen[str]:
    environment = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment | TERM,
        stdout=subprocess.PIPE,
        stderr=opened.follower,
        text=True,
        start_new_session=True,
    )


def test_init_shows_the_view_and_leaves_a_clean_terminal(
    tuccl_command: str, tmp_path: Path, h200: Path
) -> None:
    with terminal(100, 30) as opened:
        modes = termios.tcgetattr(opened.follower)
        words = ["init", "--topology", str(h200), *TINY_RUN, "--json"]
        process = begun(tmp_path, opened, tuccl_command, *words)
        document, _ = process.communicate(timeout=120)
        assert termios.tcgetattr(opened.follower) == modes
        screen = Screen(100)
        screen.show(opened.ended())
    assert process.returncode == ExitCode.OK
    assert len(check("table", document)["keys"]) == 1
    assert screen.cursor_is_visible
    said = "\n".join(screen.lines)
    assert said.startswith("h200-4gpu: 4 GPUs on 1 node(s); all_gather; 64K")
    assert said.count("run      h200-4gpu, backend simulated, 1 key, ") == 1
    modelled = "schedules do not count: no job runs them, they are modelled"
    assert f"* decided (1)\n         {modelled}\n              64K\nall_gather  " in said
    assert screen.lines[-1].startswith("next: tuccl ship DIR")


def test_an_interrupted_init_leaves_the_last_state_and_one_line(
    tuccl_command: str, tmp_path: Path, h200: Path
) -> None:
    with terminal(100, 30) as opened:
        words = ["init", "--topology", str(h200), *SMALL_RUN]
        process = begun(tmp_path, opened, tuccl_command, *words)
        opened.wait_for("stage")
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        screen = Screen(100)
        screen.show(opened.ended())
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert screen.cursor_is_visible
    *_, last = screen.lines
    assert last == "tuccl: interrupted; the same command continues where it stopped"
    assert sum(line.startswith("run ") for line in screen.lines) == 1
    assert not any(line.startswith("stage") for line in screen.lines)
