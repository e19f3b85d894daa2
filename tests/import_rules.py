"""Check the rules for imports between the subpackages of a tree of packages.

A subpackage is a folder of modules. It imports from subpackages below it and never from those
above; no files and no subpackages import each other in a circle; and a subpackage has a limited
number of modules. Imports within functions and for type checkers alone count like all others.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

MOST_MODULES = 15


@dataclass(frozen=True)
class Tree:
    """The modules of some packages, and what they import of each other."""

    subpackages: Mapping[str, str]
    """The subpackage of each module; `__init__.py` stands for the subpackage itself."""
    imports: Mapping[str, frozenset[str]]
    """The modules that each module imports."""
    relative: Sequence[str]
    """Modules that import by dots, which hide the direction."""

    @property
    def between_subpackages(self) -> dict[str, set[str]]:
        """The subpackages that each subpackage imports from."""
        found: dict[str, set[str]] = {subpackage: set() for subpackage in self.subpackages.values()}
        for module, imported in self.imports.items():
            found[self.subpackages[module]] |= {self.subpackages[name] for name in imported}
        return {subpackage: below - {subpackage} for subpackage, below in found.items()}


def read_tree(root: Path, packages: Iterable[str]) -> Tree:
    """All modules below `root` that belong to these packages, given by the folders' names."""
    paths = {
        _name(path.relative_to(root)): path
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    }
    imports = {}
    relative = []
    for module, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports[module] = frozenset(_imported(tree, paths)) - {module}
        if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
            relative.append(module)
    return Tree({name: _subpackage(name, path) for name, path in paths.items()}, imports, relative)


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _subpackage(module: str, path: Path) -> str:
    # `__main__` and `__init__` have their own places in the order, whatever their folder.
    return module if path.stem in {"__init__", "__main__"} else module.rpartition(".")[0]


def _imported(tree: ast.AST, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                if member in modules:
                    yield member
                elif node.module in modules:
                    yield node.module


def faults(tree: Tree, order: Sequence[str], may_import: Mapping[str, set[str]]) -> list[str]:
    """Breaches of the rules, one sentence each.

    Args:
        tree: The modules.
        order: All subpackages, from the lowest to the highest.
        may_import: The packages that each package may import from.
    """
    return [
        *(f"{module} imports by dots: write the whole name" for module in tree.relative),
        *_misplaced_subpackages(tree, order),
        *_full_subpackages(tree),
        *_upward_imports(tree, order),
        *_foreign_imports(tree, may_import),
        *_circle(tree.imports, "files"),
        *_circle(tree.between_subpackages, "subpackages"),
    ]


def _misplaced_subpackages(tree: Tree, order: Sequence[str]) -> Iterator[str]:
    subpackages = set(tree.subpackages.values())
    yield from (
        f"{subpackage} has no place in the order" for subpackage in sorted(subpackages - set(order))
    )
    yield from (
        f"{subpackage} has a place and no modules"
        for subpackage in order
        if subpackage not in subpackages
    )


def _full_subpackages(tree: Tree) -> Iterator[str]:
    for subpackage in sorted(set(tree.subpackages.values())):
        modules = [
            module
            for module, place in tree.subpackages.items()
            if place == subpackage and module != subpackage
        ]
        if len(modules) > MOST_MODULES:
            yield f"{subpackage} holds {len(modules)} modules, more than {MOST_MODULES}: divide it"


def _upward_imports(tree: Tree, order: Sequence[str]) -> Iterator[str]:
    level = {subpackage: place for place, subpackage in enumerate(order)}
    for module, imported in sorted(tree.imports.items()):
        for target in sorted(imported):
            own, targets = tree.subpackages[module], tree.subpackages[target]
            if {own, targets} <= level.keys() and level[targets] > level[own]:
                yield f"{module} imports {target}, whose subpackage is above its own"


def _foreign_imports(tree: Tree, may_import: Mapping[str, set[str]]) -> Iterator[str]:
    for module, imported in sorted(tree.imports.items()):
        package = _package(module, may_import)
        for target in sorted(imported):
            targets = _package(target, may_import)
            if targets not in may_import[package] | {package}:
                yield f"{module} imports {target}: {package} does not import from {targets}"


def _package(module: str, packages: Iterable[str]) -> str:
    """Return the innermost of the packages that holds the module."""
    return max((name for name in packages if f"{module}.".startswith(f"{name}.")), key=len)


def _circle(imports: Mapping[str, Iterable[str]], of: str) -> Iterator[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        # graphlib names the imported module first.
        yield f"{of} import each other in a circle: {' <- '.join(error.args[1])}"
