"""The duty of a worker that measures: its engine does what the leader requests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tuccl.crew.messages import Done, Failed
from tuccl.errors import EngineBrokenError, EngineError
from tuccl.measuring.workers.engine import Engine, make_engine
from tuccl.measuring.workers.requests import (
    CheckOrder,
    MakeGroupId,
    Open,
    Opened,
    Prepare,
    Split,
    Tell,
    Time,
    Timed,
)


class EngineDuty:
    """See `Duty`."""

    def __init__(self, _: Mapping[str, str]) -> None:
        """Begin without an engine: the first request names it."""
        self._engine: Engine | None = None

    def perform(self, request: Any) -> Any:
        """See `Duty`."""
        try:
            return self._perform(request)
        except EngineError as error:
            return Failed(str(error), isinstance(error, EngineBrokenError))

    def close(self) -> None:
        """See `Duty`."""
        if self._engine is not None:
            with suppress(EngineError):
                self._engine.close()

    def _perform(self, request: Any) -> Any:
        if self._engine is None:
            self._engine = make_engine(request.engine)
        engine = self._engine
        match request:
            case MakeGroupId():
                return Done(engine.make_group_id().hex())
            case Prepare(_, local_rank):
                engine.prepare(local_rank)
                return Done()
            case Open(_, rank, ranks, local_rank, group_id):
                text = engine.open(rank, ranks, local_rank, bytes.fromhex(group_id))
                return Opened(text, engine.nccl_version)
            case Split(colour, ranks, rank):
                engine.split(colour, ranks, rank)
                return Done()
            case Time(call, launches):
                return Timed(tuple(engine.time(call, launches)))
            case CheckOrder(call, local_ranks, shift):
                told = engine.check_order(call, local_ranks, shift)
            case Tell(what, call):
                told = getattr(engine, what)(call)
            case _:
                raise EngineBrokenError(f"an engine cannot do {type(request).__name__}")
        return Done("" if told is None else str(told))
