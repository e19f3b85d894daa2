"""Emission of large programs: clocks within the rank in place of clocks of all threadblocks."""

from __future__ import annotations

import pytest

from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective
from synthesizer.lower import emission
from synthesizer.prove.verifier import verify
from tests.synthesizer.hand_sketches import hybrid_cube_mesh, switched


def waits(algorithm: Algorithm) -> int:
    return sum(
        step.depends is not None
        for gpu in algorithm.programs
        for block in gpu.threadblocks
        for step in block.steps
    )


@pytest.mark.parametrize(
    "collective", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE]
)
@pytest.mark.parametrize("sketch", [switched(2, 3), hybrid_cube_mesh()], ids=lambda s: s.name)
def test_clocks_within_the_rank_keep_every_wait_that_is_needed(
    collective: Collective, sketch: Sketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    travelling = expert_algorithms(collective, sketch)
    monkeypatch.setattr(emission, "MOST_TRAVELLING", 0)
    local = expert_algorithms(collective, sketch)
    assert [a.name for a in local] == [a.name for a in travelling]
    for one, other in zip(local, travelling, strict=True):
        assert verify(one, slots=1).describe() == "proved"
        assert waits(one) >= waits(other)


def test_messages_spare_waits_of_a_small_program_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = switched(1, 4)
    travelling = expert_algorithms(Collective.ALL_REDUCE, sketch)
    monkeypatch.setattr(emission, "MOST_TRAVELLING", 0)
    local = expert_algorithms(Collective.ALL_REDUCE, sketch)
    assert sum(map(waits, local)) > sum(map(waits, travelling))
