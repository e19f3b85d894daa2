from hypothesis import given
from hypothesis import strategies as st

from tuccl.search.strategies.hyperband import Rung, hyperband_plan


def test_the_plan_of_hyperbands_paper_for_r_27_eta_3() -> None:
    brackets = hyperband_plan(27, 3)
    assert brackets[0].rungs == (Rung(27, 1), Rung(9, 3), Rung(3, 9), Rung(1, 27))
    assert brackets[1].rungs == (Rung(12, 3), Rung(4, 9), Rung(1, 27))
    assert brackets[2].rungs == (Rung(6, 9), Rung(2, 27))
    assert brackets[3].rungs == (Rung(4, 27),)


@given(st.integers(1, 200), st.integers(2, 5))
def test_rungs_shrink_in_number_grow_in_budget_and_end_at_full_budget(
    max_repeats: int, eta: int
) -> None:
    for bracket in hyperband_plan(max_repeats, eta):
        configs = [rung.configs for rung in bracket.rungs]
        repeats = [rung.repeats for rung in bracket.rungs]
        assert configs == sorted(configs, reverse=True)
        assert min(configs) >= 1
        assert repeats == sorted(repeats)
        assert repeats[-1] == max_repeats
        assert repeats[0] >= 1
