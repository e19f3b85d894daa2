import pytest

from lookup_tables.confirmation import Estimator, NoStarts, Reference
from tuccl.reports.decision_sentence import decision_sentence, ratio_text, unproved_sentence
from tuccl.reports.evidence import Evidence
from tuccl.reports.report import ComparisonReport, UnprovedGain


def comparison(ratio: float, lower_bound: float, config: str = "ring LL ch4") -> ComparisonReport:
    return ComparisonReport(
        config=config, time_us=10.0, reference_us=10.0 * ratio, ratio=ratio,
        lower_bound=lower_bound, samples=15, spread=0.01, upper_bound=None, confidence=0.99,
        reference=Reference.PROFILE, estimator=Estimator.MEAN_OVER_STARTS, starts=3,
    )  # fmt: skip


def with_interval(**fields: object) -> ComparisonReport:
    return comparison(1.107, 1.087).model_copy(update={"upper_bound": 1.13} | fields)


@pytest.mark.parametrize(
    ("compared", "text"),
    [
        (
            with_interval(),
            "1.107x (1.087 to 1.130, 99 %), against NCCL under the process profile, 3 starts",
        ),
        (
            with_interval(reference=Reference.STOCK, starts=1),
            "1.107x (1.087 to 1.130, 99 %), against stock NCCL, one start",
        ),
        (
            with_interval(reference=Reference.BUILTIN, starts=NoStarts.RECORDED),
            "1.107x (1.087 to 1.130, 99 %), against the built-in setting, samples of a record",
        ),
        (
            with_interval(confidence=0.995, starts=NoStarts.MODELLED),
            "1.107x (1.087 to 1.130, 99.5 %), against NCCL under the process profile, modelled",
        ),
        (with_interval(upper_bound=None), "1.107x, lower bound 1.087"),
        (with_interval(upper_bound=4e10), "1.107x, lower bound 1.087"),
        (comparison(1.107, 1.087), "1.107x, lower bound 1.087"),
        (comparison(1.107, 0.0), "1.107x, its samples too few for bounds"),
        (
            with_interval(lower_bound=1e-9, upper_bound=4e10),
            "1.107x, its samples too few for bounds",
        ),
    ],
)
def test_a_ratio_has_its_interval_its_reference_and_its_starts(
    compared: ComparisonReport, text: str
) -> None:
    assert ratio_text(compared) == text
    won = decision_sentence(compared, (), Evidence.MEASURED)
    assert won == f"ring LL ch4 takes 10.00 us instead of 11.07 us: {text}"
    assert decision_sentence(None, (compared,), Evidence.MEASURED).endswith(f"is {text}")


def test_a_comparison_over_several_starts_precedes_a_larger_ratio_of_one_start() -> None:
    lucky = comparison(1.3, 0.98)
    tried = comparison(1.05, 0.97, "tree LL ch2").model_copy(update={"samples": 54})
    closest = comparison(1.1, 0.99)
    for rejected in ((lucky, tried), (tried, lucky)):
        assert "tree LL ch2" in decision_sentence(None, rejected, Evidence.MEASURED)
    assert "1.300x" in decision_sentence(None, (closest, lucky), Evidence.MEASURED)


def test_calls_that_are_left_out_are_told_beside_the_winner_and_without_one() -> None:
    left_out = ("ring LL is left out: slower on pairs (0.900x)",)
    alone = decision_sentence(None, (comparison(1.3, 0.9),), Evidence.MEASURED, left_out)
    assert alone == f"NCCL's own choice stays: {left_out[0]}"
    beside = decision_sentence(comparison(1.2, 1.1), (), Evidence.MEASURED, left_out)
    assert beside.startswith("ring")
    assert beside.endswith(f"; {left_out[0]}")


def test_an_unproved_gain_has_its_interval_its_stalls_and_its_price() -> None:
    compared = with_interval(lower_bound=0.98, stalls=4, starts=1)
    seen = UnprovedGain(
        config="ring LL ch4", gain=1.3, comparison=compared, starts_needed=5, further_s=1.0,
        further_starts=5,
    )  # fmt: skip
    assert unproved_sentence(seen) == (
        "not proved: ring LL ch4, seen at 1.300x of NCCL's own choice, is 1.107x (0.980 to 1.130, "
        "99 %), against NCCL under the process profile, one start, with 4 stalls in 15 samples; 5 "
        "further starts would be likely to decide it"
    )
    never = seen.model_copy(update={"starts_needed": 40, "further_starts": 0})
    assert unproved_sentence(never).endswith("it would take 40 starts, more than are ever made")
