"""`with_fields`: a command's parameters made from the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import typer

from tuccl.errors import UsageError
from tuccl.options.option import LABORATORY, Option, flag_of, options_of


def with_fields(
    *,
    without: Collection[str] = (),
    required: Collection[str] = (),
    helps: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace every parameter of a command that is a dataclass by the dataclass's options.

    Args:
        without: Fields without an option in this command; they keep their defaults.
        required: Fields that must be given in this command, whatever their defaults.
        helps: Help of fields in this command, instead of their own.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        kinds = get_type_hints(command, include_extras=True)
        taken: dict[str, list[str]] = {}
        parameters: list[Parameter] = []
        for name, parameter in signature(command).parameters.items():
            kind = kinds[name]
            if is_dataclass(kind) and isinstance(kind, type):
                own = [option for option in _parameters(kind, helps) if option.name not in without]
                taken[name] = [option.name for option in own]
                parameters += own
            else:
                parameters.append(parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))

        @wraps(command)
        def called(**values: Any) -> None:
            for name, names in taken.items():
                values[name] = kinds[name](**{field: _frozen(values.pop(field)) for field in names})
            command(**values)

        called.__signature__ = signature(command).replace(  # type: ignore[attr-defined]
            parameters=[
                parameter.replace(default=Parameter.empty)
                if parameter.name in required
                else parameter
                for parameter in parameters
            ]
        )
        return called

    return decorate


def _parameters(kind: type[Any], helps: Mapping[str, str]) -> Iterator[Parameter]:
    types, defaults = get_type_hints(kind), {field.name: field.default for field in fields(kind)}
    for name, said in options_of(kind).items():
        several = types[name] == tuple[str, ...]
        yield Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if defaults[name] is MISSING else defaults[name],
            annotation=Annotated[
                list[str] if several else types[name],
                _words(name, said, helps.get(name, said.help)),
            ],
        )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def parser_of(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the parser with its errors raised as typer's, which name the parameter."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error

    return parsed


def _words(name: str, said: Option, help_text: str) -> Any:
    """Return typer's description of a parameter."""
    parser = None if said.parse is None else parser_of(said.parse)
    if said.positional:
        return typer.Argument(help=help_text, metavar=said.metavar, parser=parser, readable=False)
    names = said.names or (flag_of(name, said),)
    return typer.Option(
        *names,
        help=help_text,
        metavar=said.metavar,
        parser=parser,
        readable=False,
        rich_help_panel=said.group,
        hidden=said.group == LABORATORY,
    )
