"""The leader: sends requests to all ranks of a group at once, and takes the slowest rank's times.

Every request has a deadline. A rank that dies, misses it, or fails alone leaves the group unusable,
because the other ranks wait for it inside the collective: then all workers of the group are killed
and `GroupLostError` names the rank.
"""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lookup_tables.provenance import NcclVersion
from tuccl.errors import (
    ConnectionLostError,
    EngineBrokenError,
    EngineError,
    GroupLostError,
    MessageError,
)
from tuccl.measuring.workers.connection import Connection
from tuccl.measuring.workers.engine import Call
from tuccl.measuring.workers.messages import (
    Bye,
    Check,
    Done,
    Estimate,
    Failed,
    MakeGroupId,
    Message,
    Open,
    Opened,
    RanBy,
    Split,
    Time,
    Timed,
    from_bytes,
    to_bytes,
)
from tuccl.measuring.workers.places import Places
from tuccl.search.trials.shapes import Membership

_AFTER_A_FAILURE_S = 2.0
"""Time for all ranks to fail after the first one has failed."""
GOODBYE_S = 3.0
"""Time for workers to leave."""
_EXIT_S = 1.0
"""Time between the end of a dead worker's connection and that of its process."""
_KILLED_FROM_OUTSIDE = ("(SIGKILL)", "(SIGTERM)")


@dataclass(frozen=True, slots=True)
class Seat:
    """The place and environment of a rank."""

    place: int
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to those of the process that hosts the place."""


@dataclass(frozen=True, slots=True)
class GroupVersions:
    """The versions behind a group's figures."""

    text: str
    """Library, driver and device of its ranks as text; empty before the first start."""
    nccl: NcclVersion | None
    """NCCL version of the first rank; None without NCCL."""


class Leader:
    """Leads one group of workers."""

    def __init__(self, places: Places, engine: str) -> None:
        self._places = places
        self._engine = engine
        self._workers: list[int] = []
        """Worker numbers by rank."""
        self._connections: dict[int, Connection] = {}
        """Connections by rank."""

    def open(self, seats: Sequence[Seat], timeout_s: float) -> GroupVersions:
        """Start the group, once, and return its versions.

        Raises:
            EngineError: No rank can open its device or join the group.
            GroupLostError: A rank fails alone, or died.
            MeasurementError: A place is lost.
        """
        deadline = time.monotonic() + timeout_s
        try:
            for seat in seats:
                worker = self._places.start(seat.place, self._engine, seat.environment)
                self._workers.append(worker)
            self._gather(deadline)
            group_id = self._text(self._ask({0: MakeGroupId()}, deadline)[0])
            ranks = len(seats)
            local = [self._places.places[seat.place].local_rank for seat in seats]
            asked = {r: Open(r, ranks, local[r], group_id) for r in range(ranks)}
            opened = [self._opened(reply) for reply in self._ask(asked, deadline)]
        except BaseException:
            self.end(0.0)
            raise
        text = "; ".join(dict.fromkeys(reply.text for reply in opened))
        nccl = opened[0].nccl
        return GroupVersions(text, None if nccl is None else NcclVersion.of_code(nccl))

    def split(self, places: Sequence[Membership], timeout_s: float) -> None:
        """Split further communicators from the group's, one for each sibling; all are kept.

        Args:
            places: Each rank's place among the siblings.
            timeout_s: Time for all ranks to have joined theirs.

        Raises:
            EngineError: No rank can join; the group goes on without them.
            GroupLostError: As `time`.
        """
        sizes = Counter(place.sibling for place in places)
        self._ask_each(
            {
                rank: Split(place.sibling, sizes[place.sibling], place.rank)
                for rank, place in enumerate(places)
            },
            timeout_s,
        )

    def time(
        self, call: Call, launches: int, timeout_s: float, ranks: Sequence[int] = ()
    ) -> list[float]:
        """Return the slowest rank's time per call in us, for each launch.

        Args:
            call: The call, which all ranks make.
            launches: Number of launches.
            timeout_s: Time for all ranks to answer.
            ranks: Ranks whose times count; empty: all.

        Raises:
            EngineError: All ranks refuse this call; the group goes on.
            GroupLostError: A rank died, hung or failed alone; the group is gone.
        """
        replies = self._ask_all(Time(call, launches), timeout_s)
        times = [reply.times_us for reply in replies if isinstance(reply, Timed)]
        if len(times) != len(replies) or any(len(each) != launches for each in times):
            self.end(0.0)
            raise GroupLostError("a rank did not answer with its times")
        counted = [times[rank] for rank in ranks] or times
        return [max(of_ranks) for of_ranks in zip(*counted, strict=True)]

    def check(self, call: Call, timeout_s: float) -> str:
        """Return a finding on the data of a call on any rank; empty when all data is right.

        Raises:
            EngineError: As `time`.
            GroupLostError: As `time`.
        """
        replies = self._ask_all(Check(call), timeout_s)
        wrong = [
            f"rank {rank}: {reply.text}"
            for rank, reply in enumerate(replies)
            if isinstance(reply, Done) and reply.text
        ]
        return wrong[0] if wrong else ""

    def ran_by(self, call: Call, timeout_s: float) -> str:
        """Return the runner of a timed or checked call; the same on all ranks.

        Raises:
            GroupLostError: As `time`; or ranks differ, so that a job would hang.
        """
        named = dict.fromkeys(map(self._text, self._ask_all(RanBy(call), timeout_s)))
        if len(named) > 1:
            self.end(0.0)
            raise GroupLostError(f"ranks run one call by {' and '.join(named)}")
        return next(iter(named))

    def ring_estimate_us(
        self, call: Call, timeout_s: float, ranks: Sequence[int] = ()
    ) -> float | None:
        """Return the library's own estimate for ring with Simple.

        Args:
            call: The call, which all ranks make.
            timeout_s: Time for all ranks to answer.
            ranks: Ranks whose communicators count; empty: all.

        Returns:
            None where some rank tells none, or they tell different ones.

        Raises:
            EngineError: As `time`.
            GroupLostError: As `time`.
        """
        told = list(map(self._text, self._ask_all(Estimate(call), timeout_s)))
        counted = {told[rank] for rank in ranks} or set(told)
        try:
            return float(counted.pop()) if len(counted) == 1 else None
        except ValueError:
            return None

    def dismiss(self) -> None:
        """Ask the workers to leave; `end` waits for them."""
        for connection in self._connections.values():
            with suppress(ConnectionLostError):
                connection.send(to_bytes(Bye()))

    def end(self, patience_s: float = GOODBYE_S) -> None:
        """End the workers, by force after `patience_s`.

        Raises:
            MeasurementError: A place is lost.
        """
        if patience_s:
            self.dismiss()
        try:
            self._places.end(self._workers, patience_s)
        finally:
            self._workers.clear()
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    def _gather(self, deadline: float) -> None:
        """Wait until every worker has reported."""
        while len(self._connections) < len(self._workers):
            missing = [r for r in range(len(self._workers)) if r not in self._connections]
            for rank in missing:
                if how := self._places.ended(self._workers[rank], 0.0):
                    raise self._lost(rank, how)
            if time.monotonic() > deadline:
                raise GroupLostError(f"rank {missing[0]} did not report in time")
            try:
                found = self._places.listener.accept(0.1)
            except MessageError as error:
                raise GroupLostError(str(error)) from error
            if found is None:
                continue
            connection, greeting = found
            if greeting.number in self._workers:
                self._connections[self._workers.index(greeting.number)] = connection
            else:
                connection.close()

    def _ask_all(self, request: Message, timeout_s: float) -> list[Message]:
        return self._ask_each(dict.fromkeys(range(len(self._workers)), request), timeout_s)

    def _ask_each(self, asked: Mapping[int, Message], timeout_s: float) -> list[Message]:
        if not self._workers:
            raise GroupLostError("its workers were ended")
        try:
            return self._ask(asked, time.monotonic() + timeout_s)
        except EngineBrokenError as error:
            self.end(0.0)
            raise GroupLostError(str(error)) from error
        except EngineError:
            raise
        except BaseException:
            # Also when interrupted: a late reply would be taken for that to the next request.
            self.end(0.0)
            raise

    def _ask(self, requests: Mapping[int, Message], deadline: float) -> list[Message]:
        """Send requests and return the replies in the order of the ranks."""
        began = time.monotonic()
        for rank, request in requests.items():
            try:
                self._connections[rank].send(to_bytes(request))
            except ConnectionLostError as error:
                raise self._died(rank, str(error)) from error
        replies: dict[int, Message] = {}
        poll = select.poll()
        ranks = {self._connections[rank].fileno(): rank for rank in requests}
        for number in ranks:
            poll.register(number, select.POLLIN)
        while ranks:
            left = deadline - time.monotonic()
            ready = poll.poll(left * 1e3) if left > 0 else []
            if not ready:
                raise self._late(sorted(ranks.values()), replies, deadline - began)
            for number, _ in ready:
                if (reply := self._receive(ranks[number])) is None:
                    continue
                poll.unregister(number)
                replies[ranks.pop(number)] = reply
                if isinstance(reply, Failed):
                    deadline = min(deadline, time.monotonic() + _AFTER_A_FAILURE_S)
        return self._judged([replies[rank] for rank in sorted(replies)])

    def _receive(self, rank: int) -> Message | None:
        try:
            content = self._connections[rank].read_ready()
            return None if content is None else from_bytes(content)
        except ConnectionLostError as error:
            raise self._died(rank, str(error)) from error
        except MessageError as error:
            raise GroupLostError(f"rank {rank}: {error}") from error

    def _judged(self, replies: list[Message]) -> list[Message]:
        """Return the replies; raise EngineError if all ranks failed, GroupLostError if some did."""
        failed = {rank: reply for rank, reply in enumerate(replies) if isinstance(reply, Failed)}
        if not failed:
            return replies
        rank, first = next(iter(failed.items()))
        if len(failed) == len(replies):
            broken = any(reply.broken for reply in failed.values())
            raise EngineBrokenError(first.reason) if broken else EngineError(first.reason)
        raise GroupLostError(f"rank {rank}: {first.reason}")

    def _late(
        self, late: Sequence[int], replies: Mapping[int, Message], allowed_s: float
    ) -> GroupLostError:
        """Return the error for ranks that have not answered."""
        for rank, reply in replies.items():
            if isinstance(reply, Failed):
                return GroupLostError(f"rank {rank}: {reply.reason}")
        late_ranks = f"rank {', '.join(map(str, late))}"
        return GroupLostError(f"hung: no answer from {late_ranks} within {allowed_s:.1f} s")

    def _died(self, rank: int, error: str) -> GroupLostError:
        """Return the error for a closed connection, which another rank's death may have caused."""
        how = self._places.ended(self._workers[rank], _EXIT_S) or error
        for killed_rank, worker in enumerate(self._workers):
            end = self._places.ended(worker, 0.0)
            if any(signal in end for signal in _KILLED_FROM_OUTSIDE):
                return self._lost(killed_rank, end)
        return self._lost(rank, how)

    @staticmethod
    def _lost(rank: int, how: str) -> GroupLostError:
        outside = any(signal in how for signal in _KILLED_FROM_OUTSIDE)
        return GroupLostError(f"rank {rank} died: {how}", from_outside=outside)

    @staticmethod
    def _text(reply: Message) -> str:
        if not isinstance(reply, Done):
            raise GroupLostError(f"a rank answered with {type(reply).__name__}")
        return reply.text

    @staticmethod
    def _opened(reply: Message) -> Opened:
        if not isinstance(reply, Opened):
            raise GroupLostError(f"a rank answered with {type(reply).__name__}")
        return reply
