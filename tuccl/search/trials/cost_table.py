"""`CostTable`: the algorithms and protocols that NCCL allows for a call, with its own estimates.

NCCL hands its tuner a table with a time for each pair of algorithm and protocol, and -1 where the
pair cannot run: on this machine, for this operation, or under the variables of the process. The
tuner plugin reports it to a measuring process through the control block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from lookup_tables.table import NcclAlgorithm, NcclProtocol

Pair = tuple[NcclAlgorithm, NcclProtocol]
_CHUNKS = "chunks"


@dataclass(frozen=True, slots=True)
class CostTable:
    """NCCL's cost table for the calls of a key."""

    costs: tuple[tuple[NcclAlgorithm, NcclProtocol, float | None], ...]
    """Each allowed pair with NCCL's estimate in us, None if ranks have different ones; in the order
    of NCCL's table."""
    asks_about_chunks: bool = False
    """Whether NCCL lets its tuner choose the size of chunks (NCCL 2.30)."""

    @property
    def allowed(self) -> tuple[Pair, ...]:
        """The pairs that can run."""
        return tuple((algorithm, protocol) for algorithm, protocol, _ in self.costs)

    @property
    def ring_us(self) -> float | None:
        """The estimate for ring with Simple, if there is one."""
        ring = NcclAlgorithm.RING, NcclProtocol.SIMPLE
        return next((us for *pair, us in self.costs if tuple(pair) == ring), None)

    @property
    def names(self) -> str:
        """The pairs for people: `ring LL, nvls Simple`."""
        return ", ".join(f"{a.value} {p.value}" for a, p in self.allowed) or "nothing"

    def __str__(self) -> str:
        """Return a text that `parse` reads: `ring/LL=6.6 nvls/Simple=? chunks`."""
        costs = (
            f"{algorithm.value}/{protocol.value}={'?' if us is None else repr(us)}"
            for algorithm, protocol, us in self.costs
        )
        return " ".join([*costs, _CHUNKS] if self.asks_about_chunks else costs)

    @classmethod
    def parse(cls, text: str) -> CostTable:
        """Return the table of a text.

        Raises:
            ValueError: The text is none.
        """
        words = text.split()
        asks = words[-1:] == [_CHUNKS]
        return cls(tuple(map(_cost, words[:-1] if asks else words)), asks)

    @classmethod
    def common(cls, tables: Sequence[CostTable]) -> CostTable:
        """Return what all of these tables allow, with the estimates in which they agree."""
        found = [{(a, p): us for a, p, us in table.costs} for table in tables]
        agreed = {pair: {each.get(pair) for each in found} for pair in tables[0].allowed}
        return cls(
            tuple(
                (*pair, next(iter(times)) if len(times) == 1 else None)
                for pair, times in agreed.items()
                if all(pair in each for each in found)
            ),
            all(table.asks_about_chunks for table in tables),
        )


def _cost(word: str) -> tuple[NcclAlgorithm, NcclProtocol, float | None]:
    pair, _, time = word.partition("=")
    algorithm, _, protocol = pair.partition("/")
    us = None if time == "?" else float(time)
    if us is not None and not (isfinite(us) and us >= 0.0):
        raise ValueError(f"{us} us is not an estimate")
    return NcclAlgorithm(algorithm), NcclProtocol(protocol), us
