"""`KeyFigures`: the figures of one key, and the pandas frame of many.

A key is an operation, a size and a communicator shape; the entry for some communicators of a shape
alone is a key of its own. Reports, benches, comparisons of tables, steps and watches add their own
members to this record, and compute on its frame. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lookup_tables.collective import Collective
from lookup_tables.confirmation import NoStarts
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from probes.inputs.messages import printable
from tuccl.quantities import format_size
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import shape_text

if TYPE_CHECKING:
    import pandas as pd

CALL = ("operation", "size_bytes", "ranks", "nodes", "ranks_per_node", "placement")
"""Columns of a frame that name a key."""
FIGURES = ("stock_us", "table_us", "gain", "low", "high")
_ORIGIN = ("backend", "nccl_version", "tuccl_version", "machine")
COLUMNS = (*CALL, *FIGURES, "runner", "runs", "starts", *_ORIGIN)


class Runner(StrEnum):
    """The component that decides how a call runs."""

    EXECUTOR = "executor"
    """A schedule on the executor."""
    PLUGIN = "plugin"
    """One of NCCL's algorithms, chosen by the plugin."""
    PROFILE = "profile"
    """NCCL by itself, under the table's process profile."""
    NCCL = "nccl"
    """NCCL by itself."""


class Verdict(StrEnum):
    """What bounds say of a second time against a first one."""

    FASTER = "faster"
    SLOWER = "slower"
    NOT_TOLD_APART = "not told apart"


@dataclass(frozen=True, slots=True)
class Gain:
    """The ratio of two times, above 1 if the second is less, with its interval."""

    ratio: float
    low: float | None
    """Lower bound; None: none was computed."""
    high: float | None
    """Upper bound; None: none was computed."""

    @property
    def verdict(self) -> Verdict:
        """Whether the bounds tell the two times apart."""
        if self.low is not None and self.low > 1.0:
            return Verdict.FASTER
        slower = self.high is not None and self.high < 1.0
        return Verdict.SLOWER if slower else Verdict.NOT_TOLD_APART


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedCall:
    """A key: calls of one size on communicators of one shape, all of which make it at once."""

    operation: Collective
    size_bytes: int
    shape: Shape
    placement: str | None = None
    """GPUs of a communicator, if the figures are of those like it alone; None: wherever ranks
    sit."""

    @property
    def task(self) -> Task:
        """The key as the search names it, wherever ranks sit."""
        return Task(self.operation, self.size_bytes, self.shape)

    @property
    def order(self) -> tuple[Shape, Collective, int, str]:
        """Unique sort key of the keys of a table."""
        return self.shape, self.operation, self.size_bytes, self.placement or ""

    @property
    def described(self) -> str:
        """The key as `all_gather 1M`, with GPUs of a communicator if it is of those like it."""
        like = f", like {self.placement}" if self.placement else ""
        return f"{self.operation.value} {format_size(self.size_bytes)}{like}"

    def named(self, whole: Shape) -> str:
        """Return `all_gather 1M of 2 ranks on 1 node(s)`, without the shape if it is the whole."""
        return f"{self.operation.value} {format_size(self.size_bytes)}{self.part(whole)}"

    def part(self, whole: Shape) -> str:
        """Return ` of 2 ranks on 1 node(s), like n0/gpu0 and n0/gpu1`; empty for all ranks."""
        if self.shape == whole:
            return ""
        like = f", like {printable(self.placement)}" if self.placement else ""
        return f" of {shape_text(self.shape)}{like}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigures(TunedCall):
    """A key with stock NCCL and with a table."""

    stock_us: float
    """Stock NCCL's time."""
    table_us: float | None
    """Time in a job with the table; None: unknown."""
    gain: Gain | None
    """Stock NCCL's time over the table's; None: the latter is unknown."""
    runner: Runner
    runs: str
    """The setting or schedule that runs, in words."""
    starts: int | NoStarts | None = None
    """Starts of the workers behind the times, or why there were none; None: unknown."""
    provenance: Provenance | None = None
    """Origin of the table's times; None: it has no entry, or does not say."""


def frame_of(keys: Sequence[KeyFigures], **more: Sequence[object]) -> pd.DataFrame:
    """Return a row for each key, with the record's members as columns.

    `ranks`, `nodes` and `ranks_per_node` are of the shape; `gain`, `low` and `high` of the gain;
    `backend`, `nccl_version`, `tuccl_version` and `machine` of the provenance. Unknown figures are
    NaN, unknown words None.

    Args:
        keys: The keys.
        more: Further columns.
    """
    import pandas as pd  # noqa: PLC0415 - slow

    rows = [_row(key) for key in keys]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in COLUMNS}
    frame = pd.DataFrame({**columns, **more})
    return frame.astype(dict.fromkeys(FIGURES, "float64"))


def _row(key: KeyFigures) -> dict[str, Any]:
    origin = key.provenance
    version = None if origin is None else origin.nccl_version
    return {
        "operation": key.operation.value,
        "size_bytes": key.size_bytes,
        "ranks": key.shape.ranks,
        "nodes": key.shape.nodes,
        "ranks_per_node": key.shape.ranks_per_node,
        "placement": key.placement or "",
        "stock_us": key.stock_us,
        "table_us": key.table_us,
        "gain": None if key.gain is None else key.gain.ratio,
        "low": None if key.gain is None else key.gain.low,
        "high": None if key.gain is None else key.gain.high,
        "runner": key.runner.value,
        "runs": key.runs,
        "starts": key.starts,
        "backend": None if origin is None else origin.backend,
        "nccl_version": None if version is None else str(version),
        "tuccl_version": None if origin is None else origin.tuccl_version,
        "machine": None if origin is None else origin.machine,
    }


def geometric_mean_of(ratios: pd.Series[float]) -> float:
    """Return the geometric mean of the known ratios; 1 if there are none."""
    import numpy as np  # noqa: PLC0415 - slow

    known = ratios.dropna()
    return float(np.exp(np.log(known).mean())) if len(known) else 1.0
