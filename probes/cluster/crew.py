"""The hosts of a probe: a `Crew` that answers requests, and the crew of this process alone.

The leader asks all hosts at once and gets a reply or a failure of each within the timeout, however
the hosts are reached. A host that failed once is not asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from probes.cluster.messages import Failed, Reply, Request
from probes.cluster.station import Station


@dataclass(frozen=True, slots=True)
class HostFailure:
    """A host that gave no answer, with the reason."""

    name: str
    reason: str
    """A clause without subject or full stop."""


Answers = dict[int, Reply | HostFailure]


class Crew(Protocol):
    """Hosts that answer requests, by index from 0."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the hosts before they answered."""

    @property
    def names_are_given(self) -> bool:
        """Whether these names take precedence over the hosts' own."""

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> Answers:
        """Send each host its request, all at once, and return an answer for each."""


class LocalCrew:
    """A crew of this process alone."""

    names = ("this host",)
    names_are_given = False

    def __init__(self) -> None:
        self._station = Station()

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> Answers:  # noqa: ARG002 - local requests have their own timeouts
        """See `Crew`; failures of this host are raised, since the caller is in this process."""
        return {host: self._station.do(request) for host, request in requests.items()}

    def close(self) -> None:
        """Stop the servers."""
        self._station.close()


def answer_of(name: str, reply: Reply) -> Reply | HostFailure:
    """Convert a `Failed` reply into a failure of the host; return any other reply."""
    return HostFailure(name, reply.reason) if isinstance(reply, Failed) else reply
