"""Small files in TACCL's format for these tests."""

from __future__ import annotations

import json
from typing import Any

Fields = dict[str, Any]

SWITCHED: Fields = {
    "name": "Box_1MB",
    "gpus_per_node": 4,
    "nics_per_node": 2,
    "alpha": 0.5,
    "node_betas_list": [8],
    "node_invbws_list": [8],
    "remote_alpha": 2.0,
    "remote_beta": 64,
    "remote_invbw": 66,
}
"""Four GPUs with 131.072 GB/s each (1 MiB in 8 us) and two NICs with 16.384 (1 MiB in 64 us)."""

LINKED: Fields = {
    "name": "Row",
    "gpus_per_node": 3,
    "alpha": 0.5,
    "links": [[0, 2, 0], [2, 0, 1], [0, 1, 0]],
    "betas": [[0, 64, 0], [64, 0, 64], [0, 64, 0]],
    "invbws": [[0, 64, 0], [64, 0, 64], [0, 64, 0]],
}
"""Three GPUs in a row: two links of 16.384 GB/s between the first two, one between the others."""

RELAYED: Fields = {
    "nnodes": 2,
    "intranode_sketch": {"strategy": "switch", "switches": [[0, 1, 2, 3]]},
    "internode_sketch": {"strategy": "relay", "internode_conn": {"1": [0], "3": [2]}},
    "symmetry_offsets": [[2, 4], [4, 8]],
    "hyperparameters": {"input_chunkup": 2},
}
"""GPUs 1 and 3 of a node send to GPUs 0 and 2 of the other."""

ALONE: Fields = {
    "nnodes": 1,
    "intranode_sketch": {"strategy": "none"},
    "symmetry_offsets": [],
    "hyperparameters": {"input_chunkup": 1},
}


def text(fields: Fields, **changes: Any) -> str:
    """Return the file's text with changed keys; keys with the value None are left out."""
    merged = fields | changes
    return json.dumps({key: value for key, value in merged.items() if value is not None})


def relaying(**internode: Any) -> Fields:
    """Return RELAYED's `internode_sketch` with changes."""
    return {"internode_sketch": RELAYED["internode_sketch"] | internode}
