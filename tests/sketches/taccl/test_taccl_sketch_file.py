"""TACCL's sketch files: reading, notes and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from sketches.taccl.sketch_file import TacclRules, read_taccl_sketch
from tests.sketches.taccl.files import ALONE, RELAYED, relaying, text
from tuccl.errors import MachineError


def read(fields: dict[str, Any], **changes: Any) -> TacclRules:
    return read_taccl_sketch(text(fields, **changes), "my-sketch.json")


def switches(*sets: list[int], strategy: str = "switch", **more: Any) -> dict[str, Any]:
    return {"intranode_sketch": {"strategy": strategy, "switches": list(sets), **more}}


def test_rules_are_read() -> None:
    rules = read(RELAYED, **relaying(gpus_to_sender_rev_map={"3": [2, 3], "1": [0, 1]}))
    assert rules.nodes == 2
    assert rules.switches == ((0, 1, 2, 3),)
    assert rules.connections == {1: (0,), 3: (2,)}
    assert list(rules.sent_by.items()) == [(1, (0, 1)), (3, (2, 3))]
    assert rules.symmetry_offsets == ((2, 4), (4, 8))
    assert rules.chunks_per_rank == 2
    assert rules.notes == ()
    assert read(RELAYED, **relaying(internode_conn="direct-map")).connections == "direct-map"
    assert read(ALONE).connections == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nnodes": 0}, "nnodes: Input should be greater than or equal to 1"),
        ({"hyperparameters": {}}, "hyperparameters.input_chunkup: Field required"),
        ({"symmetry_offsets": [[1]]}, "symmetry_offsets.0.1: Field required"),
        ({"symmetry_offsets": [[1, 0]]}, "symmetry_offsets.0.1: Input should be greater"),
        ({"internode_sketch": None}, "internode_sketch: missing for nnodes 2"),
        (relaying(strategy="switch"), "internode_sketch.strategy: Input should be 'relay'"),
        (relaying(internode_conn="ring"), "internode_sketch.internode_conn: "),
        (relaying(internode_conn={"1": [-1]}), "internode_sketch.internode_conn.1.0: "),
        (switches([0, 1], strategy="wheel"), "intranode_sketch.strategy: "),
        (switches(), "intranode_sketch.switches: empty beside strategy switch"),
        (switches([0, 1], [1, 2]), "intranode_sketch.switches.1: has GPU 1 in common with"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MachineError) as caught:
        read(RELAYED, **changes)
    assert str(caught.value).startswith("my-sketch.json: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"intranode_sketch": 3}'])
def test_what_is_no_sketch_at_all_is_refused(content: str) -> None:
    with pytest.raises(MachineError, match=r"^x.json: .*; correct the file$"):
        read_taccl_sketch(content, "x.json")
