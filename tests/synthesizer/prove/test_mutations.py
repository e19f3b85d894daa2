"""The verifier against the emulator, on mutated schedules."""

from collections import Counter
from functools import cache
from random import Random

import numpy as np
import pytest

from lookup_tables.collective import COLLECTIVES
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.contents import input_chunks
from synthesizer.prove.defects import DefectKind
from synthesizer.prove.verifier import verify
from tests.synthesizer.emulator import expected_outputs, run
from tests.synthesizer.hand_schedules import all_schedules
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.mutations import mutate
from tuccl.errors import ScheduleError

pytestmark = pytest.mark.long

SLOTS = 2
MANY_SLOTS = 64
MOST_STEPS = 64
"""Most steps of a schedule; larger ones show nothing new about single mutations and take long."""


def random_inputs(a: Algorithm, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (a.collective, a.ranks, a.chunks_per_loop)
    return [
        rng.integers(1, 1 << 40, size=input_chunks(*shape, rank, a.root)) for rank in range(a.ranks)
    ]


def gives_right_result(
    a: Algorithm, seed: int, *, in_place: bool, slots: int, chunks_per_slot: int | None = None
) -> bool:
    inputs = random_inputs(a, seed)
    right = expected_outputs(a.collective, inputs, a.root)
    outputs = run(
        a, inputs, seed=seed, in_place=in_place, slots=slots, chunks_per_slot=chunks_per_slot
    )
    return all(np.array_equal(got, want) for got, want in zip(outputs, right, strict=True))


def modes(a: Algorithm) -> list[bool]:
    return [mode for mode, claimed in ((True, a.in_place), (False, a.out_of_place)) if claimed]


def check(a: Algorithm, seed: int) -> str:
    """Compare the verdict with the emulator's result; return the class of the outcome."""
    verdict = verify(a, slots=SLOTS)
    kinds = {defect.kind for defect in verdict.defects}
    if verdict.proved:
        for mode in modes(a):
            for k in range(3):
                assert gives_right_result(a, seed + k, in_place=mode, slots=SLOTS)
            # Chunks that stream through fused steps one by one: no race may show here either.
            streamed = {"slots": MANY_SLOTS, "chunks_per_slot": 1}
            assert gives_right_result(a, seed, in_place=mode, **streamed)
        return "proved"
    if DefectKind.DEADLOCK in kinds:
        with pytest.raises(ScheduleError, match="deadlock"):
            run(a, random_inputs(a, seed), slots=SLOTS, seed=seed)
        return "deadlock"
    if kinds == {DefectKind.WRONG_RESULT}:
        seen = [gives_right_result(a, seed, in_place=mode, slots=SLOTS) for mode in modes(a)]
        assert not all(seen), "the verifier calls a right result wrong"
        return "wrong result"
    return "+".join(sorted(kinds))


@cache
def right_schedules() -> tuple[Algorithm, ...]:
    """Return hand-written schedules, and lowered experts of every kind on small machines."""
    experts = [
        algorithm
        for sketch in (switched(1, 3), switched(2, 2), switched(1, 4))
        for collective in COLLECTIVES
        for algorithm in expert_algorithms(collective, sketch, root=1)
        if algorithm.step_count <= MOST_STEPS
    ]
    return (*all_schedules(), *experts)


def run_mutations(count: int, seed: int) -> Counter[str]:
    rng = Random(seed)
    outcomes: Counter[str] = Counter()
    schedules = right_schedules()
    for number in range(count):
        mutant = mutate(rng.choice(schedules), rng)
        outcomes[check(mutant, seed * 1_000_000 + number)] += 1
    return outcomes


def test_right_schedules_are_proved_and_give_the_right_buffers() -> None:
    for number, a in enumerate(right_schedules()):
        assert check(a, number) == "proved", (a.name, a.ranks)


def test_every_accepted_mutation_is_harmless() -> None:
    outcomes = run_mutations(600, seed=1)
    for outcome in ("proved", "connection", "deadlock", "race", "wrong result"):
        assert outcomes[outcome] >= 5, outcomes


@pytest.mark.slow
def test_every_accepted_mutation_of_ten_thousand_is_harmless() -> None:
    outcomes = run_mutations(10_000, seed=2)
    assert outcomes["proved"] >= 500, outcomes
