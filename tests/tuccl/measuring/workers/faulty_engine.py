"""The stand-in engine with faults: a configuration's channels name the fault and the rank."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tuccl.errors import EngineBrokenError, EngineError
from tuccl.measuring.sockets.sockets_engine import SocketsEngine
from tuccl.measuring.workers.engine import Call
from tuccl.search.trials.config import DEFAULT_ALGORITHM
from tuccl.search.trials.cost_table import CostTable

ALL_REFUSE, ONE_REFUSES, ONE_ABORTS, ONE_HANGS, ONE_IS_WRONG, ALL_BREAK, ONE_IS_LATE = range(50, 57)
LATE_US = 20e3
"""Time that rank 1 adds to a launch of `ONE_IS_LATE`."""


class FaultyEngine(SocketsEngine):
    """Engine with the faults that the environment and a call's channels name."""

    def open(self, rank: int, ranks: int, local_rank: int, group_id: bytes) -> str:
        self._ranks = ranks
        if os.environ.get("NCCL_NTHREADS") == "96":
            raise EngineError("96 threads are too few")
        if (fault := Path(os.environ.get("FAULTY_START", "") + str(rank))).is_file():
            fault.unlink()
            raise EngineError("the device is gone")
        self._rank = rank
        return super().open(rank, ranks, local_rank, group_id)

    def split(self, colour: int, ranks: int, rank: int) -> None:
        if ranks == self._ranks // 2 and os.environ.get("NCCL_NTHREADS") == "128":
            raise EngineError("128 threads are too few for two communicators")
        super().split(colour, ranks, rank)

    def time(self, call: Call, launches: int) -> list[float]:
        last = self._rank == 1
        match call.nchannels:
            case 50:
                raise EngineError("no such channels")
            case 51 if last:
                raise EngineError("not on this rank")
            case 52 if last:
                sys.stderr.write("about to abort\n")
                os.abort()
            case 53 if last:
                time.sleep(3600)
            case 55:
                raise EngineBrokenError("unhandled CUDA error")
        times_us = super().time(call, launches)
        late_us = LATE_US if last and call.nchannels == ONE_IS_LATE else 0.0
        return [time_us + late_us for time_us in times_us]

    def cost_table(self, call: Call) -> CostTable | None:
        if call.nchannels or call.algorithm != DEFAULT_ALGORITHM:
            raise EngineError("estimates are of the library's own choice")
        first = "ring/Simple=20.0 nvls/Simple=9.0"
        return CostTable.parse(first if self._rank < 2 else "ring/Simple=40.0 tree/LL=1.0")

    def check(self, call: Call) -> str:
        found = super().check(call)
        return "byte 7 is off" if call.nchannels == ONE_IS_WRONG and self._rank == 1 else found


class NoDevice:
    """Engine on a host that lacks its requirements."""

    def __init__(self) -> None:
        raise EngineBrokenError("no GPU: nvidia-smi shows none")
