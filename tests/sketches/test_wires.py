from __future__ import annotations

import pytest

from sketches.sketch import Edge, EdgeKind, Port
from sketches.wires import Wire, assemble
from tuccl.errors import MachineError


def test_a_port_has_one_bandwidth() -> None:
    wires = [
        Wire(Edge(0, dst, EdgeKind.NVLINK, 1.0, 10.0, ("out:a",)), (Port("out:a", gb_per_s),))
        for dst, gb_per_s in ((1, 300.0), (2, 150.0))
    ]
    with pytest.raises(MachineError, match=r"port out:a has 300 GB/s on one edge and 150 on an"):
        assemble(wires)
    edges, ports = assemble(wires[:1])
    assert (len(edges), ports) == (1, (Port("out:a", 300.0),))
