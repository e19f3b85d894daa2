"""Rules for imports between the rooms of a tree of packages, and a search for breaches.

A room is a folder of modules. It imports from rooms below it and never from those above; no files
and no rooms import each other in a circle; and a room is small enough to be seen at a glance.
Imports within functions and those for type checkers alone count like all others.
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

    rooms: Mapping[str, str]
    """The room of each module; a room's `__init__.py` is a module by the room's name."""
    imports: Mapping[str, frozenset[str]]
    """The modules that each module imports."""
    relative: Sequence[str]
    """Modules that import by dots, which hide the direction."""

    @property
    def between_rooms(self) -> dict[str, set[str]]:
        """The rooms that every room imports from."""
        found: dict[str, set[str]] = {room: set() for room in self.rooms.values()}
        for module, imported in self.imports.items():
            found[self.rooms[module]] |= {self.rooms[one] for one in imported}
        return {room: below - {room} for room, below in found.items()}


def read_tree(root: Path, packages: Iterable[str]) -> Tree:
    """All modules below `root` that belong to these packages."""
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
    return Tree({name: _room(name, path) for name, path in paths.items()}, imports, relative)


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str, path: Path) -> str:
    # The start of a program stands above everything, wherever its file has to lie.
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
        order: All rooms, from the lowest to the highest.
        may_import: The packages that each package may import from.
    """
    return [
        *(f"{module} imports by dots: write the whole name" for module in tree.relative),
        *_misplaced_rooms(tree, order),
        *_full_rooms(tree),
        *_upward_imports(tree, order),
        *_foreign_imports(tree, may_import),
        *_circle(tree.imports, "files"),
        *_circle(tree.between_rooms, "rooms"),
    ]


def _misplaced_rooms(tree: Tree, order: Sequence[str]) -> Iterator[str]:
    rooms = set(tree.rooms.values())
    yield from (f"{room} has no place in the order" for room in sorted(rooms - set(order)))
    yield from (f"{room} has a place and no modules" for room in order if room not in rooms)


def _full_rooms(tree: Tree) -> Iterator[str]:
    for room in sorted(set(tree.rooms.values())):
        modules = [module for module, its in tree.rooms.items() if its == room and module != room]
        if len(modules) > MOST_MODULES:
            yield f"{room} holds {len(modules)} modules, more than {MOST_MODULES}: divide it"


def _upward_imports(tree: Tree, order: Sequence[str]) -> Iterator[str]:
    floor = {room: place for place, room in enumerate(order)}
    for module, imported in sorted(tree.imports.items()):
        for one in sorted(imported):
            here, there = tree.rooms[module], tree.rooms[one]
            if {here, there} <= floor.keys() and floor[there] > floor[here]:
                yield f"{module} imports {one}, whose room is above its own"


def _foreign_imports(tree: Tree, may_import: Mapping[str, set[str]]) -> Iterator[str]:
    for module, imported in sorted(tree.imports.items()):
        package = module.partition(".")[0]
        for one in sorted(imported):
            other = one.partition(".")[0]
            if other not in may_import[package] | {package}:
                yield f"{module} imports {one}: {package} does not import from {other}"


def _circle(imports: Mapping[str, Iterable[str]], of: str) -> Iterator[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        # graphlib names the imported one first.
        yield f"{of} import each other in a circle: {' <- '.join(error.args[1])}"
