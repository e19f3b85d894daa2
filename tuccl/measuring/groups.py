"""The running group of workers: of one process profile and one communicator shape.

A process reads its variables once, so each profile has its own workers. The previous group has left
the devices when the next one starts (`tuccl.trials.running_profiles` says why).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from lookup_tables.table import Operation, Shape
from tuccl.errors import MeasurementError
from tuccl.measuring.engine import Call
from tuccl.measuring.errors import EngineError, GroupLostError
from tuccl.measuring.leader import GOODBYE_S, GroupVersions, Leader, Seat
from tuccl.measuring.places import Places
from tuccl.measuring.seating import seats_of
from tuccl.trials.config import ProcessProfile
from tuccl.trials.running_profiles import STOCK_PROFILE

_MOST_STARTS = 3
_PAUSE_S = 1.0
"""Time between starts that fail. After a fault of one of its clients CUDA's MPS refuses all others
until the faulty ones have ended."""
_EXPECTED_START_S = 3.0
_SIMPLEST = Call(Operation.ALL_REDUCE, 1024, use_graph=False, calls=1)


class Groups:
    """The running group, by process profile and communicator shape; to be closed."""

    def __init__(
        self,
        engine: str,
        places: Places,
        fake_nodes: int,
        variables: Mapping[str, str],
        start_timeout_s: float,
    ) -> None:
        """Start without a group.

        Args:
            engine: Name of the workers' engine.
            places: Places of the workers.
            fake_nodes: Number of nodes that a host appears as; 1: not faked.
            variables: Environment of every worker, in addition to its place's.
            start_timeout_s: Time for a group to be ready.
        """
        self.versions = GroupVersions("", None)
        self._engine = engine
        self._places = places
        self._fake_nodes = fake_nodes
        self._variables = dict(variables)
        self._start_timeout_s = start_timeout_s
        self._running: dict[tuple[ProcessProfile, Shape], Leader] = {}
        self._starts_s: list[float] = []

    @property
    def start_s(self) -> float:
        """Mean duration of the starts so far."""
        return sum(self._starts_s) / len(self._starts_s) if self._starts_s else _EXPECTED_START_S

    def under(self, profile: ProcessProfile, shape: Shape) -> Leader:
        """Return the group of this profile and shape, started if it is not running.

        Raises:
            EngineError: All ranks refuse this profile.
            GroupLostError: The group could not be started.
            MeasurementError: All ranks refuse even the stock profile, which has never worked; or a
                place is lost.
        """
        for key in [key for key in self._running if key != (profile, shape)]:
            self._running.pop(key).end()
        if (profile, shape) not in self._running:
            self._running[profile, shape] = self._start(profile, shape)
        return self._running[profile, shape]

    def profile_up(self, shape: Shape) -> ProcessProfile:
        """Return the profile of the running group of this shape, else the stock profile."""
        return next((profile for profile, own in self._running if own == shape), STOCK_PROFILE)

    def recover(self, profile: ProcessProfile, shape: Shape, reason: str) -> None:
        """Check a group with the simplest call; restart it while the check fails.

        Raises:
            MeasurementError: The check fails several times in a row.
        """
        for tried in range(_MOST_STARTS):
            if tried:
                time.sleep(_PAUSE_S)
            try:
                leader = self.under(profile, shape)
                wrong = leader.check(_SIMPLEST, self._start_timeout_s)
            except GroupLostError as error:
                reason = str(error)
            except EngineError as error:
                raise MeasurementError(self._unusable(error)) from error
            else:
                if not wrong:
                    return
                reason = f"its own choice gives wrong data: {wrong}"
            self.drop(profile, shape)
        raise MeasurementError(
            f"the workers of {self._engine} could not be brought up {_MOST_STARTS} times in a row "
            f"({reason}): see to that, then start the same command again, which continues"
        )

    def drop(self, profile: ProcessProfile, shape: Shape) -> None:
        """End a group by force, if it is running."""
        leader = self._running.pop((profile, shape), None)
        if leader is not None:
            leader.end(0.0)

    def close(self, patience_s: float = GOODBYE_S) -> None:
        """End all groups, by force after `patience_s`, and leave their places."""
        try:
            while self._running:
                self._running.popitem()[1].end(patience_s)
        finally:
            self._places.close()

    def _start(self, profile: ProcessProfile, shape: Shape) -> Leader:
        began = time.monotonic()
        leader = Leader(self._places, self._engine)
        seats = [
            Seat(seat.place, {**self._variables, **seat.environment, **profile.environment})
            for seat in seats_of(shape, self._places.places, self._fake_nodes)
        ]
        try:
            versions = leader.open(seats, self._start_timeout_s)
        except EngineError as error:
            if profile != STOCK_PROFILE:
                raise
            if not self._starts_s:
                raise MeasurementError(self._unusable(error)) from error
            # It has worked before: no configuration is to blame, and it may work again.
            raise GroupLostError(self._unusable(error), from_outside=True) from error
        if not self.versions.text:
            self.versions = versions
        self._starts_s.append(time.monotonic() - began)
        return leader

    def _unusable(self, error: EngineError) -> str:
        return f"{self._engine} cannot be used here: {error}"
