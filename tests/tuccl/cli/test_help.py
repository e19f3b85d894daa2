"""Help, refusals of the command line and completion, as a user sees them."""

import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise

import pytest
import typer

from tests.tuccl.conftest import Run
from tuccl.cli.app import app

PANEL = re.compile(r"^\u256d\u2500 (.*?) \u2500", re.MULTILINE)


def commands(group: typer.Typer, *before: str) -> Iterator[tuple[str, ...]]:
    for command in group.registered_commands:
        name = command.name or str(getattr(command.callback, "__name__", ""))
        yield (*before, name.replace("_", "-"))
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, *before, str(inner.typer_instance.info.name))


ALL = tuple(commands(app))


@pytest.fixture(autouse=True)
def hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_all_commands_are_found() -> None:
    assert ("init",) in ALL
    assert ("topology", "diff") in ALL


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_names_values_has_no_type_of_flags_and_ends_with_an_example(
    run_inside: Run, words: tuple[str, ...]
) -> None:
    shown = run_inside(*words, "--help").stdout
    assert "<bool>" not in shown
    assert max(map(len, shown.splitlines())) <= 100
    example = shown.partition("Example")[2]
    assert f"tuccl {' '.join(words)}" in example
    options = [line for line in shown.splitlines() if re.match(r"\u2502 \*?\s*--", line)]
    assert options
    assert not [line for line in options if re.search(r"<(str|int|float|path)>", line)]


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_paragraphs_of_help_wrap(
    run_inside: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    above_options = run_inside(*words, "--help").stdout.partition("\u256d")[0]
    lines = [line.strip() for line in above_options.splitlines()]
    for line, following in pairwise(lines):
        if line and following:
            assert len(f"{line} {following.split()[0]}") > 78, "the next word fits here"


@pytest.mark.parametrize("command", ["init", "tune", "ship"])
def test_force_stands_with_the_options_of_run_and_output(run_inside: Run, command: str) -> None:
    panels = run_inside(command, "--help").stdout.split("\u256d\u2500 ")
    (panel,) = [panel for panel in panels if "--force" in panel]
    assert panel.startswith("Run and output")


def test_help_of_init_is_in_groups_and_says_that_it_probes(run_inside: Run) -> None:
    shown = run_inside("init", "--help").stdout
    assert set(PANEL.findall(shown)) >= {
        "Machine", "What is tuned", "How it is measured", "Search", "Run and output",
    }  # fmt: skip
    assert "this host is probed" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("init", "--bogus"), "tuccl init --help"),
        (("topology", "diff"), "tuccl topology diff --help"),
        (("bogus",), "tuccl --help"),
    ],
)
def test_a_refusal_names_the_help_of_its_command(
    run_inside: Run, words: tuple[str, ...], named: str
) -> None:
    done = run_inside(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"See `{named}`.")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "count", "found"),
    [("tuccl ex", 1, "explain"), ("tuccl init --network-l", 2, "--network-latency-us")],
)
def test_a_shell_completes_commands_and_options(
    tuccl_command: str, words: str, count: int, found: str
) -> None:
    asked = {"_TUCCL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    done = subprocess.run(
        [tuccl_command], env=asked, capture_output=True, text=True, check=True, timeout=60
    )
    assert found in done.stdout.split()
