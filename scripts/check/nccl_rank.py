"""Run one rank of a small NCCL job by ctypes, with libnccl and the CUDA driver.

Started once per GPU by check_nccl_loads_table.py: `nccl_rank.py JOB.json RANK`. Runs each call of
the job once, checks its numbers, and writes what happened to the job's folder.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from rank_zero_file import from_rank_zero

FLOAT32, SUM = 7, 0
ONE = 0x3F800000
"""Bits of the float 1.0."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, passed by value."""

    _fields_ = [("internal", c_char * 128)]


class RankError(Exception):
    """A call into CUDA or NCCL failed, or a collective gave wrong numbers."""


class Cuda:
    """Device, stream and memory through the driver, whose library has the same name everywhere."""

    def __init__(self, device: int) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        handle, context = c_int(), c_void_p()
        self._call("cuInit", c_uint(0))
        self._call("cuDeviceGet", byref(handle), c_int(device))
        self._call("cuDevicePrimaryCtxRetain", byref(context), handle)
        self._call("cuCtxSetCurrent", context)
        self.stream = c_void_p()
        self._call("cuStreamCreate", byref(self.stream), c_uint(1))

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise RankError(f"{name} failed with CUDA error {result}")

    def allocate(self, size_bytes: int) -> c_void_p:
        """Device memory; lives as long as the process."""
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(size_bytes))
        return c_void_p(pointer.value)

    def fill_with_ones(self, pointer: c_void_p, count: int) -> None:
        """Write `count` floats of 1.0, in the stream's order."""
        self._call(
            "cuMemsetD32Async",
            c_uint64(pointer.value or 0),
            c_uint(ONE),
            c_size_t(count),
            self.stream,
        )

    def synchronize(self) -> None:
        """Wait for the stream."""
        self._call("cuStreamSynchronize", self.stream)

    def floats(self, pointer: c_void_p, count: int) -> list[float]:
        """First and last of `count` floats."""
        host = (ctypes.c_float * count)()
        self._call(
            "cuMemcpyDtoH_v2", host, c_uint64(pointer.value or 0), c_size_t(ctypes.sizeof(host))
        )
        return [host[0], host[count // 2], host[count - 1]]


class Nccl:
    """libnccl and one communicator."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self._communicator = c_void_p()

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            text = self._library.ncclGetErrorString(result).decode()
            raise RankError(f"{name} failed: {text} ({result})")

    def version(self) -> int:
        """Version as a number, such as 22809 for 2.28.9."""
        version = c_int()
        self._call("ncclGetVersion", byref(version))
        return version.value

    def start(self, ranks: int, rank: int, id_file: Path) -> None:
        """Create the communicator; rank 0 hands the id to the others through a file."""
        identifier = UniqueId()
        if rank == 0:
            self._call("ncclGetUniqueId", byref(identifier))
        told = from_rank_zero(id_file, bytes(identifier) if rank == 0 else None)
        ctypes.memmove(byref(identifier), told, ctypes.sizeof(identifier))
        self._call(
            "ncclCommInitRank", byref(self._communicator), c_int(ranks), identifier, c_int(rank)
        )

    def end(self) -> None:
        """Destroy the communicator."""
        self._call("ncclCommDestroy", self._communicator)

    def run(
        self, operation: str, send: c_void_p, receive: c_void_p, count: int, stream: c_void_p
    ) -> None:
        """Submit one collective over floats; `count` as NCCL's own function takes it."""
        tail = (self._communicator, stream)
        if operation == "all_reduce":
            self._call("ncclAllReduce", send, receive, c_size_t(count), FLOAT32, SUM, *tail)
        elif operation == "all_gather":
            self._call("ncclAllGather", send, receive, c_size_t(count), FLOAT32, *tail)
        elif operation == "reduce_scatter":
            self._call("ncclReduceScatter", send, receive, c_size_t(count), FLOAT32, SUM, *tail)
        else:
            raise RankError(f"unknown operation {operation}")


def run_job(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """Run every call of the job once, on the last of its communicators."""
    ranks: int = job["ranks"]
    folder = Path(job["folder"])
    cuda = Cuda(rank)
    nccl = Nccl(job["nccl"])
    communicators: int = job["communicators"]
    for number in range(communicators):
        nccl.start(ranks, rank, folder / f"id{number}")
        if number + 1 < communicators:
            nccl.end()
    largest = max(size for _, size in job["calls"])
    send, receive = cuda.allocate(largest), cuda.allocate(largest)
    for operation, size_bytes in job["calls"]:
        floats = size_bytes // 4
        count = floats if operation == "all_reduce" else floats // ranks
        cuda.fill_with_ones(send, floats)
        nccl.run(operation, send, receive, count, cuda.stream)
        cuda.synchronize()
        expected = 1.0 if operation == "all_gather" else float(ranks)
        filled = floats if operation == "all_gather" else count
        found = cuda.floats(receive, filled)
        if found != [expected] * len(found):
            raise RankError(f"{operation} of {size_bytes} bytes gave {found} instead of {expected}")
    nccl.end()
    return {"version": nccl.version(), "calls": len(job["calls"])}


def main() -> int:
    """Run the rank; return 0, or 1 with the error in the result file."""
    job_file, rank = Path(sys.argv[1]), int(sys.argv[2])
    job = json.loads(job_file.read_text())
    try:
        result = run_job(job, rank)
    except (RankError, OSError) as error:
        result = {"error": str(error)}
    (Path(job["folder"]) / f"result{rank}.json").write_text(json.dumps(result))
    return 1 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main())
