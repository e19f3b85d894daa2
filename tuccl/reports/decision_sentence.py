"""Sentences for people that explain why a key has its entry, or none, and with what evidence."""

from __future__ import annotations

from collections.abc import Sequence

from lookup_tables.confirmation import Confirmation, NoStarts, Reference
from tuccl.quantities import count_of
from tuccl.reports.choice_text import OWN_CHOICE
from tuccl.reports.evidence import Evidence
from tuccl.reports.report import BaselineFate, BaselineReport, ComparisonReport, UnprovedGain

_REFERENCES = {
    Reference.STOCK: "stock NCCL",
    Reference.PROFILE: "NCCL under the process profile",
    Reference.BUILTIN: "the built-in setting",
}
_UNINFORMATIVE = 100.0
"""A bound that is away from the ratio by this factor is not shown."""
_NO_STARTS = {NoStarts.MODELLED: "modelled", NoStarts.RECORDED: "samples of a record"}


def decision_sentence(
    winner: ComparisonReport | None,
    rejected: Sequence[ComparisonReport],
    evidence: Evidence,
    left_out: Sequence[str] = (),
    stays: str = OWN_CHOICE,
    *,
    is_obliged: bool = False,
) -> str:
    """Explain why a configuration runs, or why NCCL's own choice does.

    For a key without a winner it names the rejected comparison with most samples, which covers
    several starts if any does: the largest ratio of a single start may be luck.

    Args:
        winner: The comparison that was proved faster; None: none was.
        rejected: The comparisons that were not proved faster.
        evidence: The evidence behind the times.
        left_out: Sentences on calls that won, but not wherever ranks sit.
        stays: What runs if no call won: NCCL's own choice, or that under the profile.
        is_obliged: Whether the winner was not proved faster.
    """
    if winner is not None:
        won = (
            f"{winner.config} {evidence.takes} {winner.time_us:.2f} us instead of "
            f"{winner.reference_us:.2f} us: {ratio_text(winner)}"
        )
        if is_obliged:
            won += "; not proved faster, it runs since the table's sums must not move"
        if winner.stalls:
            won += f"; {winner.stalls} of {winner.samples} samples stalled, and count"
        return "; ".join([won, *left_out])
    if left_out:
        return f"{stays} stays: {'; '.join(left_out)}"
    most_compared = max(rejected, key=lambda c: (c.samples, c.ratio), default=None)
    if most_compared is None:
        return f"{stays} stays: none of NCCL's other settings was faster"
    return (
        f"{stays} stays: the configuration compared most, {most_compared.config}, is "
        f"{ratio_text(most_compared)}"
    )


def unproved_sentence(seen: UnprovedGain) -> str:
    """Say what gained more than what runs, and what its proof would have taken."""
    found = f"not proved: {seen.config}, seen at {seen.gain:.3f}x of NCCL's own choice, is "
    found += ratio_text(seen.comparison)
    if seen.comparison.stalls:
        found += f", with {seen.comparison.stalls} stalls in {seen.comparison.samples} samples"
    if seen.further_starts:
        more = count_of(seen.further_starts, "further start")
        return f"{found}; {more} would be likely to decide it"
    if seen.starts_needed is None:
        return found
    return f"{found}; it would take {seen.starts_needed} starts, more than are ever made"


def ratio_text(compared: ComparisonReport | Confirmation) -> str:
    """As `1.107x (1.087 to 1.130, 99 %), against NCCL under the process profile, 3 starts`."""
    if isinstance(compared, ComparisonReport):
        low, high = compared.lower_bound, compared.upper_bound
    else:
        low, high = compared.low, compared.high
    ratio = f"{compared.ratio:.3f}x"
    if high is None or high > _UNINFORMATIVE * compared.ratio:
        is_bounded = low * _UNINFORMATIVE >= compared.ratio
        return f"{ratio}, " + (
            f"lower bound {low:.3f}" if is_bounded else "its samples too few for bounds"
        )
    return (
        f"{ratio} ({low:.3f} to {high:.3f}, {100.0 * compared.confidence:.3g} %), against "
        f"{_REFERENCES[compared.reference]}, {starts_text(compared.starts)}"
    )


def starts_text(starts: int | NoStarts) -> str:
    """The number of starts, as `3 starts`, or why there were none."""
    if isinstance(starts, NoStarts):
        return _NO_STARTS[starts]
    return "one start" if starts == 1 else f"{starts} starts"


def baseline_sentence(choice: BaselineReport) -> str:
    """Say what a tuner's file chooses for a key, and what became of it."""
    source = f"line {choice.line} of {choice.file}" if choice.line else choice.file
    if choice.fate is BaselineFate.WON:
        return f"{choice.config} is the choice of {source}, too"
    chosen = f"{source} chooses {choice.config}"
    if choice.fate is BaselineFate.NOT_HERE:
        return f"{chosen}, which NCCL does not have here"
    if choice.fate is BaselineFate.FAILED:
        return f"{chosen}, which does not run here: {choice.why}"
    if choice.fate is BaselineFate.UNTRIED:
        return f"{chosen}, which was not tried: {choice.why}"
    if choice.comparison is not None:
        return f"{chosen}, which is {ratio_text(choice.comparison)}"
    return (
        f"{chosen}: {choice.time_us:.2f} us, the fastest of NCCL's settings {choice.best_us:.2f} us"
    )
