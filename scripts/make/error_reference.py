"""The page of exit codes and errors, made from the classes of the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path

from tuccl import PACKAGES
from tuccl.cli.app import exit_codes_of_packages
from tuccl.errors import ExitCode, TucclError

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
# Exit codes and errors

The exit codes of all commands, and the errors behind them. This page is made from the code by
`scripts/make/write_reference.py`; [Commands](commands.md#exit-codes) tells how signals end a
command. An error is one line on standard error: what is wrong, where, and what to do. In Python
(`import tuccl`) an error of a package arrives as `MachineError`, `ScheduleError` or `TableError`,
whose `__cause__` it is.
"""
ERRORS = """\
## Errors by package

The exit code is that of a command that the error ends. Errors without one are caught within TuCCL,
which goes on without what failed.

| error | module | exit code | meaning |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """A class of errors, where it is, and the exit code of a command that it ends."""

    name: str
    module: str
    code: ExitCode | None
    text: str


def _first_sentence(text: str | None) -> str:
    """The first paragraph of a docstring, in a cell of a table."""
    first = " ".join(cleandoc(text or "").split("\n\n")[0].split())
    for start in ("Raised when ", "Raised for "):
        first = first.removeprefix(start)
    return first[:1].upper() + first[1:].replace("|", "\\|")


def _exit_code(kind: type[Exception]) -> ExitCode | None:
    if issubclass(kind, TucclError):
        return kind.exit_code
    if issubclass(kind, OSError):
        return ExitCode.ENVIRONMENT
    return next((code for root, code in exit_codes_of_packages() if issubclass(kind, root)), None)


def error_classes() -> Iterator[ErrorClass]:
    """All classes of errors, by module."""
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and node.name.endswith("Error")
            and not node.name.startswith("_")
        ]
        if not names:
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in names:
            kind = getattr(import_module(module), name)
            yield ErrorClass(name, module, _exit_code(kind), _first_sentence(kind.__doc__))


def exit_code_texts() -> dict[ExitCode, str]:
    """The meaning of each exit code, which its class states below it."""
    tree = ast.parse((ROOT / "tuccl" / "errors.py").read_text(encoding="utf-8"))
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
    lines += ["", ERRORS.rstrip()]
    for found in error_classes():
        shown = "-" if found.code is None else str(int(found.code))
        lines.append(f"| `{found.name}` | `{found.module}` | {shown} | {found.text} |")
    return "\n".join(lines) + "\n"
