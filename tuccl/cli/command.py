"""`command`: a command of the command line, made from a function of dataclasses.

A field of the dataclasses is an option. Help wraps its paragraphs, shows options in groups and
flags without a type, and ends with examples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature, cleandoc
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tuccl.errors import UsageError
from tuccl.options.option import LABORATORY, OUTPUT, Option, flag_of, options_of, require_bounds


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line."""

    name: str
    run: Callable[..., int]
    """Takes the dataclasses of its options, and returns the exit code."""
    callback: Callable[..., None]
    """Takes the options one by one, as the parser gives them."""
    examples: tuple[str, ...]
    takes_job: bool
    """Whether the command ends with a job's own, whose options are not this command's."""

    def add_to(self, app: typer.Typer, panel: str | None = None) -> None:
        """Add the command to a group, in a panel of its help."""
        title = "Example" if len(self.examples) == 1 else "Examples"
        app.command(
            self.name,
            cls=HelpCommand,
            rich_help_panel=panel,
            epilog="\n\n".join([f"{title}:", *(f"  $ {each}" for each in self.examples)]),
            context_settings={"allow_interspersed_args": False} if self.takes_job else None,
        )(self.callback)


def command(
    *examples: str,
    name: str = "",
    without: Collection[str] = (),
    required: Collection[str] = (),
    helps: Mapping[str, str] = MappingProxyType({}),
    takes_job: bool = False,
) -> Callable[[Callable[..., int]], Command]:
    """Make a command of a function whose parameters are dataclasses of options.

    Args:
        examples: Command lines for the help.
        name: Name of the command; empty: the function's own.
        without: Fields without an option in this command; they keep their defaults.
        required: Fields that must be given in this command, whatever their defaults.
        helps: Help of fields in this command, instead of their own.
        takes_job: Whether the command ends with a job's own.
    """

    def decorate(run: Callable[..., int]) -> Command:
        kinds = {key: kind for key, kind in get_type_hints(run).items() if key != "return"}
        parameters = {
            key: [each for each in _parameters(kind, helps) if each.name not in without]
            for key, kind in kinds.items()
        }

        def callback(**values: Any) -> None:
            options = {
                key: kind(**{each.name: _frozen(values[each.name]) for each in parameters[key]})
                for key, kind in kinds.items()
            }
            for each in options.values():
                require_bounds(each)
            raise typer.Exit(run(**options))

        callback.__doc__ = run.__doc__
        callback.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                each.replace(default=Parameter.empty) if each.name in required else each
                for own in parameters.values()
                for each in own
            ]
        )
        own_name = name or run.__name__.replace("_", "-")
        return Command(own_name, run, callback, examples, takes_job)

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
                _described(name, said, helps.get(name, said.help)),
            ],
        )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _parser(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the parser with its errors raised as typer's, which name the parameter."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error

    return parsed


def _described(name: str, said: Option, help_text: str) -> Any:
    """Return typer's description of a parameter."""
    parser = None if said.parse is None else _parser(said.parse)
    if said.positional:
        return typer.Argument(help=help_text, metavar=said.metavar, parser=parser, readable=False)
    return typer.Option(
        *(said.names or (flag_of(name, said),)),
        help=help_text,
        metavar=said.metavar,
        parser=parser,
        readable=False,
        rich_help_panel=said.group,
        hidden=said.group == LABORATORY,
    )


class HelpCommand(TyperCommand):
    """A command whose help wraps, and whose flags show no type, since they take no value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.help is not None:
            # typer keeps the line breaks that it finds.
            paragraphs = cleandoc(self.help).split("\n\n")
            self.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; an option whose value is in brackets is `auto` if none follows."""
        for flag in [flag for each in self.params if _may_be_bare(each) for flag in each.opts]:
            after = args.index(flag) + 1 if flag in args else 0
            if after and (after == len(args) or args[after].startswith("-")):
                args.insert(after, "auto")
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, `--help` among them."""
        params = _without_flag_types(super().get_params(ctx))
        for param in params:
            if "--help" in param.opts:
                param.rich_help_panel = OUTPUT
        return params


class HelpGroup(TyperGroup):
    """A group of commands, whose own flags show no type either."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, `--help` among them."""
        return _without_flag_types(super().get_params(ctx))


def _may_be_bare(param: Any) -> bool:
    return isinstance(param, TyperOption) and (param.metavar or "").startswith("[")


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag and param.metavar is None:
            param.metavar = ""
    return params
