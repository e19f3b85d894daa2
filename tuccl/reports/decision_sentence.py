"""One sentence for people on why a key got its entry, or none."""

from __future__ import annotations

from collections.abc import Sequence

from tuccl.reports.evidence import Evidence
from tuccl.reports.report import ComparisonReport


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
            f"{evidence.takes} {winner.reference_us:.2f} us: {winner.ratio:.3f}x, lower bound "
            f"{winner.lower_bound:.3f}"
        )
    closest = max(rejected, key=lambda other: (other.samples, other.ratio), default=None)
    if closest is None:
        return "NCCL's own choice stays: none of its other settings was faster"
    return (
        f"NCCL's own choice stays: the configuration compared most, {closest.config}, is "
        f"{closest.ratio:.3f}x with a lower bound of {closest.lower_bound:.3f}"
    )
