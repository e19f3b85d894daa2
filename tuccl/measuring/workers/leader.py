"""The leader of a group, which asks all ranks at once.

A rank that dies, misses a deadline, or fails alone leaves the group unusable, because the other
ranks wait for it inside the collective. Then all workers of the group are killed, and
`GroupLostError` names the rank.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lookup_tables.provenance import NcclVersion
from tuccl.crew.asking import Asked, Lost, Member, answers_to, send_all
from tuccl.crew.messages import Bye, Failed, Request
from tuccl.crew.places import Places
from tuccl.errors import EngineBrokenError, EngineError, GroupLostError, MessageError
from tuccl.measuring.workers.requests import MakeGroupId, Open, Prepare, Split
from tuccl.search.trials.shapes import Membership

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
    """NCCL version of the first rank, if there is an NCCL."""


class Leader:
    """Leads one group of workers."""

    def __init__(self, places: Places, engine: str) -> None:
        self._places = places
        self._engine = engine
        self._workers: list[int] = []
        """Worker numbers by rank."""
        self._members: dict[int, Member] = {}
        """Workers that have reported, by rank."""
        self._local_ranks: Sequence[int] = ()
        self._preparing: Asked | None = None
        self._joining: Asked | None = None

    def open(self, seats: Sequence[Seat], timeout_s: float) -> GroupVersions:
        """Start the group and return its versions.

        `launch`, `prepare` and `join` are its first steps, for who does something else meanwhile.

        Raises:
            EngineError: No rank can open its device or join the group.
            GroupLostError: A rank fails alone, or died.
            MeasurementError: A place is lost.
        """
        if not self._workers:
            self.launch(seats)
        joining = self._joining or self.join(timeout_s)
        with self._ending_on_errors():
            opened = self._answers(joining)
        text = "; ".join(dict.fromkeys(reply.text for reply in opened))
        nccl = opened[0].nccl
        return GroupVersions(text, None if nccl is None else NcclVersion.of_code(nccl))

    def launch(self, seats: Sequence[Seat]) -> None:
        """Begin to start a worker for each seat; none uses its device before `prepare`.

        Raises:
            MeasurementError: A place is lost.
        """
        with self._ending_on_errors():
            for seat in seats:
                worker = self._places.start(seat.place, seat.environment)
                self._workers.append(worker)
        self._local_ranks = [self._places.places[seat.place].local_rank for seat in seats]

    def prepare(self, timeout_s: float) -> Asked:
        """Have the workers open their devices; `open` must end within this time.

        Raises:
            GroupLostError: A rank died, or did not report in time.
            MeasurementError: A place is lost.
        """
        deadline = time.monotonic() + timeout_s
        with self._ending_on_errors():
            self._gather(deadline)
            left_s = max(deadline - time.monotonic(), 0.0)
            for_id = {0: MakeGroupId(self._engine)}
            self._preparing = send_all(self._members, for_id, left_s)
            # Nobody waits for the answers: a rank that fails here fails again when it joins.
            send_all(
                self._members,
                {r: Prepare(self._engine, local) for r, local in enumerate(self._local_ranks)},
                left_s,
            )
        return self._preparing

    def join(self, timeout_s: float) -> Asked:
        """Have the workers join the group; `open` waits until they have.

        Raises:
            EngineError: The first rank cannot make the group's id.
            GroupLostError: A rank died, or did not report in time.
            MeasurementError: A place is lost.
        """
        preparing = self._preparing or self.prepare(timeout_s)
        with self._ending_on_errors():
            group_id = self._answers(preparing)[0].text
            ranks = len(self._workers)
            requests = {
                rank: Open(self._engine, rank, ranks, local, group_id)
                for rank, local in enumerate(self._local_ranks)
            }
            left_s = max(preparing.deadline - time.monotonic(), 0.0)
            self._joining = send_all(self._members, requests, left_s)
        return self._joining

    @contextmanager
    def _ending_on_errors(self) -> Iterator[None]:
        """End the workers by force if the block fails."""
        try:
            yield
        except BaseException:
            self.end(0.0)
            raise

    def split(self, places: Sequence[Membership], timeout_s: float) -> None:
        """Split further communicators from the group's, one for each sibling; all are kept.

        Args:
            places: Each rank's place among the siblings.
            timeout_s: Time for all ranks to have joined theirs.

        Raises:
            EngineError: No rank can join; the group goes on without them.
            GroupLostError: As `ask_all`.
        """
        sizes = Counter(place.sibling for place in places)
        self._ask_each(
            {
                rank: Split(place.sibling, sizes[place.sibling], place.rank)
                for rank, place in enumerate(places)
            },
            timeout_s,
        )

    def end(self, patience_s: float = GOODBYE_S) -> None:
        """End the workers, by force after `patience_s`.

        Raises:
            MeasurementError: A place is lost.
        """
        if patience_s:
            for member in self._members.values():
                member.send(0, Bye())
        try:
            self._places.end(self._workers, patience_s)
        finally:
            self._workers.clear()
            self._preparing = self._joining = None
            for member in self._members.values():
                member.lose("it was dismissed")
            self._members.clear()

    def _gather(self, deadline: float) -> None:
        """Wait until every worker has reported."""
        while len(self._members) < len(self._workers):
            missing = [r for r in range(len(self._workers)) if r not in self._members]
            for rank in missing:
                if how := self._places.ended(self._workers[rank], 0.0):
                    raise self._died(rank, how)
            if time.monotonic() > deadline:
                raise GroupLostError(f"rank {missing[0]} did not report in time")
            try:
                found = self._places.listener.accept(
                    0.1, lambda greeting: greeting.number in self._workers
                )
            except MessageError as error:
                raise GroupLostError(str(error)) from error
            if found is None:
                continue
            connection, greeting = found
            rank = self._workers.index(greeting.number)
            self._members[rank] = Member(f"rank {rank}", connection)

    def ask_all(self, request: Request, timeout_s: float) -> list[Any]:
        """Return the answers of all ranks to a request.

        Raises:
            EngineError: All ranks refuse it; the group goes on.
            GroupLostError: A rank died, hung or failed alone; the group is gone.
        """
        return self._ask_each(dict.fromkeys(range(len(self._workers)), request), timeout_s)

    def lost(self, reason: str) -> GroupLostError:
        """End the group; return the error that says why."""
        self.end(0.0)
        return GroupLostError(reason)

    def _ask_each(self, asked: Mapping[int, Request], timeout_s: float) -> list[Any]:
        if not self._workers:
            raise GroupLostError("its workers were ended")
        try:
            return self._answers(send_all(self._members, asked, timeout_s))
        except EngineBrokenError as error:
            raise self.lost(str(error)) from error
        except EngineError:
            raise
        except BaseException:
            # Also when interrupted: workers would go on with what nobody waits for.
            self.end(0.0)
            raise

    def _answers(self, asked: Asked) -> list[Any]:
        """Return the answers to requests in the order of the ranks.

        Raises:
            EngineError: All ranks failed.
            GroupLostError: Some ranks failed, or did not answer.
        """
        requests = asked.requests
        answers = answers_to(asked, self._members, together=True)
        lost = {rank: each for rank, each in answers.items() if isinstance(each, Lost)}
        failed = {rank: each for rank, each in answers.items() if isinstance(each, Failed)}
        for rank, each in lost.items():
            if not each.is_late:
                raise self._died(
                    rank, self._places.ended(self._workers[rank], _EXIT_S) or each.reason
                )
        if not lost and len(failed) == len(requests):
            first = next(iter(failed.values()))
            broken = any(each.broken for each in failed.values())
            raise EngineBrokenError(first.reason) if broken else EngineError(first.reason)
        if failed:
            rank, first = next(iter(failed.items()))
            raise GroupLostError(f"rank {rank}: {first.reason}")
        if lost:
            late = f"rank {', '.join(map(str, lost))}"
            raise GroupLostError(f"hung: no answer from {late} within {asked.timeout_s:.1f} s")
        return [answers[rank] for rank in requests]

    def _died(self, rank: int, how: str) -> GroupLostError:
        """Return the error for a dead rank, unless another rank's death has caused it."""
        for number, worker in enumerate(self._workers):
            end = self._places.ended(worker, 0.0)
            if any(signal in end for signal in _KILLED_FROM_OUTSIDE):
                rank, how = number, end
                break
        outside = any(signal in how for signal in _KILLED_FROM_OUTSIDE)
        return GroupLostError(f"rank {rank} died: {how}", from_outside=outside)
