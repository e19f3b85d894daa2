"""The machine and its connections: what a sketch keeps, and what it dropped and why."""

from dataclasses import replace
from pathlib import Path

import pytest

from probes.files.read import shipped_machines
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from sketches.sketch_json import sketch_to_json
from tests.tuccl.views.page.reported import HOSTILE, reported, seen
from tuccl.errors import WorkspaceError
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.views.page.page import table_page
from tuccl.views.page.sketches import connection_chart, read_sketches, sketch_figures
from tuccl.views.page.tables import report_figures
from tuccl.workspace.runs import Run


@pytest.fixture(scope="module")
def machine() -> Topology:
    """Two hosts of eight A100 with eight NICs."""
    return load_machine(MachineOptions(topology=str(shipped_machines()["a100-8gpu-8nic"]), nodes=2))


def page_with(machine: Topology, *sketches: Sketch) -> str:
    found = replace(reported(), machine=machine, report=None)
    figures = report_figures(found, sketches, "2026-01-02")
    return table_page(figures, found, sketches, "Plotly = {};")


def test_dropped_pairs_say_why(machine: Topology) -> None:
    pruned = next(each for each in sketch_candidates(machine) if each.name == "pruned")
    chart = connection_chart([pruned], machine)
    assert chart is not None
    (trace,) = chart.figures["pruned"].data
    # In a node, over the network by the GPU's own rail, and dropped.
    assert [trace.z[0][dst] for dst in (0, 1, 8, 9)] == [0, 3, 2, 1]
    assert trace.meta[trace.customdata[0][9]] == (
        "dropped by bandwidth aware grouping: their NICs are in different bandwidth groups"
    )
    figures = sketch_figures(pruned)
    assert figures.kept == 128
    assert sum(dropped.count for dropped in figures.dropped) == len(pruned.dropped)
    assert "different bandwidth groups" in page_with(machine, pruned)
    assert "No connection was dropped." in page_with(machine, replace(pruned, dropped=()))


def test_names_of_devices_and_sketches_never_become_markup(machine: Topology) -> None:
    named = replace(
        machine,
        name=HOSTILE,
        devices=tuple(replace(device, model=HOSTILE) for device in machine.devices),
    )
    sketch = replace(sketch_candidates(machine)[0], name=HOSTILE, why=HOSTILE)
    found = seen(page_with(named, sketch))
    kinds = [tag for tag, _ in found.tags]
    assert "img" not in kinds
    assert kinds.count("script") == 3
    assert {"template", "svg"} <= set(kinds)
    assert any(HOSTILE in text for text in found.texts)


def test_a_damaged_sketch_is_one_line(machine: Topology, tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert read_sketches(run) == ()
    run.sketches.mkdir()
    sketch = sketch_candidates(machine)[0]
    (run.sketches / "a.json").write_text(sketch_to_json(sketch))
    assert read_sketches(run) == (sketch,)
    (run.sketches / "a.json").write_text("{")
    with pytest.raises(WorkspaceError, match=r"a\.json: .*run `tuccl init` again"):
        read_sketches(run)
