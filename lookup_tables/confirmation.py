"""`Confirmation`, evidence that an entry's winner is faster, and `JobGain`, what jobs got."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Estimator(StrEnum):
    """Methods that derive times and ratios from samples."""

    MEDIAN_OF_PAIRS = "median_of_pairs"
    """Times are medians of samples of one start of the workers, the ratio that of their pairs,
    by Hodges and Lehmann."""
    MEAN_OF_SAMPLES = "mean_of_samples"
    """Times are means of samples of one start, since some of them stall; the ratio is theirs."""
    MEAN_OVER_STARTS = "mean_over_starts"
    """Geometric means, where each start counts with the interquartile mean of its samples, or with
    their mean where some of them stall."""


class Reference(StrEnum):
    """The configuration that a winner was compared with."""

    STOCK = "stock"
    """Stock NCCL, with no variables set."""
    PROFILE = "profile"
    """NCCL's own choice under the table's process profile."""
    BUILTIN = "builtin"
    """The best built-in setting, for a schedule; the entry's own if that was confirmed too."""


class NoStarts(StrEnum):
    """Reasons why times come from no starts of workers."""

    MODELLED = "modelled"
    """A model computed them."""
    RECORDED = "recorded"
    """They come from a record, which does not keep the start of each sample."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A winner's comparison with its reference."""

    reference: Reference
    estimator: Estimator
    ratio: float
    """The reference's time over the winner's: above 1 is faster."""
    low: float
    """Lower bound of the ratio, which allows for the variation between starts of the workers."""
    high: float
    """Upper bound, likewise."""
    confidence: float
    """Confidence with which each bound holds by itself."""
    starts: int | NoStarts
    """Number of starts of the workers behind the times, or the reason why there were none."""


@dataclass(frozen=True, slots=True)
class JobGain:
    """What jobs with the whole table gained at an entry's size, in turn with jobs of stock NCCL."""

    stock_us: float
    """Mean time of stock NCCL."""
    table_us: float
    """Mean time with the table."""
    low: float
    """Lower bound of the ratio."""
    high: float
    """Upper bound."""
    rounds: int
    """Jobs of each."""

    @property
    def ratio(self) -> float:
        """Stock NCCL's time over that with the table: above 1 is faster."""
        return self.stock_us / self.table_us
