"""The page of exit codes and errors, made from `tuccl.errors`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path

from tuccl import errors
from tuccl.errors import ExitCode, exit_code_of

HEAD = """\
# Exit codes and errors

The exit codes of all commands, and the errors behind them. [Commands](commands.md#exit-codes) says
how signals end a command. An error is one line on standard error: what is wrong, where, and what to
do. In Python, `tuccl.TucclError` catches every error but the last two of the tree.
"""


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """A class of errors and the exit code of a command that it ends."""

    name: str
    code: ExitCode
    text: str


def error_classes() -> Iterator[ErrorClass]:
    """All classes of errors, parents first."""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, BaseException):
            text = " ".join(cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
            # Constructors differ, and the code depends on the class alone.
            yield ErrorClass(name, exit_code_of(kind.__new__(kind)), text.replace("|", "\\|"))


def exit_code_texts() -> dict[ExitCode, str]:
    """The meaning of each exit code, which its class states below it."""
    tree = ast.parse(Path(errors.__file__).read_text(encoding="utf-8"))
    (body,) = [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "ExitCode"
    ]
    texts: dict[ExitCode, str] = {}
    for node, below in pairwise(body):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            texts[ExitCode[node.targets[0].id]] = " ".join(str(below.value.value).split())
    return texts


def page() -> str:
    """The text of the page."""
    lines = [HEAD, "## Exit codes", "", "| code | name | meaning |", "|---|---|---|"]
    for code, text in exit_code_texts().items():
        lines.append(f"| {int(code)} | `{code.name}` | {text} |")
    tree = (errors.__doc__ or "").split("\n\n")[1]
    lines += ["", "## Errors", "", "```text", tree, "```", ""]
    lines += ["| error | exit code | meaning |", "|---|---|---|"]
    lines += [f"| `{found.name}` | {int(found.code)} | {found.text} |" for found in error_classes()]
    return "\n".join(lines) + "\n"
