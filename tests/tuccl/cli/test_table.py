"""The cost of showing a table, and its layout on narrow terminals."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.tuccl.conftest import Run, TunedWorkspace

pytestmark = pytest.mark.long


SHOW = """
import contextlib, io, sys
from pathlib import Path
from tuccl.cli.table import TableOptions, table
with contextlib.redirect_stdout(io.StringIO()):
    table.run(TableOptions(Path(sys.argv[1])))
print(*sys.modules, sep="\\n")
"""


def test_looking_at_a_table_imports_nothing_that_makes_one(tuned: TunedWorkspace) -> None:
    """`tuccl table` took 2.75 s with all that, and 0.87 s without."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SHOW, str(tuned.root)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    packages = {name.partition(".")[0] for name in loaded}
    assert not packages & {
        "sketches",
        "synthesizer",
        "networkx",
        "optuna",
        "pulp",
    }
    assert not loaded & {
        "tuccl.tuning.pipeline.stages",
        "tuccl.tuning.settings",
        "tuccl.measuring.backends.backend_choice",
    }


def shown_on_a_terminal(command: str, tuned: TunedWorkspace, columns: int, **others: str) -> str:
    """Return the output of `tuccl table` on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    words = [command, "table", str(tuned.root)]
    with subprocess.Popen(
        words, stdout=theirs, env={**environment, "TERM": "xterm", **others}
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:  # How Linux says that the other side is closed.
                break
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()


@pytest.mark.parametrize("columns", [80, 100])
def test_no_number_is_cut_where_there_is_little_room(
    tuccl_command: str, run_tuccl: Run, tuned: TunedWorkspace, columns: int
) -> None:
    shown = shown_on_a_terminal(tuccl_command, tuned, columns)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "…" not in plain
    rows = [line for line in plain.splitlines() if line.startswith(" all_")]
    assert len(rows) >= 6
    assert max(map(len, rows)) <= columns
    wide = [line for line in run_tuccl("table").stdout.splitlines() if line.startswith(" all_")]
    assert [row.split()[:5] for row in rows] == [row.split()[:5] for row in wide]


def test_the_terminal_that_mpirun_gives_its_first_rank_is_none(
    tuccl_command: str, run_tuccl: Run, tuned: TunedWorkspace
) -> None:
    shown = shown_on_a_terminal(tuccl_command, tuned, 80, OMPI_COMM_WORLD_RANK="0")
    assert shown.replace("\r\n", "\n") == run_tuccl("table").stdout


@pytest.mark.usefixtures("tuned")
def test_a_full_standard_output_is_named(tuccl_command: str, tuned: TunedWorkspace) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [tuccl_command, "table", str(tuned.root)],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("tuccl: standard output or a temporary file: No space")
