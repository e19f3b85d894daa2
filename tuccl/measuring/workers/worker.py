"""A worker process: one rank, run by the leader's requests.

The process reads a line of JSON from standard input (`WorkerOrder`), connects to the leader and
answers its requests in order. It ends at once when the leader's connection closes or its parent
dies: a thread watches the connection, and the kernel the parent. All output goes to standard error,
whose last line says why the process died.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

from tuccl.errors import (
    ConnectionLostError,
    EngineBrokenError,
    EngineError,
    MessageError,
    TucclError,
)
from tuccl.measuring.workers.connection import Connection, Greeting, connect
from tuccl.measuring.workers.cores import bind_to_named_share
from tuccl.measuring.workers.engine import Engine, make_engine
from tuccl.measuring.workers.messages import (
    Bye,
    Check,
    Done,
    Estimate,
    Failed,
    MakeGroupId,
    Message,
    OnCall,
    Open,
    Opened,
    RanBy,
    Reply,
    Split,
    Time,
    Timed,
    from_bytes,
    order_from,
    to_bytes,
)

_PR_SET_PDEATHSIG = 1
_CLOSING_S = 5.0
"""Time for an engine to close after the leader has left."""


def main() -> NoReturn:
    """Answer requests until the leader dismisses the worker or is gone."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.dup2(2, 1)
    bind_to_named_share()
    code = 1
    try:
        order = order_from(json.loads(sys.stdin.buffer.readline()))
        greeting = Greeting("worker", order.number)
        connection = connect(order.addresses, bytes.fromhex(order.key), greeting)
        serve(connection, order.engine)
        code = 0
    except TucclError as error:
        sys.stderr.write(f"{error}\n")
    except Exception:  # noqa: BLE001 - the process ends: its last line is shown to the user
        traceback.print_exc()
    sys.stderr.flush()
    # Libraries of an engine may hold threads that never end.
    os._exit(code)


def serve(connection: Connection, engine_name: str) -> None:
    """Perform the leader's requests until `Bye`, then close the engine."""
    engine: Engine | None = None
    try:
        for request in _requests(connection):
            try:
                engine = engine or make_engine(engine_name)
                reply = _perform(engine, request)
            except EngineError as error:
                reply = Failed(str(error), isinstance(error, EngineBrokenError))
            except Exception as error:  # noqa: BLE001 - the leader reports any failure
                traceback.print_exc()
                reply = Failed(f"{type(error).__name__}: {error}", broken=True)
            try:
                connection.send(to_bytes(reply))
            except ConnectionLostError:
                return
    finally:
        if engine is not None:
            with suppress(EngineError):
                engine.close()


def _requests(connection: Connection) -> Iterator[Message]:
    """Yield requests until `Bye`; a thread receives them, so that a lost leader is seen at once."""
    arrived: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def receive() -> None:
        while True:
            try:
                request = from_bytes(connection.receive())
            except (ConnectionLostError, MessageError) as error:
                sys.stderr.write(f"the leader is gone: {error}\n")
                os._exit(1)
            arrived.put(request)
            if isinstance(request, Bye):
                return

    threading.Thread(target=receive, daemon=True).start()
    while not isinstance(request := arrived.get(), Bye):
        yield request
    # An engine that hangs while it closes must not outlive the run.
    end = threading.Timer(_CLOSING_S, lambda: os._exit(1))
    end.daemon = True
    end.start()


def _perform(engine: Engine, request: Message) -> Reply:
    match request:
        case MakeGroupId():
            return Done(engine.make_group_id().hex())
        case Open(rank, ranks, local_rank, group_id):
            text = engine.open(rank, ranks, local_rank, bytes.fromhex(group_id))
            return Opened(text, engine.nccl_version)
        case Split(colour, ranks, rank):
            engine.split(colour, ranks, rank)
            return Done()
        case Time(call, launches):
            return Timed(tuple(engine.time(call, launches)))
        case Check() | RanBy() | Estimate():
            return Done(_text_on(engine, request))
        case _:
            raise EngineBrokenError(f"a worker cannot do {type(request).__name__}")


def _text_on(engine: Engine, request: OnCall) -> str:
    if isinstance(request, Check):
        return engine.check(request.call)
    if isinstance(request, RanBy):
        return engine.ran_by(request.call)
    estimate_us = engine.ring_estimate_us(request.call)
    return "" if estimate_us is None else repr(estimate_us)


if __name__ == "__main__":
    main()
