"""Errors between an engine, its worker and the leader."""

from __future__ import annotations

from tuccl.errors import TucclError


class EngineError(TucclError):
    """A rank cannot do what it was asked for; the text is half a sentence that says why.

    When every rank refuses a call so, the group goes on with the next one. An engine whose
    communicator can no longer be used raises `EngineBrokenError`.
    """


class EngineBrokenError(EngineError):
    """As `EngineError`, and the worker has to be started again before it can do anything else."""


class MessageError(TucclError):
    """The other side of a connection is no part of this run, or of another release."""
