"""In which order the jobs of a round come."""

from tuccl.measuring.engines.job import turn_order
from tuccl.measuring.engines.job_processes import STOCK, Contender


def test_each_contender_is_first_in_its_turn() -> None:
    first, second = Contender("a", {}), Contender("b", {})
    contenders = [STOCK, first, second]
    orders = [turn_order(contenders, number) for number in range(4)]
    assert orders == [
        (STOCK, first, second), (first, second, STOCK), (second, STOCK, first),
        (STOCK, first, second),
    ]  # fmt: skip
