"""Names and docstrings use the words of docs/reference/glossary.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tuccl", "scripts", "tests", "examples")
VAGUE_NAMES = {"news", "there", "other", "one"}
PRIVATE = re.compile(r"\b(wish(es|ed)?|outlast(s|ed)?|hung up|hang up)\b", re.IGNORECASE)


def sources(folders: tuple[str, ...]) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string that stands alone as a statement: of modules, classes, functions, fields."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Variables, parameters, functions and classes; `__eq__(self, other)` is Python's own habit."""
    habit = {
        argument
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__")
        for argument in node.args.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node not in habit:
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def faults_of(source: str) -> list[str]:
    """Docstrings that begin with no subject, private words, and names that name nothing."""
    tree = ast.parse(source)
    found = []
    for line, text in docstrings(tree):
        if re.match(r"\s*(Of|What)\b", text):
            found.append(f"{line}: a docstring begins with {text.split()[0]!r}")
        if match := PRIVATE.search(text):
            found.append(f"{line}: a docstring says {match[0]!r}")
    found += [
        f"{line}: {name!r} is the name of something"
        for line, name in bound_names(tree)
        if name in VAGUE_NAMES
    ]
    return sorted(found)


@pytest.mark.parametrize("path", sources(FOLDERS), ids=lambda path: str(path.relative_to(ROOT)))
def test_words(path: Path) -> None:
    assert faults_of(path.read_text(encoding="utf-8")) == []


def test_a_fault_is_found() -> None:
    source = '"""What it is."""\nclass A:\n    size: int\n    """Of it; outlasts."""\nother = 1\n'
    assert faults_of(source) == [
        "1: a docstring begins with 'What'",
        "4: a docstring begins with 'Of'",
        "4: a docstring says 'outlasts'",
        "5: 'other' is the name of something",
    ]
