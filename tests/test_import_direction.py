"""Packages, subpackages and files import in one direction, from those below them."""

import ast
from pathlib import Path

import pytest

from tests.import_rules import MOST_MODULES, faults, read_tree
from tuccl import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "probes": set[str](),
    "sketches": {"probes"},
    "synthesizer": {"probes", "sketches"},
    "lookup_tables": set[str](),
    "synthesizer.programs": {"synthesizer", "lookup_tables"},
    "tuccl": {
        "probes",
        "sketches",
        "synthesizer",
        "lookup_tables",
        "synthesizer.programs",
    },
}
ORDER = [
    "tuccl",
    "probes",
    "probes.inputs",
    "probes.topology",
    "probes.comparison",
    "probes.drawing",
    "probes.nccl_xml",
    "probes.pci",
    "probes.pci.listings",
    "probes.network",
    "probes.network.instruments",
    "probes.network.racks",
    "probes.network.campaign",
    "probes.nvidia",
    "probes.p2p",
    "probes.host",
    "probes.files",
    "probes.cluster",
    "sketches",
    "sketches.taccl",
    "synthesizer",
    "synthesizer.ir",
    "synthesizer.native",
    "synthesizer.dsl",
    "synthesizer.lower",
    "synthesizer.prove",
    "synthesizer.simulate",
    "synthesizer.bounds",
    "synthesizer.experts",
    "synthesizer.solve",
    "synthesizer.plan",
    "synthesizer.formats",
    "lookup_tables",
    "lookup_tables.bundles",
    "synthesizer.programs",
    "synthesizer.programs.staged",
    "tuccl.runtime",
    "tuccl.words",
    "tuccl.statistics",
    "tuccl.processes",
    "tuccl.trials",
    "tuccl.workspace",
    "tuccl.inputs",
    "tuccl.compiling",
    "tuccl.measuring",
    "tuccl.engines",
    "tuccl.search",
    "tuccl.models",
    "tuccl.models.across_hosts",
    "tuccl.placing",
    "tuccl.records",
    "tuccl.workloads",
    "tuccl.workloads.replays",
    "tuccl.workloads.recordings",
    "tuccl.calibration",
    "tuccl.schedules",
    "tuccl.reports",
    "tuccl.reports.documents",
    "tuccl.backends",
    "tuccl.tuning",
    "tuccl.tuning.run",
    "tuccl.pipeline.searching",
    "tuccl.pipeline",
    "tuccl.shipping",
    "tuccl.shipping.exports",
    "tuccl.bench",
    "tuccl.doctor",
    "tuccl.watching",
    "tuccl.console",
    "tuccl.console.shipped",
    "tuccl.html_report.figures",
    "tuccl.html_report",
    "tuccl.html_report.following",
    "tuccl.hosts",
    "tuccl.commands",
    "tuccl.commands.shipped",
    "tuccl.api",
    "tuccl.cli.parameters",
    "tuccl.cli.shipped",
    "tuccl.cli",
    "tuccl.__main__",
    "tuccl.testing",
]
"""Subpackages from the lowest to the highest: each imports from those before it."""
NAMES_TESTING = {"tuccl/measuring/engine.py"}
"""Files that name a module of `tuccl.testing`, imported on request alone."""


def test_every_import_leads_down() -> None:
    tree = read_tree(ROOT, PACKAGES)
    assert len(tree.imports) > 400
    assert faults(tree, ORDER, MAY_IMPORT) == []


def test_one_module_names_the_stand_ins() -> None:
    naming = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tuccl").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and str(node.value).startswith("tuccl.testing")
    }
    assert naming == NAMES_TESTING


def planted(root: Path, files: dict[str, str]) -> list[str]:
    """The faults of a sound tree of two packages and two subpackages with these files added."""
    sound = {
        "low/__init__.py": "",
        "low/stone.py": "",
        "high/__init__.py": "",
        "high/cellar/__init__.py": "",
        "high/cellar/wine.py": "from low import stone\n",
        "high/roof/__init__.py": "",
        "high/roof/tile.py": "import high.cellar.wine\n",
        "high/__main__.py": "from high.roof.tile import lay\n",
    }
    for name, text in (sound | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    order = ["low", "high", "high.cellar", "high.roof", "high.__main__"]
    return faults(read_tree(root, ("low", "high")), order, {"low": set(), "high": {"low"}})


def test_a_sound_tree_has_no_faults(tmp_path: Path) -> None:
    assert planted(tmp_path, {}) == []


@pytest.mark.parametrize(
    "text",
    [
        "from high.roof import tile\n",
        "from high.roof.tile import lay\n",
        "import high.roof.tile as roof\n",
        "def late():\n    from high.roof.tile import lay\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from high.roof.tile import Lay\n",
    ],
)
def test_an_import_that_leads_up_is_a_fault(tmp_path: Path, text: str) -> None:
    found = planted(tmp_path, {"high/cellar/barrel.py": text})
    assert found == [
        "high.cellar.barrel imports high.roof.tile, whose subpackage is above its own",
        "subpackages import each other in a circle: high.cellar <- high.roof <- high.cellar",
    ]


def test_a_circle_of_files_in_one_subpackage_is_a_fault(tmp_path: Path) -> None:
    first = "from high.roof.beam import carry\n"
    second = "def late():\n    from high.roof.rafter import hold\n"
    found = planted(tmp_path, {"high/roof/rafter.py": first, "high/roof/beam.py": second})
    assert len(found) == 1
    assert found[0].startswith("files import each other in a circle: high.roof.")


def test_an_import_from_the_wrong_package_is_a_fault(tmp_path: Path) -> None:
    found = planted(tmp_path, {"low/sand.py": "from high import VERSION\n"})
    assert "low.sand imports high: low does not import from high" in found


def test_a_full_subpackage_is_a_fault(tmp_path: Path) -> None:
    tiles = {f"high/roof/tile_{number}.py": "" for number in range(MOST_MODULES - 1)}
    assert planted(tmp_path / "full", tiles) == []
    found = planted(tmp_path / "over", tiles | {"high/roof/one_more.py": ""})
    assert found == ["high.roof holds 16 modules, more than 15: divide it"]


def test_a_subpackage_without_a_place_is_a_fault(tmp_path: Path) -> None:
    found = planted(tmp_path, {"high/attic/trunk.py": ""})
    assert found == ["high.attic has no place in the order"]


def test_an_import_by_dots_is_a_fault(tmp_path: Path) -> None:
    found = planted(tmp_path, {"high/roof/gutter.py": "from . import tile\n"})
    assert found == ["high.roof.gutter imports by dots: write the whole name"]
