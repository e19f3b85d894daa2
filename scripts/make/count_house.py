"""Count what the project is made of: rooms, floors, arrows, circles, files and lines.

    python scripts/make/count_house.py [--json] [CHECKOUT]

A room is a package beside `tuccl`, or a folder or module in it. An arrow leads from a room to one
that it imports, within functions too; the floors are the longest chain of arrows. Of files that
import each other in a circle, and of rooms, each group counts once. A C or C++ file counts with its
header. Only files that git knows count.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import networkx as nx

APPLICATION = "tuccl"
PACKAGES = ("probes", "sketches", "synthesizer", "lookup_tables", "programs", APPLICATION)
"""Packages of the product; those that a checkout lacks are left out."""
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_NATIVE = {".c", ".h", ".cc", ".cu", ".cuh"}


def files_of(checkout: Path) -> dict[PurePosixPath, str]:
    """The text of each file that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout
    paths = [PurePosixPath(name) for name in listed.split("\0") if (checkout / name).is_file()]
    return {path: (checkout / path).read_text("utf-8", "replace") for path in paths}


def module_name(path: PurePosixPath) -> str:
    """The name by which a file is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(path: PurePosixPath) -> str:
    """The room of a file; what lies beside the rooms of the application is a room by itself."""
    package, *inner = path.with_suffix("").parts
    return f"{APPLICATION}.{inner[0]}" if package == APPLICATION else package


def imported(text: str, modules: Mapping[str, PurePosixPath]) -> Iterator[str]:
    """The modules among those given that a file of Python imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name for name in names if name in modules]
            yield from found
            if len(found) < len(names) and node.module in modules:
                yield node.module


def imports_of(files: Mapping[PurePosixPath, str]) -> nx.DiGraph[PurePosixPath]:
    """An edge from each file of Python to each file of the product that it imports."""
    modules = {module_name(path): path for path in files if path.suffix == ".py"}
    graph: nx.DiGraph[PurePosixPath] = nx.DiGraph()
    graph.add_nodes_from(modules.values())
    for path in modules.values():
        targets = (modules[name] for name in imported(files[path], modules))
        graph.add_edges_from((path, target) for target in targets if target != path)
    return graph


def includes_of(files: Mapping[PurePosixPath, str]) -> nx.DiGraph[PurePosixPath]:
    """An edge from each C or C++ file, without its suffix, to each that it includes."""
    native = {path: text for path, text in files.items() if path.suffix in _NATIVE}
    graph: nx.DiGraph[PurePosixPath] = nx.DiGraph()
    for path, text in native.items():
        for name in _INCLUDE.findall(text):
            folders = (path.parent, *path.parents)
            found = next((folder / name for folder in folders if folder / name in native), None)
            if found is not None and found.with_suffix("") != path.with_suffix(""):
                graph.add_edge(path.with_suffix(""), found.with_suffix(""))
    return graph


def rooms_of(imports: nx.DiGraph[PurePosixPath]) -> nx.DiGraph[str]:
    """The rooms with their arrows."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(map(room_of, imports))
    edges = ((room_of(start), room_of(end)) for start, end in imports.edges)
    graph.add_edges_from((start, end) for start, end in edges if start != end)
    return graph


def _circles(graph: nx.DiGraph[str] | nx.DiGraph[PurePosixPath]) -> int:
    return sum(len(group) > 1 for group in nx.strongly_connected_components(graph))


def _classes(files: Mapping[PurePosixPath, str]) -> Counter[str]:
    """In how many modules each public class name stands."""
    trees = [ast.parse(text) for path, text in files.items() if path.suffix == ".py"]
    return Counter(
        name
        for tree in trees
        for name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        if not name.startswith("_")
    )


def counts(checkout: Path) -> dict[str, int]:
    """The figures of a checkout by their names."""
    files = files_of(checkout)
    product = {path: text for path, text in files.items() if path.parts[0] in PACKAGES}
    imports = imports_of(product)
    rooms = rooms_of(imports)
    found = {
        "rooms": len(rooms),
        "floors": nx.dag_longest_path_length(nx.condensation(rooms)) + 1,
        "arrows": rooms.number_of_edges(),
        "circles of rooms": _circles(rooms),
        "circles of Python files": _circles(imports),
        "circles of C files": _circles(includes_of(product)),
        "class names in several modules": sum(n > 1 for n in _classes(product).values()),
    }
    folders = {"product": PACKAGES, "tests": ("tests",), "scripts": ("scripts",), "docs": ("docs",)}
    for name, top in folders.items():
        own = [text for path, text in files.items() if path.parts[0] in top]
        found |= {f"{name} files": len(own), f"{name} lines": sum(t.count("\n") for t in own)}
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    found = counts(options.checkout)
    rows = [f"{name:32}{number:>9,}" for name, number in found.items()]
    print(json.dumps(found, indent=1) if options.json else "\n".join(rows))


if __name__ == "__main__":
    main()
