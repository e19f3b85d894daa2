from __future__ import annotations

import json

import pytest

from sketches.candidates import sketch_candidates
from sketches.sketch_json import sketch_from_json, sketch_to_json
from tests.sketches.machines import cluster, pcie_box
from tuccl.errors import MachineError


def test_what_is_written_is_read_back() -> None:
    for topology in (cluster(2, 4, 2), pcie_box(3)):
        for sketch in sketch_candidates(topology):
            text = sketch_to_json(sketch)
            assert sketch_from_json(text) == sketch
            assert sketch_to_json(sketch_from_json(text)) == text


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"colour": 1},
        {"node_of_rank": [0]},
        {"node_of_rank": [0, 0, 2]},
        {"node_of_rank": [0, 0]},
        {"ports": []},
        {"symmetries": [[0, 0, 1]]},
    ],
)
def test_a_wrong_file_is_refused_in_one_line(change: dict[str, object]) -> None:
    (sketch,) = sketch_candidates(pcie_box(3))
    text = json.dumps(json.loads(sketch_to_json(sketch)) | change)
    with pytest.raises(MachineError) as caught:
        sketch_from_json(text, "my.json")
    assert str(caught.value).startswith("my.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bandwidth", [0, -1, "fast", "NaN"])
def test_an_edge_needs_a_bandwidth(bandwidth: object) -> None:
    (sketch,) = sketch_candidates(pcie_box(2))
    content = json.loads(sketch_to_json(sketch))
    content["edges"][0]["bandwidth_gb_per_s"] = bandwidth
    with pytest.raises(MachineError, match=r"edges\.0\.bandwidth_gb_per_s"):
        sketch_from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"edges": 3}'])
def test_what_is_no_sketch_at_all_is_refused(text: str) -> None:
    with pytest.raises(MachineError, match="correct the file"):
        sketch_from_json(text)
