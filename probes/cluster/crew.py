"""Who works for a probe: a `Crew` of hosts that answer requests, and the crew of this process.

However the hosts are reached, the leader asks all of them at once and gets, within the time that it
gave, a reply or a failure of each. A host that failed once is not asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from probes.cluster.messages import Failed, Reply, Request
from probes.cluster.station import Station


@dataclass(frozen=True, slots=True)
class HostFailure:
    """A host that gave no answer, and why."""

    name: str
    reason: str
    """Half a sentence."""


Answers = dict[int, Reply | HostFailure]


class Crew(Protocol):
    """Hosts by index from 0."""

    @property
    def names(self) -> Sequence[str]:
        """What each host is called before it answered."""

    @property
    def names_are_given(self) -> bool:
        """Whether these names come before what hosts call themselves."""

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> Answers:
        """Send each host its request, all at once; an answer for every one of them."""


class LocalCrew:
    """This process on this host, without any other."""

    names = ("this host",)
    names_are_given = False

    def __init__(self) -> None:
        self._station = Station()

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> Answers:  # noqa: ARG002 - what runs here keeps its own time
        """See `Crew`; what this host cannot do is raised, since whoever asked is here."""
        return {host: self._station.do(request) for host, request in requests.items()}

    def close(self) -> None:
        """Stop what still runs."""
        self._station.close()


def answer_of(name: str, reply: Reply) -> Reply | HostFailure:
    """A reply that says that the host could not do it is a failure of the host."""
    return HostFailure(name, reply.reason) if isinstance(reply, Failed) else reply
