"""A rank's session in a PyTorch job: its GPU, process groups, graphs and times.

It uses nothing of TuCCL but the executor's count of calls, if the executor is loaded.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SAMPLES = 9


class Session:
    """This rank in its job; creates process groups on request."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self.rank = rank
        self.ranks: int = job["ranks"]
        self.local_ranks: int = job["local_ranks"]
        self.words: dict[str, Any] = job["words"]
        self.trace: str = job["trace"]
        """File for a trace of PyTorch's profiler; empty: none is made."""
        self._folder = Path(job["folder"])
        self._groups_made = 0
        self.device = torch.device("cuda", rank % job["gpus"])
        torch.cuda.set_device(self.device)

    def join(self) -> None:
        """Create the default process group."""
        store = self._folder / f"store{self._groups_made}"
        self._groups_made += 1
        dist.init_process_group(
            "nccl", init_method=f"file://{store}", rank=self.rank, world_size=self.ranks
        )

    def executor_calls(self) -> int:
        """Calls that TuCCL's executor ran in this process; 0 without it."""
        library = ctypes.CDLL(None)
        if not hasattr(library, "tuccl_executor_calls"):
            return 0
        library.tuccl_executor_calls.restype = ctypes.c_uint64
        return int(library.tuccl_executor_calls())


def versions() -> str:
    """The releases of PyTorch and of its NCCL."""
    return f"torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}"


def captured(act: Callable[[], object], warm_ups: int = 3) -> Any:
    """A CUDA graph of the work of `act`, replayed once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_ups):
            act()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads of torch.distributed may query events meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        act()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def timed_us(act: Callable[[], object], samples: int = SAMPLES) -> float:
    """Median time on the GPU after a barrier of all ranks."""
    times: list[float] = []
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(samples):
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        act()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)
