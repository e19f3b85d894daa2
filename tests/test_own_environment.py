"""No function changes the environment of its process: child processes are given one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tuccl import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
IN_A_WORKER = {"tuccl/measuring/engines/nccl_engine.py", "tuccl/runtime/executor_library.py"}
"""NCCL and the executor read their variables in the process that loads them, a worker that runs
nothing else."""
CHANGES = {"update", "pop", "popitem", "setdefault", "clear", "__setitem__", "__delitem__"}


def is_environ(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "os.environ"


def changes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes at which a module writes to os.environ."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            written = is_environ(node.value)
        elif isinstance(node, ast.AugAssign):
            written = is_environ(node.target)
        elif isinstance(node, ast.Attribute) and node.attr in CHANGES:
            written = is_environ(node.value)
        else:
            called = isinstance(node, ast.Call) and ast.unparse(node.func)
            written = called in {"os.putenv", "os.unsetenv"}
        if written:
            yield node


def test_no_module_changes_it() -> None:
    paths = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    assert len(paths) > 300
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    found = {
        path.relative_to(ROOT).as_posix()
        for path, text in texts.items()
        if re.search("environ|putenv|unsetenv", text) and any(changes(ast.parse(text)))
    }
    assert found == IN_A_WORKER
