"""Emission of large programs: clocks within the rank instead of clocks of all threadblocks."""

from __future__ import annotations

import pytest

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
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


@pytest.mark.long
@pytest.mark.parametrize(
    "collective", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE]
)
@pytest.mark.parametrize("sketch", [switched(2, 3), hybrid_cube_mesh()], ids=lambda s: s.name)
def test_clocks_within_the_rank_keep_every_wait_that_is_needed(
    collective: Collective, sketch: Sketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    across_ranks = expert_algorithms(collective, sketch)
    monkeypatch.setattr(emission, "MOST_ACROSS_RANKS", 0)
    local = expert_algorithms(collective, sketch)
    assert [a.name for a in local] == [a.name for a in across_ranks]
    for within, across in zip(local, across_ranks, strict=True):
        assert verify(within, slots=1).describe() == "proved"
        assert waits(within) >= waits(across)


def test_messages_spare_waits_of_a_small_program_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = switched(1, 4)
    across_ranks = expert_algorithms(Collective.ALL_REDUCE, sketch)
    monkeypatch.setattr(emission, "MOST_ACROSS_RANKS", 0)
    local = expert_algorithms(Collective.ALL_REDUCE, sketch)
    assert sum(map(waits, local)) > sum(map(waits, across_ranks))
