"""Waves, and the order within the ranks that they show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lookup_tables.collective import Collective
from synthesizer.experts.hierarchical import Grid
from synthesizer.experts.rail_exchange import rail_exchange
from synthesizer.prove import races
from synthesizer.prove.defects import DefectKind
from synthesizer.prove.races import unordered_ranks
from synthesizer.prove.step_table import Memory, step_table
from synthesizer.prove.verifier import verify
from synthesizer.prove.waves import Waves, in_waves
from tests.synthesizer.hand_schedules import algorithm as schedule
from tests.synthesizer.hand_schedules import block, s, step
from tests.synthesizer.mutations import places, step_at, with_step

GRID: Grid = ((0, 1), (2, 3), (4, 5), (6, 7))


def test_slots_decide_whether_waves_exist() -> None:
    """Both ranks send two messages before they receive one: two slots are needed."""
    sends, takes = [step("s", s(0)), step("s", s(1))], [step("r", s(2)), step("r", s(3))]
    sides = [[block(0, 1 - rank, 1 - rank, *sends, *takes)] for rank in range(2)]
    table = step_table(schedule(Collective.CUSTOM, 4, sides, scratch=4))
    stuck = in_waves(table, 1)
    assert isinstance(stuck, list)
    assert [defect.kind for defect in stuck] == [DefectKind.DEADLOCK]
    waves = in_waves(table, 2)
    assert isinstance(waves, Waves)
    assert np.diff(waves.first).tolist() == [2, 2, 2, 2]
    assert waves.source.tolist() == [-1, -1, 4, 5, -1, -1, 0, 1]


@pytest.mark.long
@pytest.mark.parametrize("entries", [1, 1 << 24])
def test_dependences_that_are_needed_are_missed(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the same with memory for one rank's clocks at a time."""
    monkeypatch.setattr(races, "_CLOCK_ENTRIES", entries)
    a = rail_exchange(Collective.ALL_REDUCE, GRID, 1)
    assert verify(a, slots=1).proved
    missed = set()
    for place in [p for p in places(a) if p[0] == 5 and step_at(a, p).depends]:
        loose = with_step(a, place, replace(step_at(a, place), depends=None))
        table = step_table(loose)
        waves = in_waves(table, 1)
        assert isinstance(waves, Waves)
        memories = [Memory(loose, table, in_place=mode) for mode in (True, False)]
        suspects = unordered_ranks(table, waves, memories)
        kinds = {defect.kind for defect in verify(loose, slots=1).defects}
        assert suspects == ({5} if kinds else suspects)
        missed |= kinds
    assert missed == {DefectKind.RACE}
