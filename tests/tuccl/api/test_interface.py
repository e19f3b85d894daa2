"""`import tuccl` as a whole: lazy, typed, documented."""

import ast
import inspect
import resource
import subprocess
import sys
from dataclasses import fields, is_dataclass

import pytest

import tuccl
from tests.kept_builds import ROOT

PAGE = (ROOT / "docs" / "guide" / "python.md").read_text(encoding="utf-8")
NAMES = [name for name in tuccl.__all__ if not name.startswith("__")]


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def root_of(module: str) -> str:
    return module.partition(".")[0]


def test_importing_it_imports_nothing_of_what_it_does() -> None:
    code = "import sys; before = set(sys.modules); import tuccl; print(*set(sys.modules) - before)"
    loaded = {name for name in python(code).split() if root_of(name) not in sys.stdlib_module_names}
    assert loaded == {"tuccl"}


def cpu_s(code: str) -> float:
    """Time of a Python on its core, which a busy machine lengthens little."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    python(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_importing_it_takes_no_time() -> None:
    bare_s, with_it_s = (min(cpu_s(code) for _ in range(3)) for code in ("pass", "import tuccl"))
    assert with_it_s - bare_s < 0.1


@pytest.mark.long
@pytest.mark.parametrize("heavy", ["typer", "torch", "mpi4py", "optuna"])
def test_reading_a_machine_loads_neither_the_command_line_nor_a_search(heavy: str) -> None:
    code = f"tuccl.read_topology('shipped:h200-4gpu'); print({heavy!r} in sys.modules)"
    assert python(f"import sys, tuccl; {code}") == "False"


def test_names_are_found_listed_and_kept() -> None:
    assert set(tuccl.__all__) <= set(dir(tuccl))
    assert tuccl.read_topology is tuccl.read_topology
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        tuccl.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_no_name_is_that_of_a_module() -> None:
    inside = {path.stem for path in (ROOT / "tuccl").iterdir()}
    assert not inside & set(NAMES)


def test_type_checkers_are_told_the_same_names() -> None:
    stub = ast.parse((ROOT / "tuccl" / "__init__.pyi").read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(homes) == set(NAMES)
    (listed,) = (node.value for node in stub.body if isinstance(node, ast.Assign))
    assert sorted(ast.literal_eval(listed)) == sorted(tuccl.__all__)
    for name in NAMES:
        assert getattr(tuccl, name).__module__ == homes[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_explained(name: str) -> None:
    thing = getattr(tuccl, name)
    assert inspect.getdoc(thing)
    assert f"`{name}" in PAGE
    if inspect.isfunction(thing):
        doc = inspect.getdoc(thing) or ""
        parameters = inspect.signature(thing).parameters.values()
        assert all(arg.annotation is not inspect.Parameter.empty for arg in parameters)
        undocumented = [arg.name for arg in parameters if f"{arg.name}: " not in doc]
        assert undocumented == [] or "Args:" not in doc
        assert len(parameters) < 3 or "Args:" in doc
        assert "Raises:" in doc
    if is_dataclass(thing):
        assert vars(thing)["__dataclass_params__"].frozen
        assert all(field.type for field in fields(thing))


def test_every_error_is_of_one_root() -> None:
    for name in NAMES:
        if name.endswith("Error"):
            assert issubclass(getattr(tuccl, name), tuccl.TucclError)
