"""The leader: asks all ranks of a group at once, and counts the slowest.

Every request has a deadline. A rank that dies, misses it, or cannot do what the others can leaves
the group unusable, because the others wait for it inside the collective: then all its workers are
killed and `GroupLostError` says whose fault it was.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lookup_tables.provenance import NcclVersion
from tuccl.measuring.connection import Connection
from tuccl.measuring.engine import Call
from tuccl.measuring.errors import (
    ConnectionLostError,
    EngineBrokenError,
    EngineError,
    GroupLostError,
    MessageError,
)
from tuccl.measuring.messages import (
    Bye,
    Check,
    Done,
    Failed,
    MakeGroupId,
    Message,
    Open,
    Opened,
    RanBy,
    Time,
    Timed,
    from_bytes,
    to_bytes,
)
from tuccl.measuring.places import Places

_AFTER_A_FAILURE_S = 2.0
"""How long the others may take to fail as well when one rank has failed."""
GOODBYE_S = 3.0
"""How long workers may take to leave."""
_EXIT_S = 1.0
"""The connection of a worker that dies closes a moment before the process is gone."""
_KILLED_FROM_OUTSIDE = ("(SIGKILL)", "(SIGTERM)")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank of a group runs."""

    place: int
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beyond that of the process which hosts the place."""


@dataclass(frozen=True, slots=True)
class GroupVersions:
    """The versions behind a group's figures."""

    text: str
    """Library, driver and device of its ranks, for people; empty before one was started."""
    nccl: NcclVersion | None
    """Of its first rank; None: it runs none."""


class Leader:
    """Leads one group of workers."""

    def __init__(self, places: Places, engine: str) -> None:
        self._places = places
        self._engine = engine
        self._workers: list[int] = []
        """Numbers by rank."""
        self._connections: dict[int, Connection] = {}
        """By rank."""

    def open(self, seats: Sequence[Seat], timeout_s: float) -> GroupVersions:
        """Start the group, once; its versions.

        Raises:
            EngineError: No rank can open its device or join the group.
            GroupLostError: A rank cannot, or died.
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
        text = "; ".join(dict.fromkeys(one.text for one in opened))
        nccl = opened[0].nccl
        return GroupVersions(text, None if nccl is None else NcclVersion.of_code(nccl))

    def time(self, call: Call, launches: int, timeout_s: float) -> list[float]:
        """Time of a call in us, of the slowest rank, for each launch.

        Raises:
            EngineError: All ranks refuse this call; the group goes on.
            GroupLostError: A rank died, hung or failed alone; the group is gone.
        """
        replies = self._ask_all(Time(call, launches), timeout_s)
        times = [reply.times_us for reply in replies if isinstance(reply, Timed)]
        if len(times) != len(replies) or any(len(each) != launches for each in times):
            self.end(0.0)
            raise GroupLostError("a rank did not answer with its times")
        return [max(of_ranks) for of_ranks in zip(*times, strict=True)]

    def check(self, call: Call, timeout_s: float) -> str:
        """What was wrong with the data of a call on any rank; empty when nothing was.

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
        """Who runs a call that was timed or checked; the same on all ranks.

        Raises:
            GroupLostError: As `time`; or ranks differ, and would hang in a job.
        """
        named = dict.fromkeys(map(self._text, self._ask_all(RanBy(call), timeout_s)))
        if len(named) > 1:
            self.end(0.0)
            raise GroupLostError(f"ranks run one call by {' and '.join(named)}")
        return next(iter(named))

    def dismiss(self) -> None:
        """Ask the workers to leave; `end` sees that they do."""
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
        if not self._workers:
            raise GroupLostError("its workers were ended")
        asked = dict.fromkeys(range(len(self._workers)), request)
        try:
            return self._ask(asked, time.monotonic() + timeout_s)
        except EngineBrokenError as error:
            self.end(0.0)
            raise GroupLostError(str(error)) from error
        except EngineError:
            raise
        except BaseException:
            # Interrupted, too: an answer that is still to come would be taken for another one's.
            self.end(0.0)
            raise

    def _ask(self, requests: Mapping[int, Message], deadline: float) -> list[Message]:
        """Replies in the order of the ranks."""
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
        """The replies, unless ranks failed: all alike is a refusal, anything else is the end."""
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
        """Why not all have answered."""
        for rank, reply in replies.items():
            if isinstance(reply, Failed):
                return GroupLostError(f"rank {rank}: {reply.reason}")
        who = f"rank {', '.join(map(str, late))}"
        return GroupLostError(f"hung: no answer from {who} within {allowed_s:.1f} s")

    def _died(self, rank: int, error: str) -> GroupLostError:
        """Why the connection of a rank closed: perhaps because another one had been killed."""
        how = self._places.ended(self._workers[rank], _EXIT_S) or error
        for other, worker in enumerate(self._workers):
            theirs = self._places.ended(worker, 0.0)
            if any(signal in theirs for signal in _KILLED_FROM_OUTSIDE):
                return self._lost(other, theirs)
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
