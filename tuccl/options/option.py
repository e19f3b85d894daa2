"""`option`: metadata that makes a dataclass's field an option of the command line.

One field is a whole option: its type and default, its help, its bounds. The command line makes its
parameters from the fields; run.json is read and written by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, overload

from tuccl.errors import UsageError

DEFAULT_WORKSPACE = Path("tuccl-workspace")
"""Directory of the runs if no other is named; the help of commands shows it."""

MACHINE = "Machine"
SCOPE = "What is tuned"
MEASURING = "How it is measured"
SEARCH = "Search"
NETWORK = "Hosts and network"
OUTPUT = "Run and output"
LABORATORY = "Laboratory"
"""Group of hidden options, which no real machine needs."""

_KEY = "option"
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Option:
    """The help, names and bounds of an option."""

    group: str
    help: str
    metavar: str | None = None
    """Name of the value; None: a flag, or the name of its type."""
    names: tuple[str, ...] = ()
    """Names as `--op`; empty: the field's own name."""
    positional: bool = False
    bounds: tuple[float, float] | None = None
    parse: Callable[[str], Any] | None = None
    """Parser of the value."""
    counts: bool = True
    """Whether the identity of a run has the value as given; else it has what follows from it."""


def metadata(said: Option) -> Mapping[str, Option]:
    """Return the metadata of a dataclass's field that is an option, for several commands."""
    return {_KEY: said}


@overload
def option(
    group: str,
    help: str,
    metavar: str | None = ...,
    *,
    default: _Value,
    names: tuple[str, ...] = ...,
    positional: bool = ...,
    bounds: tuple[float, float] | None = ...,
    parse: Callable[[str], Any] | None = ...,
    counts: bool = ...,
) -> _Value: ...
@overload
def option(group: str, help: str, metavar: str | None = ..., **said: Any) -> Any: ...
def option(
    group: str,
    help: str,  # noqa: A002 - what typer calls it
    metavar: str | None = None,
    *,
    default: Any = MISSING,
    **said: Any,
) -> Any:
    """Return a dataclass's field that is an option; without a default it must be given.

    The other arguments are those of `Option`.
    """
    return field(default=default, metadata=metadata(Option(group, help, metavar, **said)))


def options_of(kind: type[Any]) -> dict[str, Option]:
    """Return the options of a dataclass by field, without fields that are no options."""
    return {field.name: field.metadata[_KEY] for field in fields(kind) if _KEY in field.metadata}


def counted(values: Any, group: str | None = None) -> dict[str, Any]:
    """Return the options that a run's identity has as given; those of one group, if it is named."""
    return {
        name: getattr(values, name)
        for name, said in options_of(type(values)).items()
        if said.counts and group in {None, said.group}
    }


def require_bounds(values: Any) -> None:
    """Require every option to be within its bounds.

    Raises:
        UsageError: An option is out of its bounds.
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
    """Return an option's name on the command line."""
    return next(iter(said.names), f"--{name.replace('_', '-')}")


def machine_name(text: str) -> str:
    """Return a machine's name with an absolute path; its reader is imported at the first use."""
    from tuccl.options.machine_argument import absolute_machine_argument  # noqa: PLC0415 - late

    return absolute_machine_argument(text)


def file_name(text: str) -> str:
    """Return a file's absolute path."""
    from tuccl.workspace.atomic_file import absolute  # noqa: PLC0415 - late

    return str(absolute(Path(text)))


def named_path(text: str) -> Path:
    """Parse a path; an unset shell variable gives an empty one, which is refused.

    Raises:
        UsageError: It is empty; the caller names the option.
    """
    if not text:
        raise UsageError("it is empty.")
    return Path(text)


AS_JSON = metadata(Option(OUTPUT, "Write JSON to standard output.", names=("--json",)))
WORKSPACE = metadata(Option(OUTPUT, "Directory that holds the runs.", "DIR"))
SHIPPED_DIRECTORY = metadata(
    Option("", "A directory of `tuccl ship`.", "DIR", positional=True, parse=named_path)
)
TABLE_DIRECTORY = metadata(
    Option(
        "", "A workspace, or a directory of `tuccl ship`.", "DIR", positional=True, parse=named_path
    )
)
WORKSPACE_DIRECTORY = metadata(Option("", "A workspace.", "DIR", positional=True, parse=named_path))
OUTPUT_FILE = ("--output", "-o")
"""Names of the option for the file that a command writes."""
