"""The emulator itself: hand-worked values, several types, deadlocks and bad memory."""

import numpy as np
import pytest

from lookup_tables.collective import Collective
from tests.synthesizer.emulator import expected_outputs, run
from tests.synthesizer.hand_schedules import (
    algorithm,
    all_pairs_all_gather,
    all_pairs_all_reduce,
    block,
    i,
    o,
    step,
)
from tests.synthesizer.mutations import with_steps
from tuccl.errors import ScheduleError


def test_all_reduce_of_two_ranks_by_hand() -> None:
    inputs = [np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40])]
    for seed in range(5):
        for out in run(all_pairs_all_reduce(2), inputs, seed=seed):
            assert out.tolist() == [11, 22, 33, 44]
    assert inputs[0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("collective", "right"),
    [
        (Collective.ALL_REDUCE, [[11, 22], [11, 22]]),
        (Collective.ALL_GATHER, [[1, 2, 10, 20], [1, 2, 10, 20]]),
        (Collective.REDUCE_SCATTER, [[11], [22]]),
        (Collective.ALLTOALL, [[1, 10], [2, 20]]),
        (Collective.BROADCAST, [[10, 20], [10, 20]]),
        (Collective.REDUCE, [[], [11, 22]]),
    ],
)
def test_what_the_operations_compute(collective: Collective, right: list[list[int]]) -> None:
    inputs = [np.array([1, 2]), np.array([10, 20])]
    assert [a.tolist() for a in expected_outputs(collective, inputs, root=1)] == right


def test_a_deadlock_is_found_under_every_seed() -> None:
    a = all_pairs_all_gather(2)
    for rank in (0, 1):
        a = with_steps(a, rank, 0, a.programs[rank].threadblocks[0].steps[::-1])
    for seed in range(5):
        with pytest.raises(ScheduleError, match=r"deadlock: 2 .* rank 0 threadblock 0 step 0"):
            run(a, [np.arange(2)] * 2, seed=seed)


def test_a_race_shows_under_some_seed() -> None:
    """Rank 0 does not wait for the message before it copies the chunk."""
    blocks = [
        [block(0, -1, 1, step("r", i(0))), block(1, -1, -1, step("cpy", i(0), o(0)))],
        [block(0, 0, -1, step("s", i(0)))],
    ]
    a = algorithm(Collective.CUSTOM, 1, blocks)
    seen = {int(run(a, [np.array([1]), np.array([2])], seed=seed)[0][0]) for seed in range(40)}
    assert seen == {1, 2}
