import pytest

from tuccl.search.trials.best_so_far import KeySoFar
from tuccl.search.trials.config import STOCK, Config

RING, TREE = Config("ring", "LL", 4), Config("tree", "LL", 4)


def test_the_best_is_the_least_median_and_gains_against_stock_nccl() -> None:
    key = KeySoFar()
    assert (key.best, key.best_us, key.stock_us, key.gain, key.tried) == (None, None, None, None, 0)
    key.note(RING, (8.0,))
    assert key.gain is None
    key.note(STOCK, (12.0, 10.0, 11.0))
    key.note(TREE, (9.0, 30.0, 10.0))
    assert (key.best, key.best_us, key.stock_us, key.tried) == (RING, 8.0, 11.0, 3)
    assert key.gain == pytest.approx(11.0 / 8.0)


def test_a_lucky_first_sample_does_not_stay_the_best() -> None:
    key = KeySoFar()
    key.note(RING, (8.0,))
    key.note(TREE, (9.0,))
    key.note(RING, (8.0, 12.0, 12.0))
    assert (key.best, key.best_us) == (TREE, 9.0)


def test_what_fails_is_counted_and_never_the_best() -> None:
    key = KeySoFar()
    key.note(RING, (8.0,))
    key.fail(RING)
    assert (key.best, key.tried) == (None, 1)
    key.note(TREE, (9.0,))
    key.fail(Config("nvls", "Simple"))
    assert (key.best, key.tried) == (TREE, 3)
    key.note(STOCK, ())
    assert key.stock_us is None


def test_a_schedule_that_no_job_runs_is_tried_and_never_the_best() -> None:
    key, schedule = KeySoFar(counts_schedules=False), Config("schedule:5a5a", "LL", 4)
    key.note(schedule, (2.0,))
    assert (key.best, key.tried) == (None, 1)
    key.note(STOCK, (12.0,))
    key.note(RING, (8.0,))
    key.note(schedule, (1.0,))
    assert (key.best, key.gain) == (RING, 1.5)
    key.fail(RING)
    assert (key.best, key.tried) == (STOCK, 3)
