"""Layout of help: paragraphs that wrap, options in groups, flags without a type, examples below."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from tuccl.options.option import OUTPUT


class Command(TyperCommand):
    """A command whose help wraps, and whose flags show no type, since they take no value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.help is not None:
            self.help = _unwrapped(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, `--help` among them."""
        params = _without_flag_types(super().get_params(ctx))
        for param in params:
            if "--help" in param.opts:
                param.rich_help_panel = OUTPUT
        return params


class Group(TyperGroup):
    """A group of commands, whose own flags show no type either."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, `--help` among them."""
        return _without_flag_types(super().get_params(ctx))


def _unwrapped(text: str) -> str:
    """The paragraphs of a docstring, one line each: typer keeps the line breaks that it finds."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag and param.metavar is None:
            param.metavar = ""
    return params


def examples(*commands: str) -> str:
    """Return the lines below a command's options."""
    name = "Example" if len(commands) == 1 else "Examples"
    return "\n\n".join([f"{name}:", *(f"  $ {command}" for command in commands)])
