"""`ExecutorEngine`: NCCL's engine with TuCCL's executor in front of it, in one process.

What NCCL runs is measured exactly as by `NcclEngine`; calls whose algorithm begins with `executor:`
are run by the executor, and it is looked at that it took them: it hands what it cannot run to NCCL,
whose time must not pass for its own.
"""

from __future__ import annotations

from ctypes import byref
from zlib import crc32

from tuccl.measuring.engine import Call
from tuccl.measuring.errors import EngineError
from tuccl.measuring.executor_library import EXECUTOR_PREFIX, ExecutorLibrary, Rule
from tuccl.measuring.measure_library import NativeCall
from tuccl.measuring.nccl_engine import NcclEngine

_EXECUTOR_WORD = 1 << 63
"""Keeps the names of rules apart from what the tuner plugin is told."""


class ExecutorEngine(NcclEngine):
    """One rank of a communicator that both may serve."""

    def __init__(self, *, controlled: bool = True) -> None:
        """See `NcclEngine`.

        Raises:
            EngineError: The executor was not preloaded, or this installation has no library.
        """
        self._executor = ExecutorLibrary()
        self._not_taken: set[Call] = set()
        super().__init__(controlled=controlled)

    def open(self, rank: int, ranks: int, local_rank: int, group_id: bytes) -> str:
        """See `Engine.open`; whether the executor serves shows with the first call."""
        return f"{super().open(rank, ranks, local_rank, group_id)}, executor"

    @property
    def executor_calls(self) -> int:
        """Calls of this process that the executor ran so far."""
        return self._executor.calls

    def _wish(self, call: Call) -> int:
        rule = rule_of(call)
        if rule is None:
            return super()._wish(call)
        return _EXECUTOR_WORD | crc32(rule.line.encode())

    def _prepare(self, call: Call, native: NativeCall) -> None:
        rule = rule_of(call)
        self._executor.choose(rule)
        if rule is None:
            super()._prepare(call, native)
            return
        if call not in self._not_taken:
            before = self._executor.calls
            is_new = self._session.call("prepare", byref(native))
            if not is_new or self._executor.calls > before:
                return
            self._not_taken.add(call)
        raise EngineError(f"the executor cannot run {rule.line} here, NCCL would")


def rule_of(call: Call) -> Rule | None:
    """What the executor is told for a call; None for what NCCL runs."""
    if not call.algorithm.startswith(EXECUTOR_PREFIX):
        return None
    return Rule(
        call.operation.value,
        call.size_bytes,
        call.size_bytes,
        call.algorithm.removeprefix(EXECUTOR_PREFIX),
        call.protocol,
        call.nchannels,
        call.nthreads,
        call.buffer_bytes,
    )
