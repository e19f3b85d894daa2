"""A package imports from those to its left and never from those to its right."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "probes": set(),
    "sketches": {"probes"},
    "synthesizer": {"probes", "sketches"},
    "lookup_tables": set(),
    "tuccl": {"probes", "sketches", "synthesizer", "lookup_tables"},
}


def imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            found.add((node.module or "").split(".")[0])
    return found & set(MAY_IMPORT)


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_package_imports_only_from_its_left(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    for module in modules:
        wrong = imported_packages(module) - MAY_IMPORT[package] - {package}
        assert not wrong, f"{module.relative_to(ROOT)} imports {sorted(wrong)}"


def test_a_wrong_import_would_be_seen(tmp_path: Path) -> None:
    module = tmp_path / "wrong.py"
    module.write_text("def late():\n    from tuccl.cli.app import main\n")
    assert imported_packages(module) == {"tuccl"}
