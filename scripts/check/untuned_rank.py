"""One rank of check_untuned.py: starts communicators and times calls on them."""

from __future__ import annotations

import time
from ctypes import byref, c_float, c_int, c_uint, c_void_p, memmove, sizeof
from pathlib import Path
from statistics import median
from typing import Any

from device_calls import Buffer, Cuda, DeviceError, Nccl, UniqueId
from rank_program import from_rank_zero, run_rank

_FLOAT, _SUM = 7, 0
_GRANULE = 4


class _Rank:
    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self.job, self.rank, self.ranks = job, rank, len(job["devices"])
        self.cuda = Cuda(job["devices"][rank])
        self.nccl = Nccl(job["nccl"], as_seen=True)
        self.stream = self.cuda.stream()
        self.events = c_void_p(), c_void_p()
        for event in self.events:
            self.cuda.call("cuEventCreate", byref(event), c_uint(0))
        self.buffers = Buffer(self.cuda), Buffer(self.cuda)
        self.addresses = tuple(each.reserve(max(job["sizes"])) for each in self.buffers)

    def start(self) -> c_void_p:
        """Start the communicator of all ranks."""
        identifier = UniqueId()
        if self.rank == 0:
            self.nccl.call("ncclGetUniqueId", byref(identifier))
        own = bytes(identifier) if self.rank == 0 else None
        told = from_rank_zero(Path(self.job["folder"]) / "id", own)
        memmove(byref(identifier), told, sizeof(identifier))
        made = c_void_p()
        words = c_int(self.ranks), identifier, c_int(self.rank)
        self.nccl.call("ncclCommInitRank", byref(made), *words)
        return made

    def split(self, parent: c_void_p, color: int) -> c_void_p:
        """Split a communicator; this rank is in no part if the color is -1."""
        made = c_void_p()
        words = c_int(color), c_int(self.rank), byref(made), c_void_p()
        self.nccl.call("ncclCommSplit", parent, *words)
        return made

    def time_us(self, communicator: c_void_p, operation: str, size_bytes: int, ranks: int) -> float:
        """Return the median time of a call among calls back to back."""
        shared = 1 if operation == "all_reduce" else ranks
        count = size_bytes // _GRANULE // shared
        calls = 20 if size_bytes <= 1 << 24 else 5

        def run(number: int) -> None:
            for _ in range(number):
                self.nccl.collective(
                    operation,
                    (self.addresses[0], self.addresses[1]),
                    count,
                    (_FLOAT, _SUM, 0),
                    (communicator, self.stream),
                )

        run(5)
        self.cuda.wait(self.stream)
        times_us = []
        for _ in range(9):
            self.cuda.call("cuEventRecord", self.events[0], self.stream)
            run(calls)
            self.cuda.call("cuEventRecord", self.events[1], self.stream)
            self.cuda.wait(self.stream)
            milliseconds = c_float()
            self.cuda.call("cuEventElapsedTime", byref(milliseconds), *self.events)
            times_us.append(milliseconds.value * 1e3 / calls)
        return median(times_us)


def _work(job: dict[str, Any], number: int) -> dict[str, Any]:
    rank = _Rank(job, number)
    began = time.monotonic()
    whole = rank.start()
    started_s = time.monotonic() - began
    parts = {"all ranks": (whole, rank.ranks)}
    if rank.ranks % 2 == 0 and rank.ranks > 2:
        parts["pairs"] = rank.split(whole, number // 2), 2
    if rank.ranks > 2:
        few = rank.ranks - 1
        parts["all but one"] = rank.split(whole, 0 if number < few else -1), few
    times_us = {
        f"{name} {operation} {size_bytes}": rank.time_us(made, operation, size_bytes, ranks)
        for name, (made, ranks) in parts.items()
        if made.value
        for operation in job["operations"]
        for size_bytes in job["sizes"]
    }
    for made, _ in reversed(list(parts.values())):
        if made.value:
            rank.nccl.call("ncclCommDestroy", made)
    return {"started_s": started_s, "times_us": times_us}


if __name__ == "__main__":
    run_rank(_work, DeviceError, TimeoutError)
