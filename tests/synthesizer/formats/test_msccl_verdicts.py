"""Published schedules: each is read, and proved or its defect is named."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lookup_tables.collective import Collective
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.contents import input_chunks
from synthesizer.ir.msccl_limits import check_limits
from synthesizer.prove.verifier import verify
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.synthesizer.emulator import expected_outputs, run

pytestmark = pytest.mark.long

FOLDER = SHARED_DATA / "msccl_xml"
GOLDEN = Path(__file__).parent / "golden" / "msccl_verdicts.txt"


@cache
def schedules() -> dict[str, Algorithm]:
    paths = sorted(FOLDER.rglob("*.xml"))
    return {
        path.relative_to(FOLDER).as_posix(): read_msccl_xml(path.read_text(), path.name)
        for path in paths
    }


@requires_shared_data
def test_every_published_schedule_has_its_verdict() -> None:
    lines = []
    for name, a in schedules().items():
        verdict = verify(a)
        lines.append(f"{name}: {verdict.describe().splitlines()[0]}")
    golden = GOLDEN.read_text().splitlines()
    assert lines == [line for line in golden if line and not line.startswith("#")]


@requires_shared_data
def test_every_published_schedule_survives_the_round_trip() -> None:
    for a in schedules().values():
        assert read_msccl_xml(write_msccl_xml(a)) == a
        assert check_limits(a) == ()


@requires_shared_data
def test_the_emulator_agrees_with_the_verdicts() -> None:
    for name, a in schedules().items():
        if a.collective is Collective.CUSTOM or a.step_count > 3000:
            continue
        rng = np.random.default_rng(7)
        inputs = [
            rng.integers(0, 1 << 40, size=input_chunks(a.collective, a.ranks, a.chunks_per_loop))
            for _ in range(a.ranks)
        ]
        right = expected_outputs(a.collective, inputs)
        same = [np.array_equal(*pair) for pair in zip(run(a, inputs, seed=3), right, strict=True)]
        assert all(same) == verify(a).proved, name
