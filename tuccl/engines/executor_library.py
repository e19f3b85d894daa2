"""`ExecutorLibrary`: libtuccl-executor.so in this process, told what to run the next calls with.

It has to be preloaded, as a job does it, so that NCCL's functions are the executor's here.
`tuccl/runtime/executor/choose.h` is the same page for C++.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from tuccl.measuring.errors import EngineError

PRELOAD_VARIABLE = "LD_PRELOAD"
RULES_VARIABLE = "TUCCL_EXECUTOR_RULES"
EXECUTOR_PREFIX = "executor:"
"""`Call.algorithm` of what the executor is to run: a pattern, or `program:INDEX` of its bundle."""
NOTHING = "broadcast 1 1 direct ll 1 32 0\n"
"""Rules of a process that chooses call by call: without any the executor would not start."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What runs calls of an operation from one size to another; a line of TUCCL_EXECUTOR_RULES."""

    operation: str
    min_bytes: int
    max_bytes: int
    """Inclusive, as nccl-tests counts."""
    runner: str
    """`one_phase`, `two_phase`, `direct`, or `program:INDEX`."""
    protocol: str
    """As in `NcclProtocol`."""
    nchannels: int
    nthreads: int
    buffer_bytes: int = 0

    @property
    def line(self) -> str:
        """As the executor reads it."""
        return (
            f"{self.operation} {self.min_bytes} {self.max_bytes} {self.runner} "
            f"{self.protocol.lower()} {self.nchannels} {self.nthreads} {self.buffer_bytes}"
        )


class ExecutorLibrary:
    """The executor that was preloaded into this process."""

    def __init__(self) -> None:
        """Find it.

        Raises:
            EngineError: It is not there.
        """
        library = ctypes.CDLL(None)
        try:
            self._choose = library.tuccl_executor_choose
            self._calls = library.tuccl_executor_calls
        except AttributeError as error:
            raise EngineError(
                "libtuccl-executor.so is not in this process: name it in LD_PRELOAD"
            ) from error
        self._choose.argtypes = (ctypes.c_char_p,)
        self._choose.restype = ctypes.c_char_p
        self._calls.argtypes = ()
        self._calls.restype = ctypes.c_uint64
        # Communicators that start from now on get staging memory for whatever may be chosen.
        self.choose(None)

    def choose(self, rule: Rule | None) -> None:
        """Run the next calls by this rule, and all others by NCCL; None: by the own table.

        Raises:
            EngineError: The executor does not understand it.
        """
        wrong = self._choose(rule.line.encode() if rule else None)
        if wrong is not None:
            raise EngineError(f"the executor refused {rule}: line {wrong.decode(errors='replace')}")

    @property
    def calls(self) -> int:
        """That the executor ran so far in this process."""
        return int(self._calls())


def is_preloaded() -> bool:
    """Whether the executor is in this process."""
    return hasattr(ctypes.CDLL(None), "tuccl_executor_calls")
