"""Checks of every schedule: proof, limits, XML round trip, right results."""

from __future__ import annotations

import numpy as np

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.contents import input_chunks
from synthesizer.ir.msccl_limits import check_limits
from synthesizer.ir.program import Program
from synthesizer.lower.lowering import lower
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.synthesizer.emulator import expected_outputs, run

DTYPES = (np.int64, np.float32, np.float16)

NO_DATA_BYTES = 1e-3
"""A size so small that only the alphas count."""


def proved(program: Program) -> Algorithm:
    """Return the lowered program after all checks."""
    algorithm = lower(program, "under_test")
    show_right(algorithm)
    return algorithm


def show_right(a: Algorithm, seed: int = 0) -> None:
    """Check a schedule; the seed chooses data type and buffer layout."""
    assert verify(a, slots=1).describe() == "proved", a.name
    assert check_limits(a) == (), a.name
    again = read_msccl_xml(write_msccl_xml(a), "again.xml")
    assert again.content_hash() == a.content_hash(), a.name
    in_place = a.in_place and bool(seed // len(DTYPES) % 2)
    gives_right_buffers(again, DTYPES[seed % len(DTYPES)], seed=seed, in_place=in_place)


def gives_right_buffers(
    a: Algorithm, dtype: type[np.generic], *, seed: int, in_place: bool
) -> None:
    """Check real buffers; sums of small whole numbers are exact in every type and order."""
    rng = np.random.default_rng(seed)
    shape = (a.collective, a.ranks, a.chunks_per_loop)
    inputs = [
        rng.integers(-9, 10, size=2 * input_chunks(*shape, rank, a.root)).astype(dtype)
        for rank in range(a.ranks)
    ]
    outputs = run(a, inputs, in_place=in_place, slots=1, seed=seed)
    right = expected_outputs(a.collective, inputs, a.root)
    for got, want in zip(outputs, right, strict=True):
        assert got.dtype == want.dtype
        assert np.array_equal(got, want), a.name


def busbw_gb_per_s(algorithm: Algorithm, sketch: Sketch, size_bytes: int = 10**9) -> float:
    """Return the bus bandwidth on the links alone, in tiles of a slot; factors as in nccl-tests."""
    model = ExecutionModel(slot_bytes=512 << 10)
    time_us = compile_schedule(algorithm, sketch).time_us(size_bytes, model)
    twice = 2 if algorithm.collective is Collective.ALL_REDUCE else 1
    return size_bytes * 1e-3 / time_us * twice * (algorithm.ranks - 1) / algorithm.ranks


def latency_us(algorithm: Algorithm, sketch: Sketch) -> float:
    """Return the time of a call without data: the alphas on the longest path."""
    return compile_schedule(algorithm, sketch).time_us(NO_DATA_BYTES, ExecutionModel())
