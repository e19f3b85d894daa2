"""Run one rank of check_executor_torch.py with plain torch.distributed, as any job does.

torch_rank.py JOB.json RANK
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from rank_program import run_rank
from torch import nn
from torch_session import Session, captured, timed_us, versions
from torch_shapes import shapes
from torch_training import STEPS, TRAININGS

HIDDEN, MLP, KEY_VALUE = 8192, 28672, 1024
"""Dimensions of a model with 70 billion parameters."""


def decoding(job: Session) -> dict[str, Any]:
    """Time per token of a tensor-parallel decode loop in one graph, with and without its weights.

    Projections and MLP of each layer with weights of their own; no attention over a cache.
    """
    job.join()
    layers, part = job.words["layers"], job.ranks
    state = torch.zeros(1, HIDDEN, dtype=torch.float16, device=job.device)

    def reductions() -> None:
        for _ in range(2 * layers):
            dist.all_reduce(state)

    found = {"reductions_us": timed_us(captured(reductions).replay)}
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

    found["token_us"] = timed_us(captured(token).replay)
    return found


def streams(job: Session) -> dict[str, Any]:
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

    graph = captured(refilled)
    for _ in range(job.words["rounds"]):
        graph.replay()
        unserved = torch.full((333,), job.rank + 1, device=job.device)
        dist.all_reduce(unserved, group=groups[1])
        torch.cuda.synchronize()
        wrong += int((kept != total).any()) + int((unserved != total).any())
    return {"rounds": job.words["rounds"], "wrong": wrong}


def groups_anew(job: Session) -> dict[str, Any]:
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


def steps(job: Session) -> dict[str, Any]:
    """Median step of each training whose ranks need one node only, one after the other."""
    times_us = {}
    for name in STEPS:
        times_us[name] = TRAININGS[name](job)["step_us"]
        dist.destroy_process_group()
        torch.cuda.empty_cache()
    return {"steps_us": times_us}


PARTS: dict[str, Callable[[Session], dict[str, Any]]] = {
    **TRAININGS,
    "decoding": decoding,
    "streams": streams,
    "groups": groups_anew,
    "steps": steps,
    "shapes": shapes,
}


def run_part(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """Run the job's part; a failure leaves its traceback in the rank's output."""
    # A rank that hangs says where before it is killed.
    faulthandler.dump_traceback_later(0.9 * job["limit_s"])
    session = Session(job, rank)
    begin = time.monotonic()
    result = PARTS[job["part"]](session)
    return result | {
        "part_seconds": time.monotonic() - begin,
        "executor_calls": session.executor_calls(),
        "versions": versions(),
    }


if __name__ == "__main__":
    run_rank(run_part)
    if dist.is_initialized():
        dist.destroy_process_group()
