"""All-to-next: results, and the use of every NIC of a node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lookup_tables.table import Shape
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.contents import Sum
from synthesizer.ir.msccl_limits import check_limits
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.synthesizer.emulator import run
from tests.synthesizer.hand_sketches import switched
from tuccl.schedules.own_schedules import read_schedule

FILE = Path(__file__).parents[3] / "examples" / "schedules" / "all_to_next.py"


def all_to_next(nodes: int, gpus: int) -> Algorithm:
    return read_schedule(FILE, Shape(nodes * gpus, nodes, gpus))


@pytest.mark.parametrize(("nodes", "gpus"), [(2, 1), (2, 2), (3, 2), (2, 3), (3, 5), (2, 8)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_every_rank_gets_the_buffer_of_the_one_before(
    nodes: int, gpus: int, dtype: type[np.generic]
) -> None:
    algorithm = all_to_next(nodes, gpus)
    assert verify(algorithm, slots=1).describe() == "proved"
    assert check_limits(algorithm) == ()
    again = read_msccl_xml(write_msccl_xml(algorithm), "again.xml")
    assert again == algorithm
    rng = np.random.default_rng(nodes)
    inputs = [rng.integers(0, 99, size=3 * gpus).astype(dtype) for _ in range(nodes * gpus)]
    for seed in range(3):
        outputs = run(again, inputs, slots=1, seed=seed)
        for got, want in zip(outputs[1:], inputs[:-1], strict=True):
            assert np.array_equal(got, want)


def test_a_gigabyte_crosses_through_all_nics_of_the_node() -> None:
    compiled = compile_schedule(all_to_next(2, 8), switched(2, 8))
    model = ExecutionModel(slot_bytes=512 << 10)
    # Rank 6 sends rank 7 its whole buffer, and rank 7 scatters its own: 1/8 per NIC takes 5,000 us,
    # more than NVLink's 3,333 us per buffer.
    assert compiled.time_us(10**9, model) == pytest.approx(10**9 * 1e-3 / 8 / 25, rel=0.02)


@requires_shared_data
@pytest.mark.parametrize("chunks", [4, 8, 16])
def test_the_published_schedules_of_msccl_do_what_the_name_says(chunks: int) -> None:
    name = f"experiments_alltonext_{chunks}in.xml"
    text = (SHARED_DATA / "msccl_xml" / "msccl-tools" / name).read_text()
    published = read_msccl_xml(text, name)
    stated = [
        tuple(Sum(chunk, 1 << gpu.rank) for chunk in range(gpu.input_chunks))
        for gpu in published.programs[:-1]
    ]
    assert verify(replace(published, results=((), *stated))).describe() == "proved"
    backwards = replace(published, results=(*stated, ()))
    assert not verify(backwards).proved
