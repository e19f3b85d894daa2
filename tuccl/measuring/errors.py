"""Errors between an engine, its worker and the leader.

EngineError              a rank cannot do what it was asked for
└── EngineBrokenError    ... and cannot do anything else either
ConnectionLostError      the other side of a connection has gone
MessageError             the other side is no part of this run, or of another release
GroupLostError           a rank died, hangs, or disagrees with the others
"""

from __future__ import annotations

from tuccl.errors import TucclError


class EngineError(TucclError):
    """A rank cannot do what it was asked for; the text is half a sentence that says why.

    When every rank refuses a call so, the group goes on with the next one. An engine whose
    communicator can no longer be used raises `EngineBrokenError`.
    """


class EngineBrokenError(EngineError):
    """As `EngineError`, and the worker has to be started again before it can do anything else."""


class ConnectionLostError(TucclError):
    """The other side of a connection has gone."""


class MessageError(TucclError):
    """The other side of a connection is no part of this run, or of another release."""


class GroupLostError(TucclError):
    """A rank died, hangs, or disagrees with the others: all have to be started again."""

    def __init__(self, reason: str, *, from_outside: bool = False) -> None:
        super().__init__(reason)
        self.from_outside = from_outside
        """Whether somebody killed a worker (a person, the kernel short of memory)."""
