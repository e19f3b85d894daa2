"""`Confirmation`: how it is known that an entry's winner is faster, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Estimator(StrEnum):
    """How times and their ratio follow from samples; the arithmetic is in `tuccl.statistics`."""

    MEDIAN_OF_PAIRS = "median_of_pairs"
    """Times are medians of samples of one start of the workers, the ratio that of their pairs."""
    MEAN_OVER_STARTS = "mean_over_starts"
    """Geometric means, where each start counts with the interquartile mean of its samples."""


class Reference(StrEnum):
    """What a winner was held against."""

    STOCK = "stock"
    """Stock NCCL, with nothing set."""
    PROFILE = "profile"
    """NCCL's own choice under the table's process profile."""
    BUILTIN = "builtin"
    """The best built-in setting, as a schedule is; the entry's own where that was confirmed too."""


class NoStarts(StrEnum):
    """Why times are of no starts of workers."""

    MODELLED = "modelled"
    """A model computed them."""
    RECORDED = "recorded"
    """A record gave them out, which does not keep in which start a sample was taken."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A winner against its reference."""

    reference: Reference
    estimator: Estimator
    ratio: float
    """The reference's time over the winner's: above 1 is faster."""
    low: float
    """Bounds of the ratio, which allow for what other starts of the workers may show."""
    high: float
    confidence: float
    """With which each bound holds by itself."""
    starts: int | NoStarts
    """Number of starts of the workers that the times are of; or why there were none."""
