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
    "changes",
    [
        {"nnodes": 0},
        {"hyperparameters": {}},
        {"symmetry_offsets": [[1]]},
        {"symmetry_offsets": [[1, 0]]},
        {"internode_sketch": None},
        relaying(strategy="switch"),
        relaying(internode_conn="ring"),
        relaying(internode_conn={"1": [-1]}),
        switches([0, 1], strategy="wheel"),
        switches(),
        switches([0, 1], [1, 2]),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_field(changes: dict[str, Any]) -> None:
    with pytest.raises(MachineError) as caught:
        read(RELAYED, **changes)
    assert str(caught.value).startswith("my-sketch.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"intranode_sketch": 3}'])
def test_what_is_no_sketch_at_all_is_refused(content: str) -> None:
    with pytest.raises(MachineError, match=r"^x.json: .*; correct the file$"):
        read_taccl_sketch(content, "x.json")
