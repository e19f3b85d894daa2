"""Shell blocks of documents: commands that need no GPU are run as they are printed."""

import re
import shlex
from pathlib import Path

import pytest

from tests.printed_commands import commands_of, shell_lines
from tests.tuccl.conftest import Run
from tuccl.errors import ExitCode

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITHOUT_GPUS = {"doctor", "explain", "report", "retune", "ship", "show", "synthesize", "table"}
ABSOLUTE = re.compile(r"^(?:/tmp)?(/(?:shared|shipped)\b)")
"""Places outside the directory in which a page's commands are run."""
TOPOLOGY = {"diff", "draw", "export", "import", "show"}
LEFT_OUT = {
    "tuccl ship /shared/tuccl --check --hosts 'node[01-16]'": "there are no such hosts",
    "tuccl table --shape node": "the table here has no shapes",
    "tuccl explain all_gather 1M --ranks 8 --nodes 1": "the machine here has four GPUs",
    "tuccl report --run 939926dc7f647bff": "the run is another",
    "tuccl report shown": "the record whose replay made it is not here",
    "tuccl doctor --process 4711": "there is no such process",
    "tuccl doctor": "the environment of these tests has no table",
}
WITH_JOBS = ("--follow", "--verdicts")
"""Options that need a job with the table, or serve for ever."""


def commands_without_gpus() -> list[str]:
    """Commands that a line begins with, as they are printed, but those with jobs."""
    found: dict[str, None] = {}
    for page in PAGES:
        for line in shell_lines(page.read_text(encoding="utf-8")):
            for words in commands_of(line):
                known = words[1] in WITHOUT_GPUS or words[1:2] + words[2:3] in [
                    ["topology", name] for name in TOPOLOGY
                ]
                if known and line.startswith("tuccl "):
                    found.setdefault(shlex.join(words))
    return [
        command
        for command in found
        if command not in LEFT_OUT and not any(option in command for option in WITH_JOBS)
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("tuned")
def test_printed_commands_do_not_refuse_what_they_are_given(
    run_tuccl: Run, tmp_path: Path, h200: Path
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "tuccl-workspace").symlink_to(tmp_path / "tuccl-workspace")
    (tmp_path / "W").symlink_to(tmp_path / "tuccl-workspace")
    (tmp_path / "topo.xml").write_bytes(h200.read_bytes())
    for name in ("machine", "cluster", "before", "after"):
        assert run_tuccl("topology", "import", h200, "-o", f"{name}.json").returncode == 0
    half = (tmp_path / "topo.xml").read_text().replace('count="18"', 'count="9"')
    (tmp_path / "half.xml").write_text(half)
    commands = commands_without_gpus()
    assert len(commands) > 25
    # What others look at is shipped first.
    commands.sort(key=lambda command: not command.startswith("tuccl ship"))
    refused = {}
    for command in commands:
        words = [ABSOLUTE.sub(rf"{tmp_path}\1", word) for word in shlex.split(command)[1:]]
        done = run_tuccl(*words)
        if done.returncode not in {ExitCode.OK, ExitCode.FINDING}:
            refused[command] = f"{done.returncode}: {done.stderr}"
    assert refused == {}
