#!/usr/bin/env python3
"""Call NCCL through a handle of dlopen, as vLLM's wrapper does, without and with a table.

    check_calling_library.py DIR [--rounds 5] [--layers 32] [--size 64K] [--json]

DIR is a directory of `tuccl ship` for the GPUs of this host. Each round starts a process for each
GPU, three times: with stock NCCL; with the table, but functions of `libnccl.so.2`, which go past
the preloaded executor; and with those of DIR's `libtuccl-nccl.so`, nothing preloaded. Each checks
sums and gathers of 1 KB to 4 MB, then captures a decode step as a CUDA graph, two products of
matrices and two all_reduce of --size a layer, and times its replays. Needs PyTorch. Exit code 0:
results are right and the executor counted calls; 1: they are not.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.quantities import format_size, parse_size
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME
from tuccl.runtime.executor_library import PRELOAD_VARIABLE, without_executor
from tuccl.shipping.bench.surroundings import without_table
from tuccl.shipping.sourcing import job_environment

LIMIT_S = 120.0
"""Time limit of a job's processes."""
SIZES_BYTES = tuple(1024 << step for step in range(0, 13, 2))
FLOAT16, SUM = 6, 0
"""NCCL's codes (nccl.h)."""
WIDTH = 8192
STEPS = 200


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`, which goes by value."""

    _fields_ = (("internal", ctypes.c_byte * 128),)


class Nccl:
    """NCCL's functions as a library's handle has them, on a communicator of all ranks."""

    def __init__(self, path: str, rank: int, ranks: int, meeting: Path) -> None:
        """Open the library and make the communicator; the ranks meet at a file."""
        self._library = ctypes.CDLL(path)
        self._comm = ctypes.c_void_p()
        unique = UniqueId()
        if rank == 0:
            self._check(self._library.ncclGetUniqueId(ctypes.byref(unique)))
            meeting.with_suffix(".new").write_bytes(bytes(unique))
            meeting.with_suffix(".new").rename(meeting)
        while not meeting.exists():
            time.sleep(0.01)
        unique = UniqueId.from_buffer_copy(meeting.read_bytes())
        self._check(self._library.ncclCommInitRank(ctypes.byref(self._comm), ranks, unique, rank))

    def all_reduce(self, send: Any, receive: Any, stream: Any) -> None:
        """Sum tensors of fp16 over the ranks."""
        self._check(
            self._library.ncclAllReduce(*_buffers(send, receive, send), SUM, self._comm, stream)
        )

    def all_gather(self, send: Any, receive: Any, stream: Any) -> None:
        """Gather tensors of fp16 from the ranks."""
        self._check(self._library.ncclAllGather(*_buffers(send, receive, send), self._comm, stream))

    def reduce_scatter(self, send: Any, receive: Any, stream: Any) -> None:
        """Sum tensors of fp16 over the ranks, a part to each."""
        words = _buffers(send, receive, receive)
        self._check(self._library.ncclReduceScatter(*words, SUM, self._comm, stream))

    def executor_calls(self) -> int:
        """Return the calls that the executor ran; 0 without one."""
        try:
            count = self._library.tuccl_executor_calls
        except AttributeError:
            return 0
        count.restype = ctypes.c_uint64
        return int(count())

    def close(self) -> None:
        """Destroy the communicator."""
        self._check(self._library.ncclCommDestroy(self._comm))

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"NCCL returned {code}")


def _buffers(send: Any, receive: Any, counted: Any) -> tuple[Any, ...]:
    pointers = (ctypes.c_void_p(each.data_ptr()) for each in (send, receive))
    return (*pointers, ctypes.c_size_t(counted.numel()), FLOAT16)


def wrong_results(torch: Any, nccl: Nccl, rank: int, ranks: int) -> int:
    """Return how many of the calls gave wrong elements; sums are of small integers, thus exact."""
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    wrong = 0
    for size_bytes in SIZES_BYTES:
        count = size_bytes // 2
        of_ranks = [(torch.arange(count, device="cuda") * 3 + of) % 11 for of in range(ranks)]
        own = of_ranks[rank].half()
        total = sum(of_ranks).half()
        part = count // ranks
        cases = (
            (nccl.all_reduce, own, total),
            (nccl.all_gather, own[:part], torch.cat([each[:part] for each in of_ranks]).half()),
            (nccl.reduce_scatter, own[: part * ranks], total[rank * part : (rank + 1) * part]),
        )
        for call, send, right in cases:
            received = torch.full_like(right, -1)
            call(send, received, stream)
            torch.cuda.synchronize()
            wrong += not torch.equal(received, right)
    return wrong


def step_us(torch: Any, nccl: Nccl, layers: int, size_bytes: int) -> float:
    """Return the median time of a decode step's replay."""
    rows = max(1, size_bytes // (2 * WIDTH))
    weight = torch.zeros(WIDTH, WIDTH // 8, device="cuda", dtype=torch.half)
    back = torch.zeros(WIDTH // 8, WIDTH, device="cuda", dtype=torch.half)
    state = torch.zeros(rows, WIDTH, device="cuda", dtype=torch.half)
    summed = torch.empty_like(state)

    def step() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for _ in range(layers * 2):
            torch.mm(summed, weight) @ back
            nccl.all_reduce(state, summed, stream)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step()
    times_us = []
    for _ in range(STEPS):
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times_us.append(1e6 * (time.perf_counter() - began))
    return median(times_us[STEPS // 4 :])


def run_rank(given: argparse.Namespace) -> None:
    """Be a rank: print a line of JSON."""
    import torch  # noqa: PLC0415 - the ranks alone need it

    torch.cuda.set_device(given.rank)
    torch.zeros(1, device="cuda")
    nccl = Nccl(given.library, given.rank, given.ranks, given.meeting)
    wrong = wrong_results(torch, nccl, given.rank, given.ranks)
    found_us = step_us(torch, nccl, given.layers, given.size_bytes)
    found = {"step_us": found_us, "calls": nccl.executor_calls(), "wrong": wrong}
    torch.cuda.synchronize()
    nccl.close()
    print(json.dumps(found), flush=True)


def run_job(
    library: str, environment: Mapping[str, str], given: argparse.Namespace
) -> dict[str, float]:
    """Run a process for each GPU; return the longest step, all calls and wrong results."""
    with tempfile.TemporaryDirectory(prefix="tuccl-dlopen-") as folder:
        words = [sys.executable, __file__, str(given.directory), "--library", library]
        words += ["--layers", str(given.layers), "--size", str(given.size_bytes)]
        words += ["--ranks", str(given.ranks), "--meeting", str(Path(folder) / "id")]
        ranks = [
            subprocess.Popen(
                [*words, "--rank", str(rank)], env=dict(environment), stdout=subprocess.PIPE
            )
            for rank in range(given.ranks)
        ]
        try:
            said = [json.loads(each.communicate(timeout=LIMIT_S)[0]) for each in ranks]
        finally:
            for each in ranks:
                each.kill()
    return {
        "step_us": max(each["step_us"] for each in said),
        "calls": sum(each["calls"] for each in said),
        "wrong": sum(each["wrong"] for each in said),
    }


def contenders(directory: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """Return each contender's library and environment by its name."""
    sourced = job_environment(directory, os.environ)
    nccl = str(find_nccl(None, os.environ).path)
    alone = {**sourced, PRELOAD_VARIABLE: without_executor(sourced.get(PRELOAD_VARIABLE, ""))}
    return {
        "stock NCCL": (nccl, dict(without_table(os.environ))),
        "past the executor": (nccl, dict(sourced)),
        CALLING_LIBRARY_NAME: (str(directory / CALLING_LIBRARY_NAME), alone),
    }


def main() -> int:
    """Run all rounds, print a row for each contender, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--size", dest="size_bytes", type=parse_size, default=64 << 10)
    parser.add_argument("--json", action="store_true")
    for name, kind in (("library", str), ("rank", int), ("ranks", int), ("meeting", Path)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        run_rank(given)
        return 0
    given.ranks = count_gpus(2)
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(given.rounds):
        for name, (library, environment) in contenders(given.directory).items():
            found.setdefault(name, []).append(run_job(library, environment, given))
    stock = next(iter(found.values()))
    if given.json:
        print(json.dumps(found, indent=1))
        return 0 if is_right(found) else 1
    print(f"{given.ranks} ranks, {2 * given.layers} all_reduce of {format_size(given.size_bytes)}")
    for name, jobs in found.items():
        ratios = [one["step_us"] / own["step_us"] for one, own in zip(stock, jobs, strict=True)]
        print(
            f"{name:20} {median(job['step_us'] for job in jobs):9.1f} us a step  "
            f"{geometric_mean(ratios):.3f}x ({min(ratios):.3f} to {max(ratios):.3f})  "
            f"{jobs[0]['calls']:.0f} calls of the executor, "
            f"{sum(job['wrong'] for job in jobs):.0f} wrong results"
        )
    return 0 if is_right(found) else 1


def is_right(found: Mapping[str, list[dict[str, float]]]) -> bool:
    """Whether no result is wrong, and the executor runs calls of its library's callers alone."""
    return not any(job["wrong"] for jobs in found.values() for job in jobs) and all(
        bool(job["calls"]) == (name == CALLING_LIBRARY_NAME)
        for name, jobs in found.items()
        for job in jobs
    )


if __name__ == "__main__":
    sys.exit(main())
