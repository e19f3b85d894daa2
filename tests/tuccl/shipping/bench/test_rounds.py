"""In which order the jobs of a round come, and the keys of a job."""

from itertools import pairwise

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.measuring.engines.job import turn_order
from tuccl.measuring.engines.job_processes import STOCK, Contender
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.rounds import turn_of_keys


def test_each_contender_is_first_in_its_turn() -> None:
    first, second = Contender("a", {}), Contender("b", {})
    contenders = [STOCK, first, second]
    orders = [turn_order(contenders, number) for number in range(4)]
    assert orders == [
        (STOCK, first, second), (first, second, STOCK), (second, STOCK, first),
        (STOCK, first, second),
    ]  # fmt: skip


def test_no_key_runs_after_the_same_key_in_all_rounds() -> None:
    keys = [Task(Collective.ALL_GATHER, 1 << bits, Shape(4, 2, 2)) for bits in range(10, 20)]
    rounds = [list(turn_of_keys(keys, number)) for number in range(4)]
    assert rounds[0] == keys
    assert all(set(order) == set(keys) and len(order) == len(keys) for order in rounds)
    assert not set.intersection(*(set(pairwise(order)) for order in rounds))
    assert turn_of_keys(keys, 2) == rounds[2]
