"""Run one rank of check_executor_torch.py with plain torch.distributed, as any job does.

    torch_rank.py JOB.json RANK

It uses nothing of TuCCL but the executor's count of calls, if the executor is loaded.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch_shapes import shapes
from torch_training import TRAININGS

SAMPLES = 9
HIDDEN, MLP, KEY_VALUE = 8192, 28672, 1024
"""Dimensions of a model with 70 billion parameters."""


class Job:
    """This rank in its job; creates process groups on request."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self.rank = rank
        self.ranks: int = job["ranks"]
        self.local_ranks: int = job["local_ranks"]
        self.words: dict[str, Any] = job["words"]
        self.trace: str = job["trace"]
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

    def zeros(self, size_bytes: int) -> Any:
        """A tensor of zeros as 16-bit floats, which sums do not change."""
        return torch.zeros(size_bytes // 2, dtype=torch.float16, device=self.device)

    def executor_calls(self) -> int:
        """Calls that TuCCL's executor ran in this process; 0 without it."""
        library = ctypes.CDLL(None)
        if not hasattr(library, "tuccl_executor_calls"):
            return 0
        library.tuccl_executor_calls.restype = ctypes.c_uint64
        return int(library.tuccl_executor_calls())


def captured(job: Job, act: Callable[[], object]) -> Any:
    """A CUDA graph of the work of `act`."""
    side = torch.cuda.Stream(job.device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
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


def decoding(job: Job) -> dict[str, Any]:
    """Time per token of a tensor-parallel decode loop in one graph, with and without its weights.

    Projections and MLP of each layer with weights of their own; no attention over a cache.
    """
    job.join()
    layers, part = job.words["layers"], job.ranks
    state = torch.zeros(1, HIDDEN, dtype=torch.float16, device=job.device)

    def reductions() -> None:
        for _ in range(2 * layers):
            dist.all_reduce(state)

    found = {"reductions_us": timed_us(captured(job, reductions).replay)}
    shapes = (
        (HIDDEN, (HIDDEN + 2 * KEY_VALUE) // part),
        (HIDDEN // part, HIDDEN),
        (HIDDEN, 2 * MLP // part),
        (MLP // part, HIDDEN),
    )
    weights = [
        [torch.zeros(shape, dtype=torch.float16, device=job.device) for shape in shapes]
        for _ in range(layers)
    ]

    def token() -> None:
        hidden = state
        for query, out, up, down in weights:
            mixed = (hidden @ query)[:, : HIDDEN // part] @ out
            dist.all_reduce(mixed)
            hidden = hidden + mixed
            gate, value = (hidden @ up).chunk(2, dim=1)
            mixed = (nn.functional.silu(gate) * value) @ down
            dist.all_reduce(mixed)
            hidden = hidden + mixed

    found["token_us"] = timed_us(captured(job, token).replay)
    return found


def streams(job: Job) -> dict[str, Any]:
    """Check sums of two groups on three concurrent streams, eagerly and in graphs."""
    job.join()
    groups = [None, dist.new_group(list(range(job.ranks)))]
    wrong = 0
    side = [torch.cuda.Stream(job.device) for _ in range(3)]
    total = job.ranks * (job.ranks + 1) // 2
    for number in range(job.words["rounds"]):
        count = (1, 1000, 4099, 65536, 1 << 20)[number % 5]
        tensors = []
        for i, stream in enumerate(side):
            with torch.cuda.stream(stream):
                tensor = torch.full((count + i,), job.rank + 1, device=job.device).int()
                dist.all_reduce(tensor, group=groups[(number + i) % 2])
                tensors.append(tensor)
        torch.cuda.synchronize()
        wrong += sum(int((tensor != total).any()) for tensor in tensors)
    kept = torch.zeros(5000, dtype=torch.int32, device=job.device)

    def refilled() -> None:
        kept.fill_(job.rank + 1)
        dist.all_reduce(kept)

    graph = captured(job, refilled)
    for _ in range(job.words["rounds"]):
        graph.replay()
        unserved = torch.full((333,), job.rank + 1, device=job.device)
        dist.all_reduce(unserved, group=groups[1])
        torch.cuda.synchronize()
        wrong += int((kept != total).any()) + int((unserved != total).any())
    return {"rounds": job.words["rounds"], "wrong": wrong}


def groups_anew(job: Job) -> dict[str, Any]:
    """Create, use and destroy process groups several times."""
    wrong = 0
    total = job.ranks * (job.ranks + 1) // 2
    for _ in range(job.words["groups"]):
        job.join()
        tensor = torch.full((4096,), job.rank + 1, device=job.device)
        dist.all_reduce(tensor)
        wrong += int((tensor != total).any())
        dist.destroy_process_group()
    return {"groups": job.words["groups"], "wrong": wrong}


PARTS: dict[str, Callable[[Job], dict[str, Any]]] = {
    **TRAININGS,
    "decoding": decoding,
    "streams": streams,
    "groups": groups_anew,
    "shapes": shapes,
}


def main() -> int:
    """Run the rank; return 0. A failure leaves its traceback in the rank's output."""
    words = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = int(sys.argv[2])
    # A rank that hangs says where before it is killed.
    faulthandler.dump_traceback_later(0.9 * words["limit_s"])
    job = Job(words, rank)
    begin = time.monotonic()
    result = PARTS[words["part"]](job)
    result["part_seconds"] = time.monotonic() - begin
    result["executor_calls"] = job.executor_calls()
    result["versions"] = f"torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}"
    path = Path(words["folder"]) / f"result{rank}.json"
    path.write_text(json.dumps(result), encoding="utf-8")
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
