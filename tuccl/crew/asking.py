"""The leader asks processes, all at once: `ask`.

Every request has a deadline. A process that dies or is late is lost, and not asked again.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tuccl.crew.connection import Connection
from tuccl.crew.messages import Failed, Request, from_bytes, to_bytes
from tuccl.errors import ConnectionLostError, MessageError

AFTER_A_FAILURE_S = 2.0
"""Time for all to fail after the first has failed, if they wait for each other."""
_NUMBERS = count(1)


@dataclass
class Member:
    """A process that can be asked."""

    name: str
    connection: Connection | None
    """None if it is lost from the beginning."""
    how_ended: Callable[[], str] = lambda: ""
    """Returns how the process ended, after its connection did; empty if nobody knows."""
    last_words: Callable[[], str] = lambda: ""
    """Returns the last line of its standard error, if that is known here."""
    lost: str = ""
    """The reason, once it is lost."""

    def lose(self, reason: str) -> None:
        """Give it up, and close its connection, so that it ends."""
        self.lost = self.lost or reason
        if self.connection is not None:
            self.connection.close()

    def send(self, number: int, request: Request) -> None:
        """Send a request, unless the process is lost."""
        if self.connection is not None and not self.lost:
            try:
                self.connection.send(to_bytes(number, request))
            except ConnectionLostError as error:
                self.lose(self.how_ended() or str(error))

    def receive(self, number: int, kind: type[Any]) -> Any | None:
        """Read what has arrived; return the answer to a request once it is complete."""
        connection = self.connection
        if connection is None:
            return None
        try:
            content = connection.read_ready()
            while content is not None:
                envelope = from_bytes(content)
                if envelope.number == number:
                    return envelope.content(Failed if envelope.kind == Failed.__name__ else kind)
                content = connection.take_ready()
        except ConnectionLostError as error:
            self.lose(self.how_ended() or str(error))
        except MessageError as error:
            self.lose(str(error))
        return None


@dataclass(frozen=True, slots=True)
class Lost:
    """A process that gave no answer."""

    name: str
    reason: str
    """A clause without full stop."""
    is_late: bool = field(default=False, compare=False)
    """Whether it is not known to have ended."""


def ask(
    members: Mapping[int, Member],
    requests: Mapping[int, Request],
    timeout_s: float,
    *,
    together: bool = False,
) -> dict[int, Any]:
    """Send members their requests, all at once, and return the answers: what came, or `Lost`.

    Args:
        members: The processes.
        requests: Requests by member.
        timeout_s: Time for all to answer.
        together: As for `answers_to`.
    """
    return answers_to(send_all(members, requests, timeout_s), members, together=together)


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests that members were sent, whose answers are awaited."""

    number: int
    requests: Mapping[int, Request]
    timeout_s: float
    deadline: float


def send_all(
    members: Mapping[int, Member], requests: Mapping[int, Request], timeout_s: float
) -> Asked:
    """Send members their requests; arguments as for `ask`."""
    asked = Asked(next(_NUMBERS), requests, timeout_s, time.monotonic() + timeout_s)
    for key, request in requests.items():
        members[key].send(asked.number, request)
    return asked


def answers_to(
    asked: Asked, members: Mapping[int, Member], *, together: bool = False
) -> dict[int, Any]:
    """Return the answers to requests that were sent: what came, or `Lost`.

    Args:
        asked: What `send_all` returned.
        members: Its members.
        together: Whether they wait for each other to perform the requests. Then nobody is waited
            for any longer when one is lost, and not long when one has failed; answers may be
            missing.
    """
    requests, deadline = asked.requests, asked.deadline
    answers = {
        key: Lost(members[key].name, members[key].lost) for key in requests if members[key].lost
    }
    waiting: dict[int, int] = {}
    """Member by descriptor."""
    for key in requests:
        connection = members[key].connection
        if connection is not None and key not in answers:
            waiting[connection.fileno()] = key
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting and not (together and any(isinstance(each, Lost) for each in answers.values())):
        left_s = deadline - time.monotonic()
        ready = poll.poll(left_s * 1e3) if left_s > 0 else []
        if not ready:
            for key in waiting.values():
                answers[key] = _late(members[key], asked.timeout_s)
            break
        for descriptor, _ in ready:
            key = waiting[descriptor]
            answer = members[key].receive(asked.number, requests[key].answer)
            if members[key].lost:
                answer = Lost(members[key].name, members[key].lost)
            if answer is not None:
                poll.unregister(descriptor)
                answers[waiting.pop(descriptor)] = answer
                if together and isinstance(answer, Failed):
                    deadline = min(deadline, time.monotonic() + AFTER_A_FAILURE_S)
    return {key: answers[key] for key in requests if key in answers}


def _late(member: Member, timeout_s: float) -> Lost:
    said = member.last_words()
    member.lose(f"no answer within {timeout_s:g} s" + (f": {said}" if said else ""))
    return Lost(member.name, member.lost, is_late=True)
