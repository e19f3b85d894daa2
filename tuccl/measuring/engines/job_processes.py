"""The processes of a contender's job, which start in steps.

They are launched, open their devices, join a communicator, and are ready when all have joined.
Between the steps nobody waits for them, so that several jobs start at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from lookup_tables.table import Shape
from tuccl.crew.places import Places
from tuccl.errors import EngineError, GroupLostError, MeasurementError
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.measuring.workers.leader import Leader, Seat
from tuccl.measuring.workers.seating import seats_of
from tuccl.search.trials.config import Config, Task

START_TIMEOUT_S = 60.0
_WHY = "; NCCL_DEBUG=WARN NCCL_DEBUG_FILE=nccl.%p writes why to files"


@dataclass(frozen=True)
class Contender:
    """Variables of a contender's jobs, beyond those of all jobs."""

    name: str
    variables: Mapping[str, str]
    calls: Mapping[Task, Config] = field(default_factory=dict, kw_only=True)
    """What runs each key, on an engine that loads no table; the engine's own choice if left out."""


STOCK = Contender("stock NCCL", {PLUGIN_VARIABLE: "none"})


@dataclass
class JobProcesses:
    """One process for each rank of a contender."""

    contender: Contender
    places: Places
    shape: Shape
    """Shape of the communicator of all ranks."""
    faked_sizes: Sequence[int] = ()
    """Ranks of each node that this host appears as; empty: none are faked."""
    hosts_of_nodes: Sequence[int] = ()
    """As in `seats_of`."""
    engine: str = "job"
    """Name of the workers' engine."""
    leader: Leader = field(init=False)

    def __post_init__(self) -> None:
        """No process runs yet."""
        self.leader = Leader(self.places, self.engine)

    def launch(self) -> None:
        """Begin to start the processes; they use no device yet.

        Raises:
            MeasurementError: They cannot be started.
        """
        with self.start_told():
            self.leader.launch(self._seats)

    def prepare(self) -> None:
        """Have the processes open their devices.

        Raises:
            MeasurementError: They did not start.
        """
        with self.start_told():
            self.leader.prepare(START_TIMEOUT_S)

    def join(self) -> None:
        """Have the processes join the communicator of all ranks.

        Raises:
            MeasurementError: They did not start.
        """
        with self.start_told():
            self.leader.join(START_TIMEOUT_S)

    def ready(self) -> str:
        """Take the steps that are left, wait until all have joined, and return the versions.

        Raises:
            MeasurementError: They cannot be started, or NCCL refuses the table.
        """
        with self.start_told():
            return self.leader.open(self._seats, START_TIMEOUT_S).text

    @contextmanager
    def start_told(self) -> Iterator[None]:
        """End the processes if the block fails, and name the contender.

        Raises:
            MeasurementError: It failed.
        """
        try:
            yield
        except (EngineError, GroupLostError) as error:
            self.leader.end(0.0)
            hint = "" if self.contender == STOCK else _WHY
            raise MeasurementError(
                f"{self.contender.name}: the job does not start: {error}{hint}"
            ) from error

    @property
    def _seats(self) -> list[Seat]:
        return [
            Seat(seat.place, {**seat.environment, **self.contender.variables})
            for seat in seats_of(
                self.shape, self.places.places, self.faked_sizes, self.hosts_of_nodes
            )
        ]
