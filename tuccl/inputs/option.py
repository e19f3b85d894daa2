"""`option`: what a field of a dataclass says about itself as an option of the command line.

One field is a whole option: its type and default, its words in the help, its bounds. The command
line makes its parameters from the fields, run.json is read and written by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tuccl.errors import UsageError

MACHINE = "Machine"
SCOPE = "What is tuned"
MEASURING = "How it is measured"
SEARCH = "Search"
NETWORK = "Hosts and network"
OUTPUT = "Run and output"
LABORATORY = "Laboratory"
"""Hidden: real machines need none of these options."""

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """An option's words."""

    group: str
    help: str
    metavar: str | None = None
    """What its value is called; None: a flag, or the name of its type."""
    names: tuple[str, ...] = ()
    """As `--op`; empty: the field's own name."""
    positional: bool = False
    bounds: tuple[float, float] | None = None
    parse: Callable[[str], Any] | None = None
    """Makes the value of the text."""


def option(
    group: str,
    help: str,  # noqa: A002 - what typer calls it
    metavar: str | None = None,
    *,
    names: tuple[str, ...] = (),
    positional: bool = False,
    bounds: tuple[float, float] | None = None,
    parse: Callable[[str], Any] | None = None,
) -> Mapping[str, Option]:
    """Metadata for `dataclasses.field`; the arguments are those of `Option`."""
    return {_KEY: Option(group, help, metavar, names, positional, bounds, parse)}


def options_of(kind: type[Any]) -> dict[str, Option]:
    """The options of a dataclass, by field; fields that are none are left out."""
    return {one.name: one.metadata[_KEY] for one in fields(kind) if _KEY in one.metadata}


def require_bounds(values: Any) -> None:
    """See to it that every option is within its bounds.

    Raises:
        UsageError: One is not.
    """
    for name, said in options_of(type(values)).items():
        value = getattr(values, name)
        if said.bounds is None or value is None:
            continue
        least, most = said.bounds
        if not least <= value <= most:
            raise UsageError(
                f"{flag_of(name, said)} {value} is out of range: use {least:.10g} to {most:.10g}"
            )


def flag_of(name: str, said: Option) -> str:
    """How an option is named on the command line."""
    return next(iter(said.names), f"--{name.replace('_', '-')}")


def machine_name(text: str) -> str:
    """A machine's name that serves from any directory; its reader is imported when there is one."""
    from tuccl.inputs.machine_argument import absolute_machine_argument  # noqa: PLC0415 - late

    return absolute_machine_argument(text)


def file_name(text: str) -> str:
    """A file's name that serves from any directory."""
    from tuccl.workspace.atomic_file import absolute  # noqa: PLC0415 - late

    return str(absolute(Path(text)))


def named_path(text: str) -> Path:
    """A path that is not empty, as one of a shell variable that was never set is.

    Raises:
        UsageError: It is empty; who parses says which.
    """
    if not text:
        raise UsageError("it is empty.")
    return Path(text)
