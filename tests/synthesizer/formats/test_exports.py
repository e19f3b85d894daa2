"""The register of export formats."""

from __future__ import annotations

import pytest

from probes.files.read import shipped_machines
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates
from synthesizer.experts.ring import ring_all_gather
from synthesizer.formats.exports import EXPORTS, export_files, format_of_path
from synthesizer.formats.msccl_xml import Dialect, read_msccl_xml, write_msccl_xml
from synthesizer.formats.mscclpp_plan import write_mscclpp_plan
from synthesizer.formats.nccl_graph_figures import GraphMachine
from synthesizer.formats.nccl_graph_xml import nccl_graph_files
from synthesizer.lower.lowering import lower
from tuccl.errors import FormatError

RING = lower(ring_all_gather([tuple(range(8))]), "ring")


def _machine() -> GraphMachine:
    text = shipped_machines()["a100-8gpu-8nic"].read_text()
    topology = parse_nccl_xml(text, "a100-8gpu-8nic.xml")
    return GraphMachine(topology, sketch_candidates(topology)[0])


def test_each_format_writes_what_its_writer_writes() -> None:
    machine = _machine()
    assert {name: export_files(RING, name, machine) for name in EXPORTS} == {
        "msccl": (write_msccl_xml(RING),),
        "msccl-microsoft": (write_msccl_xml(RING, Dialect.MICROSOFT),),
        "mscclpp": (write_mscclpp_plan(RING),),
        "nccl-graph": nccl_graph_files(RING, machine),
    }
    assert [read_msccl_xml(text) for text in export_files(RING, "msccl")] == [RING]
    assert [entry.name for entry in EXPORTS.values()] == list(EXPORTS)


def test_nodes_that_one_file_cannot_serve_get_one_each() -> None:
    topology = replicate(_machine().topology, 2, Network(1.7, NetworkLayout.FABRIC))
    (mesh,) = (sketch for sketch in sketch_candidates(topology) if sketch.name == "full_mesh")
    machine = GraphMachine(topology, mesh)
    ring = lower(ring_all_gather([(*range(8), *range(15, 7, -1))]), "ring")
    assert len(set(export_files(ring, "nccl-graph", machine))) == 2
    alike = lower(ring_all_gather([tuple(range(16))]), "ring")
    assert len(export_files(alike, "nccl-graph", machine)) == 1


def test_only_formats_that_speak_of_devices_need_the_machine() -> None:
    for entry in EXPORTS.values():
        if entry.name == "nccl-graph":
            with pytest.raises(FormatError, match=r"ring: .*give the schedule's topology"):
                export_files(RING, entry.name)
        else:
            assert export_files(RING, entry.name)


@pytest.mark.parametrize(
    ("path", "name"),
    [("a.xml", "msccl"), ("a.json", "mscclpp"), ("dir.json/a.graph.xml", "nccl-graph")],
)
def test_a_files_name_asks_for_a_format(path: str, name: str) -> None:
    assert format_of_path(path) == name
