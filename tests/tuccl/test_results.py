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
    assert explain_decision(lost).startswith("NCCL's own choice stays: the best alternative, ring")
