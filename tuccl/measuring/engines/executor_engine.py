"""`ExecutorEngine`: NCCL's engine with TuCCL's executor in front of it, in one process.

Calls without a schedule are measured exactly as by `NcclEngine`. Calls with a schedule are run by
the executor, and the engine checks that it ran them: the executor hands a call that it cannot run
to NCCL, whose time must not pass for its own.
"""

from __future__ import annotations

from ctypes import byref
from zlib import crc32

from lookup_tables.table import NcclProtocol, ScheduleConfig
from tuccl.errors import EngineError
from tuccl.measuring.engines.control_block import NO_OVERRIDE
from tuccl.measuring.engines.measure_library import NativeCall
from tuccl.measuring.engines.nccl_engine import NcclEngine
from tuccl.measuring.workers.engine import Call
from tuccl.runtime.executor_library import Choice, ExecutorLibrary, is_preloaded, unpack_bundle

_EXECUTOR_WORD = 1 << 63
"""Flag that keeps words of the executor's choices apart from those of overrides."""


class ExecutorEngine(NcclEngine):
    """One rank of a communicator that NCCL and the executor both may serve."""

    def __init__(self, *, controlled: bool = True) -> None:
        """See `NcclEngine`.

        Raises:
            EngineError: The executor was not preloaded, or this installation has no library.
        """
        unpack_bundle()
        self._executor = ExecutorLibrary(chooses=controlled)
        self._chooses = controlled
        self._taken: set[Call] = set()
        self._not_taken: dict[Call, str] = {}
        """Refused calls with their error messages."""
        super().__init__(controlled=controlled)

    def open(self, rank: int, ranks: int, local_rank: int, group_id: bytes) -> str:
        """See `Engine.open`; whether the executor serves shows with the first call."""
        return f"{super().open(rank, ranks, local_rank, group_id)}, executor"

    def ran_by(self, call: Call) -> str:
        """See `Engine.ran_by`: the executor by a choice or by the job's table."""
        return "executor" if call in self._taken else super().ran_by(call)

    def _override(self, call: Call) -> int:
        choice = choice_of(call)
        if choice is None:
            return super()._override(call)
        return _EXECUTOR_WORD | crc32(self._executor.record(choice))

    def _prepare(self, call: Call, native: NativeCall) -> bool:
        choice = choice_of(call)
        if call in self._not_taken:
            raise EngineError(self._not_taken[call])
        if self._chooses:
            self._executor.choose(choice)
        before = self._executor.calls
        if choice is None:
            is_new = super()._prepare(call, native)
        else:
            # NCCL chooses for the calls that a schedule across hosts makes, as it does in a job.
            if self._control is not None:
                self._control.request_override(NO_OVERRIDE)
            is_new = self._session.call("prepare", byref(native)) != 0
        if not is_new:
            return False
        self._taken.discard(call)
        if self._executor.calls > before:
            self._taken.add(call)
        elif choice is not None:
            self._not_taken[call] = f"the executor cannot run {_describe(call)} here, NCCL would"
            raise EngineError(self._not_taken[call])
        return True


def choice_of(call: Call) -> Choice | None:
    """Return the executor's choice for a call; None for a call of NCCL's.

    Raises:
        EngineError: The protocol is unknown.
    """
    if not call.schedule:
        return None
    if call.protocol not in list(NcclProtocol):
        raise EngineError(f"no schedule runs with protocol {call.protocol!a:.40}")
    config = ScheduleConfig(
        call.schedule,
        NcclProtocol(call.protocol),
        call.nchannels,
        call.nthreads,
        call.buffer_bytes,
    )
    return Choice(call.size_bytes, call.size_bytes, config)


def _describe(call: Call) -> str:
    """`5a5a LL ch8 th256 buf65536 for all_reduce of 1024 bytes`."""
    config = f"{call.schedule} {call.protocol} ch{call.nchannels} th{call.nthreads}"
    return f"{config} buf{call.buffer_bytes} for {call.operation} of {call.size_bytes} bytes"


def job_engine() -> NcclEngine:
    """Return an engine with the environment's plugin, and with the executor if it is preloaded.

    Raises:
        EngineError: This installation has no compiled library.
    """
    unpack_bundle()
    return (ExecutorEngine if is_preloaded() else NcclEngine)(controlled=False)
