"""The page of the Python interface, made from the signatures and docstrings of `tuccl`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from inspect import cleandoc, getsource, isclass
from textwrap import dedent
from types import FunctionType
from typing import Any

import tuccl

HEAD = """\
# The Python interface

Every name of `import tuccl` with its signature and meaning. [From Python](../guide/python.md) shows
how they are used together.
"""
_SECTIONS = {"Args:": "Arguments:", "Returns:": "Returns:", "Raises:": "Raises:"}
_DEFAULT = re.compile(r"(?<=[\w\])])=(?=\S)")


def _definition(kind: Any) -> ast.FunctionDef | ast.ClassDef:
    (found,) = ast.parse(dedent(getsource(kind))).body
    if not isinstance(found, ast.FunctionDef | ast.ClassDef):
        raise TypeError(f"{kind}: neither a function nor a class")
    return found


def _signature(function: ast.FunctionDef) -> str:
    """The signature, an argument a line where it is long."""
    taken = _DEFAULT.sub(" = ", ast.unparse(function.args))
    result = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    line = f"{function.name}({taken}){result}"
    if len(line) <= 88:
        return line
    arguments, depth, start = [], 0, 0
    for place, letter in enumerate(taken):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            arguments.append(taken[start:place].strip())
            start = place + 1
    arguments.append(taken[start:].strip())
    return "\n".join([f"{function.name}(", *(f"    {taken}," for taken in arguments), f"){result}"])


def _text(docstring: str | None) -> Iterator[str]:
    """The paragraphs of a docstring; arguments and errors as lists."""
    for paragraph in cleandoc(docstring or "").split("\n\n"):
        head, _, rest = paragraph.partition("\n")
        if head not in _SECTIONS:
            yield " ".join(paragraph.split())
            continue
        yield _SECTIONS[head]
        items: list[str] = []
        for line in dedent(rest).splitlines():
            if line.startswith(" ") and items:
                items[-1] += f" {line.strip()}"
            else:
                items.append(line.strip())
        if head == "Returns:":
            yield " ".join(items)
        else:
            yield "\n".join(f"- {_named(item)}" for item in items)


def _named(item: str) -> str:
    name, colon, text = item.partition(": ")
    return f"`{name.replace(', ', '`, `')}`: {text}" if colon else item


def _fields(definition: ast.ClassDef) -> Iterator[str]:
    """A row for each public field, with the docstring below it."""
    for node, below in zip(definition.body, [*definition.body[1:], None], strict=True):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        if node.target.id.startswith("_"):
            continue
        said = ""
        if (
            isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            said = " ".join(below.value.value.split()).replace("|", "\\|")
        kind = ast.unparse(node.annotation).replace("|", "or")
        yield f"| `{node.target.id}` | `{kind}` | {said} |"


def _methods(definition: ast.ClassDef) -> Iterator[str]:
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            is_property = any("property" in ast.unparse(mark) for mark in node.decorator_list)
            shown = node.name if is_property else f"{node.name}()"
            said = next(_text(ast.get_docstring(node)), "").replace("|", "\\|")
            yield f"| `{shown}` | {said} |"


def _section(name: str) -> str:
    value = getattr(tuccl, name)
    definition = _definition(value)
    parts = [f"## `{name}`"]
    if isinstance(definition, ast.FunctionDef):
        parts.append(f"```py\n{_signature(definition)}\n```")
    parts += list(_text(ast.get_docstring(definition)))
    if isinstance(definition, ast.ClassDef):
        homes = [base for base in reversed(value.__mro__) if is_dataclass(base)] or [value]
        definitions = [each for each in map(_definition, homes) if isinstance(each, ast.ClassDef)]
        # A member that a class states anew has the row of that class.
        fields = {row.split("|")[1]: row for each in definitions for row in _fields(each)}
        if is_dataclass(value) and fields:
            parts.append(
                "\n".join(["| field | type | meaning |", "|---|---|---|", *fields.values()])
            )
        methods = {row.split("|")[1]: row for each in definitions for row in _methods(each)}
        if methods:
            parts.append("\n".join(["| member | meaning |", "|---|---|", *methods.values()]))
    return "\n\n".join(parts)


def page() -> str:
    """The text of the page: functions, then types, then errors."""
    functions: list[str] = []
    types: list[str] = []
    errors: list[str] = []
    for name in sorted(tuccl.__all__):
        value = getattr(tuccl, name)
        if isinstance(value, FunctionType):
            functions.append(name)
        elif isclass(value):
            (errors if issubclass(value, Exception) else types).append(name)
    return "\n\n".join([HEAD.rstrip(), *map(_section, [*functions, *types, *errors])]) + "\n"
