"""The calls of lifecycle_rank.py on one rank of a communicator."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Self

from executor_session import Calls, Session, run_and_compare
from random_calls import RandomCall, Rule, rule_by

from lookup_tables.collective import Collective

CALLS = 6


def calls_of(session: Session, ranks: int) -> list[RandomCall]:
    """Small and medium calls of every kind, by different rules."""
    kernels = session.kernels.get(str(ranks), {})

    def rule(operation: str, pattern: str, protocol: str) -> Rule | None:
        if not pattern:
            return None
        schedule = kernels[operation][pattern]
        return rule_by((operation, pattern), schedule, (1, 1 << 30), protocol, (8, 256))

    kinds = (
        ("all_reduce", "one_phase", "LL", 4099),
        ("all_gather", "direct", "LL128", 30011),
        ("all_reduce", "two_phase", "LL128", 262147),
        ("reduce_scatter", "direct", "LL", 1021),
        ("alltoall", "direct", "LL128", 65537),
        ("all_reduce", "", "", 8191),
    )
    return [
        RandomCall(
            number=number,
            seed=7,
            ranks=ranks,
            operation=Collective.named(operation),
            type="int32",
            reduction="sum",
            count=count,
            rule=rule(operation, pattern, protocol),
            send_offset=number % 3,
        )
        for number, (operation, pattern, protocol, count) in enumerate(kinds)
    ]


class Case:
    """Prepared calls of a communicator on one rank."""

    def __init__(
        self,
        session: Session,
        communicator: c_void_p,
        ranks: int,
        rank: int,
        *,
        knows: bool = True,
    ) -> None:
        """Prepare the calls, and have NCCL compute their results unless `knows` is false."""
        self._session = session
        self.communicator = communicator
        self._calls = Calls(session, calls_of(session, ranks), rank)
        self.calls, self.wrong = self._calls.prepared, self._calls.wrong
        if knows:
            self._calls.learn(communicator)

    @classmethod
    def joined(cls, session: Session, name: str, *, again: bool = False) -> Self:
        """Return the calls of a new communicator of all ranks, as `Session.join` makes it."""
        communicator = session.join(session.ranks, name, again=again)
        return cls(session, communicator, session.ranks, session.rank)

    def run(self, index: int, stream: c_void_p) -> None:
        """Run one call on a stream."""
        call = self.calls[index]
        self._session.executor.choose(call.call.choice)
        run_and_compare(call, self._session.seen, self.communicator, stream)

    def run_all(self, stream: c_void_p) -> None:
        """Run every call."""
        for index in range(CALLS):
            self.run(index, stream)
