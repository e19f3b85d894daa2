"""The running group of workers, of one process profile, with the communicators of all its ranks.

The communicators of a smaller shape are split from that of all ranks, all siblings at once, as a
job splits them. A call on one of them runs on all siblings at the same time, so that they share
what a job's communicators share. A shape whose siblings would leave ranks over has a group of its
own.

A process reads its variables once, so each profile has its own workers. The previous group has left
the devices when the next one takes them (`tuccl.search.trials.backend` says why).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.crew.messages import Request
from tuccl.crew.places import Places
from tuccl.errors import EngineError, GroupLostError, MeasurementError
from tuccl.measuring.workers.engine import Call, OrderCall
from tuccl.measuring.workers.leader import GOODBYE_S, GroupVersions, Leader, Seat
from tuccl.measuring.workers.requests import CheckOrder, Tell, Time
from tuccl.measuring.workers.seating import seats_of, whole_shape
from tuccl.search.trials.backend import STOCK_PROFILE
from tuccl.search.trials.config import ProcessProfile
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.search.trials.shapes import memberships

_MOST_STARTS = 4
_PAUSES_S = (1.0, 2.0, 4.0)
"""Times between starts that fail. After a fault of one of its clients CUDA's MPS refuses all others
until the faulty ones have ended, which takes up to five seconds."""
_EXPECTED_START_S = 3.0
_SIMPLEST = Call(Collective.ALL_REDUCE, 1024, use_graph=False, calls=1)


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator of a group with its siblings, which run every call at the same time."""

    leader: Leader
    number: int
    """As `Call.communicator`."""
    ranks: tuple[int, ...] = ()
    """Ranks of the siblings whose times count; empty: all."""

    def time(self, call: Call, launches: int, timeout_s: float) -> list[float]:
        """Return the time per call in us of the slowest rank that counts, for each launch.

        Raises:
            EngineError: All ranks refuse this call; the group goes on.
            GroupLostError: A rank died, hung or failed alone; the group is gone.
        """
        answers = self.leader.ask_all(Time(self._own(call), launches), timeout_s)
        times = [timed.times_us for timed in answers]
        if any(len(each) != launches for each in times):
            raise self.leader.lost("a rank did not answer with its times")
        counted = [times[rank] for rank in self.ranks] or times
        return [max(of_ranks) for of_ranks in zip(*counted, strict=True)]

    def check(self, call: Call, timeout_s: float) -> str:
        """Return a finding on the data of a call on any rank; empty when all data is right.

        Raises:
            EngineError: As `time`.
            GroupLostError: As `time`.
        """
        found = self._texts(Tell("check", self._own(call)), timeout_s)
        return next((f"rank {rank}: {text}" for rank, text in enumerate(found) if text), "")

    def check_order(self, own: OrderCall, local_ranks: int, timeout_s: float) -> str:
        """Return a finding on the order in which a call adds; empty if it is that of ranks.

        Raises:
            EngineError: As `time`.
            GroupLostError: As `time`.
        """
        request = CheckOrder(self._own(own.call), local_ranks, own.shift)
        found = self._texts(request, timeout_s)
        return next((f"rank {rank}: {text}" for rank, text in enumerate(found) if text), "")

    def ran_by(self, call: Call, timeout_s: float) -> str:
        """Return the runner of a timed or checked call; the same on all ranks.

        Raises:
            GroupLostError: As `time`; or ranks differ, so that a job would hang.
        """
        named = dict.fromkeys(self._texts(Tell("ran_by", self._own(call)), timeout_s))
        if len(named) > 1:
            raise self.leader.lost(f"ranks run one call by {' and '.join(named)}")
        return next(iter(named))

    def cost_table(self, call: Call, timeout_s: float) -> CostTable | None:
        """Return what the library allows on all ranks that count; None if some rank has no table.

        Raises:
            EngineError: As `time`.
            GroupLostError: As `time`.
        """
        found = self._texts(Tell("cost_table", self._own(call)), timeout_s)
        counted = [found[rank] for rank in self.ranks] or found
        return (
            CostTable.common([CostTable.parse(text) for text in counted]) if all(counted) else None
        )

    def _texts(self, request: Request, timeout_s: float) -> list[str]:
        return [done.text for done in self.leader.ask_all(request, timeout_s)]

    def _own(self, call: Call) -> Call:
        return replace(call, communicator=self.number)


@dataclass
class Group:
    """A group of workers that has started, and the communicators that were split from its own."""

    leader: Leader
    shape: Shape
    """Shape of the communicator of all its ranks."""
    split_timeout_s: float
    """Time for all ranks to join a further communicator."""
    _split: list[tuple[Shape, int]] = field(default_factory=list)
    """Shape and stride of the further communicators, in the order of their numbers."""

    def communicator(self, shape: Shape, placement: Placement = ANYWHERE) -> Communicator:
        """Return the communicator of a shape, split from that of all ranks if it is new.

        Raises:
            EngineError: No rank can join it.
            GroupLostError: A rank died, hung or failed alone; the group is gone.
            MeasurementError: The group cannot be divided so.
        """
        division = shape, placement.stride
        places = memberships(shape, self.shape, placement.stride)
        if places is None:
            raise MeasurementError(
                f"communicators of {shape.ranks} ranks on {shape.nodes} nodes leave some of "
                f"{self.shape.ranks} ranks on {self.shape.nodes} nodes over"
            )
        known = [(self.shape, 1), *self._split]
        if division not in known:
            self.leader.split(places, self.split_timeout_s)
            self._split.append(division)
            known.append(division)
        counted = [rank for rank, own in enumerate(places) if own.sibling in placement.siblings]
        return Communicator(self.leader, known.index(division), tuple(counted))


@dataclass
class Groups:
    """The running group, by process profile and communicator shape; to be closed."""

    engine: str
    """Name of the workers' engine."""
    places: Places
    """Places of the workers."""
    faked_sizes: Sequence[int]
    """Ranks of each node that a host appears as; empty: none are faked."""
    variables: Mapping[str, str]
    """Environment of every worker, in addition to its place's."""
    start_timeout_s: float
    """Time for a group to be ready."""
    split: Sequence[Shape] = ()
    """Shapes of communicators that are split when a group starts, so that all starts are alike;
    others are split when they are needed first."""
    hosts_of_nodes: Sequence[int] = ()
    """As in `seats_of`."""
    versions: GroupVersions = GroupVersions("", None)  # noqa: RUF009 - frozen
    _shape: Shape | None = None
    """Shape of the first group, from whose communicator others are split."""
    _running: dict[tuple[ProcessProfile, Shape], Group] = field(default_factory=dict)
    """By process profile and shape of all ranks."""
    _starts_s: list[float] = field(default_factory=list)
    _must_restart: bool = False

    @property
    def whole(self) -> Shape:
        """Shape of all ranks: that of the first group."""
        return self._shape or whole_shape(self.places.places, self.faked_sizes)

    @property
    def start_s(self) -> float:
        """Mean duration of the starts so far, with the end of the group before."""
        return sum(self._starts_s) / len(self._starts_s) if self._starts_s else _EXPECTED_START_S

    def under(
        self, profile: ProcessProfile, shape: Shape, placement: Placement = ANYWHERE
    ) -> Communicator:
        """Return the communicator of this profile and shape; its group is started if need be.

        Raises:
            EngineError: All ranks refuse this profile.
            GroupLostError: The group could not be started.
            MeasurementError: All ranks refuse even the stock profile, which has never worked; or a
                place is lost.
        """
        whole = self._whole_of(shape)
        if self._must_restart or (profile, whole) not in self._running:
            self._running[profile, whole] = self._start(profile, whole)
        return self._running[profile, whole].communicator(shape, placement)

    def profile_up(self, shape: Shape) -> ProcessProfile:
        """Return the profile of the running group of this shape, else the stock profile."""
        whole = self._whole_of(shape)
        return next((profile for profile, own in self._running if own == whole), STOCK_PROFILE)

    def recover(self, profile: ProcessProfile, shape: Shape, reason: str) -> None:
        """Check a group with the simplest call; restart it while the check fails.

        Raises:
            MeasurementError: The check fails several times in a row.
        """
        for tried in range(_MOST_STARTS):
            if tried:
                time.sleep(_PAUSES_S[tried - 1])
            try:
                communicator = self.under(profile, shape)
                wrong = communicator.check(_SIMPLEST, self.start_timeout_s)
            except GroupLostError as error:
                reason = str(error)
            except EngineError as error:
                if not self._starts_s:
                    raise MeasurementError(self._unusable(error)) from error
                reason = self._unusable(error)
            else:
                if not wrong:
                    return
                reason = f"its own choice gives wrong data: {wrong}"
            self.drop(profile, shape)
        raise MeasurementError(
            f"the workers of {self.engine} could not be brought up {_MOST_STARTS} times in a row "
            f"({reason}): see to that, then start the same command again, which continues"
        )

    def drop(self, profile: ProcessProfile, shape: Shape) -> None:
        """End a group by force, if it is running."""
        group = self._running.pop((profile, self._whole_of(shape)), None)
        if group is not None:
            group.leader.end(0.0)

    def restart(self) -> None:
        """Start the next group anew, even if one with its profile and shape is running."""
        self._must_restart = True

    def end_running(self, patience_s: float = GOODBYE_S) -> None:
        """End all groups, by force after `patience_s`; the next are started when needed."""
        while self._running:
            self._running.popitem()[1].leader.end(patience_s)

    def close(self, patience_s: float = GOODBYE_S) -> None:
        """End all groups, by force after `patience_s`, and leave their places."""
        try:
            self.end_running(patience_s)
        finally:
            self.places.close()

    def _seats(self, shape: Shape) -> tuple[Seat, ...]:
        return seats_of(shape, self.places.places, self.faked_sizes, self.hosts_of_nodes)

    def _whole_of(self, shape: Shape) -> Shape:
        """Return the shape of the group that has the communicators of a shape."""
        if self._shape is None:
            self._shape = shape
        return shape if memberships(shape, self._shape) is None else self._shape

    def _start(self, profile: ProcessProfile, shape: Shape) -> Group:
        """Start a group; its processes come up while the one before leaves the devices."""
        began = time.monotonic()
        leader = Leader(self.places, self.engine)
        seats = [
            Seat(seat.place, {**self.variables, **seat.environment, **profile.environment})
            for seat in self._seats(shape)
        ]
        group = Group(leader, shape, self.start_timeout_s)
        leader.launch(seats)
        self.end_running()
        self._must_restart = False
        try:
            versions = leader.open(seats, self.start_timeout_s)
            for own in self.split if shape == self._shape else ():
                group.communicator(own)
        except EngineError as error:
            leader.end(0.0)
            if profile != STOCK_PROFILE:
                raise
            if not self._starts_s:
                raise MeasurementError(self._unusable(error)) from error
            # It has worked before: no configuration is to blame, and it may work again.
            raise GroupLostError(self._unusable(error), from_outside=True) from error
        if not self.versions.text:
            self.versions = versions
        self._starts_s.append(time.monotonic() - began)
        return group

    def _unusable(self, error: EngineError) -> str:
        return f"{self.engine} cannot be used here: {error}"
