"""A command's parameters are the fields of a dataclass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tuccl.cli.app import app
from tuccl.cli.command import command
from tuccl.errors import UsageError
from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import (
    LABORATORY,
    SEARCH,
    file_name,
    named_path,
    option,
    options_of,
    require_bounds,
)
from tuccl.options.run_options import RunOptions


@dataclass(frozen=True)
class Colours:
    place: Path = option("", "Where.", "PLACE", positional=True)
    bright: int = option(SEARCH, "How bright.", "N", default=3, bounds=(1, 9))
    only: tuple[str, ...] = option(SEARCH, "Which.", "NAME", default=())
    dark: bool = option(SEARCH, "None.", default=False)
    mixed: bool | None = option(SEARCH, "Or pure.", default=None, names=("--mixed/--pure",))
    palette: str | None = option(
        SEARCH, "Read.", "FILE", default=None, names=("--from",), parse=file_name
    )
    inks: int = option(LABORATORY, "How many.", "N", default=1)
    kept: str = "as it is"


@dataclass(frozen=True)
class Coats:
    coats: int = option(SEARCH, "How many.", "N", default=1)


TAKEN: list[tuple[Colours, int]] = []
paint = typer.Typer()


@command("paint wall", without=["mixed"], required=["bright"], helps={"dark": "Not any."})
def colour(colours: Colours, how: Coats) -> int:
    TAKEN.append((colours, how.coats))
    return 7


colour.add_to(paint)


@pytest.fixture(autouse=True)
def nothing_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    TAKEN.clear()
    monkeypatch.setenv("COLUMNS", "100")


def test_fields_are_parsed_into_the_dataclass() -> None:
    words = "wall --bright 5 --only red --only blue --dark --from x --inks 2 --coats 4"
    assert CliRunner().invoke(paint, words.split()).exit_code == 7
    here = str(Path.cwd() / "x")
    assert [(Colours(Path("wall"), 5, ("red", "blue"), True, None, here, 2), 4)] == TAKEN
    assert CliRunner().invoke(paint, ["wall", "--bright", "1"]).exit_code == 7
    assert TAKEN[1] == (Colours(Path("wall"), 1), 1)


def test_what_is_left_out_required_or_hidden_is_no_option_asked_for_or_not_shown() -> None:
    assert CliRunner().invoke(paint, ["wall"]).exit_code == 2
    assert CliRunner().invoke(paint, ["wall", "--bright", "1", "--mixed"]).exit_code == 2
    assert isinstance(CliRunner().invoke(paint, ["wall", "--bright", "10"]).exception, UsageError)
    shown = CliRunner().invoke(paint, ["--help"]).stdout
    assert {"--bright", "--only", "--from", "PLACE"} <= set(re.findall(r"--\w+|PLACE", shown))
    assert "Not any." in shown
    assert "None." not in shown
    assert "inks" not in shown
    assert TAKEN == []


def test_bounds_are_told_with_the_option_and_what_fits() -> None:
    require_bounds(Colours(Path(), 9))
    with pytest.raises(UsageError, match=r"^--bright 10 is out of range: use 1 to 9$"):
        require_bounds(Colours(Path(), 10))
    with pytest.raises(
        UsageError, match=r"--network-gbps 0\.0 is out of range: use 0\.001 to 10000"
    ):
        require_bounds(MachineOptions(network_gbps=0.0))
    with pytest.raises(UsageError, match="it is empty"):
        named_path("")


def test_every_option_of_a_run_is_one_of_init_or_tune() -> None:
    names = {"own_schedules": "--schedules", "set_variables": "--set"}
    flags = {names.get(name, f"--{name.replace('_', '-')}") for name in options_of(RunOptions)}
    group = typer.main.get_command(app)
    offered = {
        flag
        for command in ("init", "tune")
        for parameter in group.commands[command].params  # type: ignore[attr-defined]
        for flag in parameter.opts
    }
    assert flags <= offered


@pytest.mark.parametrize("command", ["init", "bench"])
def test_options_for_laboratories_are_taken_and_not_shown(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"]).stdout
    assert "--fake-nodes" not in shown
    assert "--share-gpus" not in shown
    refused = CliRunner().invoke(app, [command, "--share-gpus", "--topology", "shipped:h200-4gpu"])
    assert "No such option: --share-gpus" not in refused.output
