"""The vectorised proof against the verifier that checks step by step."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from lookup_tables.collective import Collective
from synthesizer.experts.hierarchical import Grid
from synthesizer.experts.rail_exchange import rail_exchange
from synthesizer.ir.algorithm import Algorithm, Protocol, StepRef
from synthesizer.prove import wave_proof
from synthesizer.prove.defects import DefectKind
from synthesizer.prove.step_table import step_table
from synthesizer.prove.table_structure import Places
from synthesizer.prove.verifier import is_plainly_right, step_by_step, verify
from synthesizer.prove.waves import in_waves
from tests.synthesizer.hand_schedules import algorithm as schedule
from tests.synthesizer.hand_schedules import all_schedules, block, ring_all_gather, s, step
from tests.synthesizer.mutations import mutate, places, step_at, with_step

GRID: Grid = ((0, 1), (2, 3), (4, 5), (6, 7))
RAILS = [
    rail_exchange(collective, GRID, 1)
    for collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE)
]


def modes(a: Algorithm) -> list[bool]:
    return [mode for mode, claimed in ((True, a.in_place), (False, a.out_of_place)) if claimed]


def compare(a: Algorithm, slots: int, chunks_per_slot: int | None) -> tuple[bool, bool]:
    """Return both verdicts; a vectorised proof must hold step by step."""
    plain = is_plainly_right(a, modes(a), slots, chunks_per_slot)
    verdict = step_by_step(a, modes(a), slots, chunks_per_slot)
    assert verdict.proved or not plain, verdict.describe()
    return plain, verdict.proved


@pytest.mark.parametrize("a", RAILS, ids=lambda a: a.collective)
def test_rail_exchanges_are_plainly_right(a: Algorithm) -> None:
    assert compare(a, 1, None) == (True, True)
    assert compare(a, 1, 1) == (True, True)


def test_most_schedules_written_by_hand_are_plainly_right() -> None:
    """The others need the order that messages imply."""
    found = [compare(a, 2, None) for a in all_schedules()]
    assert all(proved for _, proved in found)
    assert sum(plain for plain, _ in found) >= 0.7 * len(found)


@pytest.mark.long
def test_no_damage_is_called_right() -> None:
    rng = Random(3)
    outcomes = []
    schedules = [*all_schedules(), *RAILS]
    for _ in range(600):
        mutant = mutate(rng.choice(schedules), rng)
        outcomes.append(compare(mutant, rng.choice((1, 2, 3)), rng.choice((None, 1, 2))))
    proved = [plain for plain, slow in outcomes if slow]
    assert len(proved) >= 40
    # It misses long messages in small slots, and order that only messages imply.
    assert sum(proved) >= 0.8 * len(proved)


@pytest.mark.slow
def test_no_damage_of_ten_thousand_is_called_right() -> None:
    rng = Random(4)
    schedules = [*all_schedules(), *RAILS]
    for _ in range(10_000):
        mutant = mutate(rng.choice(schedules), rng)
        compare(mutant, rng.choice((1, 2, 3)), rng.choice((None, 1, 2)))


def test_slots_decide_whether_waves_exist() -> None:
    """Both ranks send two messages before they receive one: two slots are needed."""
    sides = [
        [
            block(
                0,
                1 - rank,
                1 - rank,
                *(step("s", s(0)), step("s", s(1)), step("r", s(2)), step("r", s(3))),
            )
        ]
        for rank in range(2)
    ]
    a = schedule(Collective.CUSTOM, 4, sides, scratch=4)
    table = step_table(a)
    assert in_waves(table, 1) is None
    waves = in_waves(table, 2)
    assert waves is not None
    assert np.diff(waves.first).tolist() == [2, 2, 2, 2]
    assert waves.source.tolist() == [-1, -1, 4, 5, -1, -1, 0, 1]


@pytest.mark.long
@pytest.mark.parametrize("entries", [1, 1 << 24])
def test_dependences_that_are_needed_are_missed(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the same with memory for one rank's clocks at a time."""
    monkeypatch.setattr(wave_proof, "_CLOCK_ENTRIES", entries)
    a = RAILS[2]
    assert is_plainly_right(a, [True, False], 1, None)
    kinds = set()
    for place in [p for p in places(a) if p[0] == 5 and step_at(a, p).depends]:
        loose = with_step(a, place, replace(step_at(a, place), depends=None))
        table = step_table(loose)
        waves = in_waves(table, 1)
        assert waves is not None
        layouts = [Places(loose, in_place=mode) for mode in (True, False)]
        ordered = wave_proof.ordered_within_ranks(table, waves, layouts)
        verdict = step_by_step(loose, [True, False], 1, None)
        kinds |= {defect.kind for defect in verdict.defects}
        assert verdict.proved or not ordered
    assert kinds == {DefectKind.RACE}


def test_numbers_beyond_64_bits_are_left_to_the_other_verifier() -> None:
    a = ring_all_gather(3)
    far = replace(step_at(a, (0, 0, 0)), count=1 << 70)
    verdict = verify(with_step(a, (0, 0, 0), far))
    assert {defect.kind for defect in verdict.defects} == {DefectKind.STRUCTURE}


def test_a_dependence_on_a_negative_threadblock_is_a_defect() -> None:
    a = ring_all_gather(3)
    tied = replace(step_at(a, (0, 0, 0)), depends=StepRef(-1, 0))
    assert not is_plainly_right(with_step(a, (0, 0, 0), tied), [True], 2, None)


def test_what_a_schedule_is_called_does_not_count() -> None:
    a = replace(RAILS[0], name="x", protocol=Protocol.LL128)
    assert verify(a, slots=1).proved
