"""Sentences for people on why a key got its entry, or none, and on how well that is known."""

from __future__ import annotations

from collections.abc import Sequence

from lookup_tables.confirmation import NoStarts, Reference
from tuccl.reports.evidence import Evidence
from tuccl.reports.report import ComparisonReport

_REFERENCES = {
    Reference.STOCK: "stock NCCL",
    Reference.PROFILE: "NCCL under the process profile",
    Reference.BUILTIN: "the built-in setting",
    None: "its reference",
}
_TELLS_NOTHING = 100.0
"""An upper bound so many times the ratio is not worth its digits."""
_NO_STARTS = {NoStarts.MODELLED: "modelled", NoStarts.RECORDED: "samples of a record"}


def decision_sentence(
    winner: ComparisonReport | None, rejected: Sequence[ComparisonReport], evidence: Evidence
) -> str:
    """Why this configuration runs, or why NCCL's own choice does.

    Of what was rejected it names the one with most samples, as that of several starts of the
    workers is: the largest ratio of a single start may be luck that others have belied.

    Args:
        winner: What was proved faster; None: nothing.
        rejected: What was compared and not proved faster.
        evidence: Behind the times.
    """
    if winner is not None:
        return (
            f"{winner.config} {evidence.takes} {winner.time_us:.2f} us where its reference "
            f"{evidence.takes} {winner.reference_us:.2f} us: {ratio_text(winner)}"
        )
    closest = max(rejected, key=lambda other: (other.samples, other.ratio), default=None)
    if closest is None:
        return "NCCL's own choice stays: none of its other settings was faster"
    return (
        f"NCCL's own choice stays: the configuration compared most, {closest.config}, is "
        f"{ratio_text(closest)}"
    )


def ratio_text(compared: ComparisonReport) -> str:
    """`1.107x (1.087 to 1.130, 99 %), against NCCL under the process profile, 3 starts`."""
    ratio = f"{compared.ratio:.3f}x"
    high = compared.upper_bound
    if compared.confidence is None or high is None or high > _TELLS_NOTHING * compared.ratio:
        return f"{ratio}, lower bound {compared.lower_bound:.3f}"
    return (
        f"{ratio} ({compared.lower_bound:.3f} to {high:.3f}, "
        f"{100.0 * compared.confidence:.3g} %), against {_REFERENCES[compared.reference]}, "
        f"{starts_text(compared.starts)}"
    )


def starts_text(starts: int | NoStarts | None) -> str:
    """`3 starts`, or why there were none."""
    if isinstance(starts, NoStarts):
        return _NO_STARTS[starts]
    return "one start" if starts == 1 else f"{starts} starts"
