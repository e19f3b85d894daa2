from dataclasses import replace

from tuccl.decision import Comparison, Decision
from tuccl.results import explain_decision
from tuccl.search.config import Config


def comparison(ratio: float, lower_bound: float) -> Comparison:
    return Comparison(Config("ring", "LL", 4), 10.0, 10.0 * ratio, ratio, lower_bound, 15, 0.01)


def test_the_reason_names_what_runs_and_the_bound() -> None:
    won = Decision(comparison(1.2, 1.1), None, 12.0, ())
    assert explain_decision(won) == (
        "ring LL ch4 takes 10.00 us where its reference takes 12.00 us: 1.200x, lower bound 1.100"
    )
    lost = Decision(None, None, 12.0, (comparison(1.01, 0.99),))
    assert explain_decision(lost).startswith(
        "NCCL's own choice stays: the best of what was measured most, ring"
    )


def test_what_several_starts_judged_goes_before_a_larger_ratio_of_one() -> None:
    lucky = comparison(1.3, 0.98)
    tried = replace(comparison(1.05, 0.97), config=Config("tree", "LL", 2), samples=54)
    closest = comparison(1.1, 0.99)
    for rejected in ((lucky, tried), (tried, lucky)):
        assert "tree LL ch2" in explain_decision(Decision(None, None, 12.0, rejected))
    assert "1.300x" in explain_decision(Decision(None, None, 12.0, (closest, lucky)))
