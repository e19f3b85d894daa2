"""`Observation`: one measured time with everything that the model needs to predict it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.models.figures import MachineFigures
from tuccl.models.model_constants import ModelConstants
from tuccl.models.nccl_choice import Choice, nccl_choice
from tuccl.models.nccl_model import Work, work_of, work_time_us
from tuccl.search.trials.config import STOCK, Config

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured time of NCCL."""

    source: str
    """Name of its source: a source weighs as the root of its number of observations."""
    machine: MachineFigures
    operation: Collective
    size_bytes: int
    config: Config
    time_us: float
    launches: int = 0
    """GPUs that one host thread launches in turn; 0 for CUDA graphs."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Different launches of one algorithm and protocol, as columns."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    launches: npt.NDArray[np.intp]
    """Indices of the launches."""
    work: Work


@dataclass(frozen=True, slots=True)
class ObservationTable:
    """Observations as columns, for predicting thousands of them at once."""

    times_us: Array
    weights: Array
    """Weight of each observation; those of a source sum to the root of their number."""
    launches: npt.NDArray[np.intp]
    """Index of each observation's launch; observations may share a launch."""
    batches: tuple[_Batch, ...]

    def predicted_us(self, constants: ModelConstants) -> Array:
        """Return the model's times in the order of the observations."""
        by_launch = np.empty(sum(len(batch.launches) for batch in self.batches))
        for batch in self.batches:
            by_launch[batch.launches] = work_time_us(
                batch.work, batch.algorithm, batch.protocol, constants
            )
        return by_launch[self.launches]


def tabulate(observations: Sequence[Observation]) -> ObservationTable:
    """Return observations as columns.

    Raises:
        ConfigurationFailedError: an algorithm is not in the model.
    """
    numbers: dict[tuple[Observation, Choice], int] = {}
    groups: dict[tuple[NcclAlgorithm, NcclProtocol], list[tuple[int, Work]]] = {}
    launches: list[int] = []
    for seen in observations:
        choice = nccl_choice(seen.operation, seen.size_bytes, seen.config, seen.machine)
        key = (replace(seen, source="", config=STOCK, time_us=0.0), choice)
        if key not in numbers:
            numbers[key] = len(numbers)
            work = work_of(seen.operation, seen.size_bytes, choice, seen.machine, seen.launches)
            pair = (choice.algorithm, choice.protocol)
            groups.setdefault(pair, []).append((numbers[key], work))
        launches.append(numbers[key])
    counts = Counter(seen.source for seen in observations)
    return ObservationTable(
        times_us=np.array([seen.time_us for seen in observations], dtype=np.float64),
        weights=np.array([counts[seen.source] ** -0.5 for seen in observations], dtype=np.float64),
        launches=np.array(launches, dtype=np.intp),
        batches=tuple(
            _Batch(algorithm, protocol, np.array([n for n, _ in rows]), _stacked(rows))
            for (algorithm, protocol), rows in sorted(groups.items())
        ),
    )


def _stacked(rows: Sequence[tuple[int, Work]]) -> Work:
    columns = {
        field.name: np.array([getattr(work, field.name) for _, work in rows], dtype=np.float64)
        for field in fields(Work)
    }
    return Work(**columns)
