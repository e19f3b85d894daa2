"""All-to-next: results, and the use of every NIC of a node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.ir.msccl_limits import check_limits
from synthesizer.lower.lowering import lower
from synthesizer.prove.defects import DefectKind
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.synthesizer.emulator import run
from tests.synthesizer.experts.all_to_next import all_to_next, next_grid
from tests.synthesizer.hand_sketches import switched


@pytest.mark.parametrize(("nodes", "locals_"), [(2, 1), (2, 2), (3, 2), (2, 3), (3, 5), (2, 8)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_every_rank_gets_the_buffer_of_the_one_before(
    nodes: int, locals_: int, dtype: type[np.generic]
) -> None:
    grid = next_grid(switched(nodes, locals_))
    assert grid is not None
    algorithm = lower(all_to_next(grid), "all_to_next")
    assert {defect.kind for defect in verify(algorithm, slots=1).defects} == {
        DefectKind.NO_POSTCONDITION
    }
    assert check_limits(algorithm) == ()
    again = read_msccl_xml(write_msccl_xml(algorithm), "again.xml")
    assert again.content_hash() == algorithm.content_hash()
    rng = np.random.default_rng(nodes)
    inputs = [rng.integers(0, 99, size=3 * locals_).astype(dtype) for _ in range(nodes * locals_)]
    for seed in range(3):
        outputs = run(again, inputs, slots=1, seed=seed)
        for got, want in zip(outputs[1:], inputs[:-1], strict=True):
            assert np.array_equal(got, want)


def test_a_gigabyte_crosses_through_all_nics_of_the_node() -> None:
    sketch = switched(2, 8)
    grid = next_grid(sketch)
    assert grid is not None
    compiled = compile_schedule(lower(all_to_next(grid), "all_to_next"), sketch)
    model = ExecutionModel(slot_bytes=512 << 10)
    # Rank 6 sends rank 7 its whole buffer, and rank 7 scatters its own: 1/8 per NIC takes 5,000 us,
    # more than NVLink's 3,333 us per buffer.
    assert compiled.time_us(10**9, model) == pytest.approx(10**9 * 1e-3 / 8 / 25, rel=0.02)


def test_only_where_neighbours_by_number_are_neighbours_in_the_machine() -> None:
    assert next_grid(switched(1, 4)) is None
    dealt_out = replace(switched(2, 2), node_of_rank=(0, 1, 0, 1))
    assert next_grid(dealt_out) is None
