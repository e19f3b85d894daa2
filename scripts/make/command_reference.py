"""The page of all commands and options, made from the command line's own declarations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer
from typer.models import ArgumentInfo, CommandInfo
from typer.utils import get_params_from_function

from tuccl.cli.app import app

HEAD = """\
# All commands and options

Every command of `tuccl` with its arguments, options, defaults and examples, as
`tuccl COMMAND --help` shows them. This page is made from the code by
`scripts/make/write_reference.py`; [Commands](commands.md) has what help has no room for.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with the words that start it."""

    words: str
    panel: str
    info: CommandInfo


def commands(group: typer.Typer = app, before: str = "tuccl", panel: str = "") -> Iterator[Command]:
    """All commands, those of groups after the commands beside them."""
    for info in group.registered_commands:
        name = info.name or str(getattr(info.callback, "__name__", "")).replace("_", "-")
        own = info.rich_help_panel if isinstance(info.rich_help_panel, str) else panel
        yield Command(f"{before} {name}", own, info)
    for inner in group.registered_groups:
        if inner.typer_instance is None:
            continue
        own = inner.rich_help_panel if isinstance(inner.rich_help_panel, str) else panel
        yield from commands(inner.typer_instance, f"{before} {inner.typer_instance.info.name}", own)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _value_name(said: Any, annotation: Any) -> str:
    if said.metavar is not None:
        return str(said.metavar).replace("|", " or ")
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(str(member.value) for member in annotation)
    return "" if "bool" in str(annotation) else str(getattr(annotation, "__name__", "")).upper()


def _default(value: Any) -> str:
    if value is ...:
        return "required"
    if value is None or value is False or value in ((), [], ""):
        return ""
    return f"`{value.as_posix() if isinstance(value, Path) else value}`"


def _row(name: str, value: Any, annotation: Any, said: Any) -> str:
    """The line of an option or argument in the table of its group."""
    declared = list(said.param_decls or ()) or [f"--{name.replace('_', '-')}"]
    meaning = "" if said.help is None else _cell(said.help)
    value_name = _value_name(said, annotation)
    if isinstance(said, ArgumentInfo):
        return f"| `{value_name}` | {_default(value)} | {meaning} |"
    names = [part for names in declared for part in names.split("/") if part.startswith("-")]
    names.sort(key=lambda option: not option.startswith("--"))
    shown = ", ".join(f"`{option}`" for option in names)
    shown = shown if not value_name else f"{shown[:-1]} {value_name}`"
    return f"| {shown} | {_default(value)} | {meaning} |"


def _tables(info: CommandInfo) -> Iterator[str]:
    """A table for each group of options, arguments first."""
    groups: dict[str, list[str]] = {}
    usage: list[str] = []
    parameters = {} if info.callback is None else get_params_from_function(info.callback)
    for name, parameter in parameters.items():
        said = parameter.default
        if said.hidden:
            continue
        if isinstance(said, ArgumentInfo):
            group = "Arguments"
            shown = said.metavar or name.upper()
            usage.append(shown if said.default is ... or shown.startswith("[") else f"[{shown}]")
        else:
            group = str(said.rich_help_panel or "Options")
        groups.setdefault(group, []).append(_row(name, said.default, parameter.annotation, said))
    yield " ".join(["[OPTIONS]", *usage])
    for group, rows in groups.items():
        yield "\n".join([f"| {group.lower()} | default | meaning |", "|---|---|---|", *rows])


def _paragraphs(info: CommandInfo) -> list[str]:
    text = cleandoc(info.help or getattr(info.callback, "__doc__", None) or "")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def _section(command: Command) -> str:
    info = command.info
    usage, *tables = _tables(info)
    paragraphs = _paragraphs(info)
    examples = [
        line.strip().removeprefix("$ ")
        for line in (info.epilog or "").splitlines()
        if line.strip().startswith("$ ")
    ]
    parts = [
        f"## `{command.words}`",
        f"`{command.words} {usage}`",
        *paragraphs,
        *tables,
        "\n".join(["```sh", *examples, "```"]),
    ]
    return "\n\n".join(parts)


def page() -> str:
    """The text of the page."""
    found = list(commands())
    listed = ["| command | group | what it does |", "|---|---|---|"]
    for command in found:
        link = f"[`{command.words}`](#{command.words.replace(' ', '-')})"
        listed.append(f"| {link} | {command.panel} | {_cell(_paragraphs(command.info)[0])} |")
    return "\n\n".join([HEAD.rstrip(), "\n".join(listed), *map(_section, found)]) + "\n"
