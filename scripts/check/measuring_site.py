"""Ranks, NCCL and options with which scripts time calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from measuring_job import JobResult, run_job

from tuccl.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.engines.nccl_variables import PLUGIN_VARIABLE

STOCK = {PLUGIN_VARIABLE: "none"}
"""Configuration of NCCL without settings and plugin."""
Key = tuple[str, int]
"""An operation as nccl-tests names it, and a size in bytes."""
_M = 1 << 20


def step(key: Key, launches: int) -> dict[str, Any]:
    """A step of a job, with fewer calls per launch for large messages."""
    operation, size_bytes = key
    calls = 20 if size_bytes <= _M else 10 if size_bytes <= 16 * _M else 4
    return {"operation": operation, "size_bytes": size_bytes, "calls": calls, "launches": launches}


@dataclass(frozen=True)
class Site:
    """Ranks, libraries and options of all jobs."""

    folder: Path
    libraries: Path
    nccl: str
    ranks: int
    limit_s: float
    call: Mapping[str, Any]
    """Members of every step: data type, in place, graph, clock."""
    _numbers: Iterator[int] = field(default_factory=count)

    def run(
        self, steps: Sequence[dict[str, Any]], variables: Mapping[str, str], *, controlled: bool
    ) -> JobResult:
        """Run one job in new processes."""
        return run_job(
            self.folder / f"job{next(self._numbers)}",
            self.ranks,
            [dict(self.call) | step for step in steps],
            {LIBRARY_VARIABLE: self.nccl, **variables},
            libraries=self.libraries,
            controlled=controlled,
            limit_s=self.limit_s,
        )
