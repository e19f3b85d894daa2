"""Training of a small transformer by torch_rank.py, as jobs divide it among their ranks.

`training` replicates the model (DistributedDataParallel), `sharded` shards it over all ranks
(fully_shard), `mesh` shards it within a node and replicates it along rails, and
`tensor_parallel` divides each layer within a node and shards the result along rails. All ranks of
one part of the data see the same tokens; losses are means over all of them.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch_session import Session

VOCABULARY, BATCH = 1024, 8
LAYERS, HEADS = 4, 8
WARM_UP_STEPS = 20
"""Steps that no time is taken of: allocations and connections are made in them."""


TRACED_STEPS = 5
"""Steps that a trace has."""


def transformer(job: Session) -> Any:
    """A transformer whose first weights are the same on all ranks."""
    torch.manual_seed(1)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    width = job.words["width"]
    layer = nn.TransformerEncoderLayer(width, HEADS, 4 * width, dropout=0.0, batch_first=True)
    return nn.Sequential(
        nn.Embedding(VOCABULARY, width),
        nn.TransformerEncoder(layer, LAYERS),
        nn.Linear(width, VOCABULARY),
    ).to(job.device)


def train(job: Session, model: Any, part: int) -> dict[str, Any]:
    """Train the model; return the loss of each step and the median time of a step.

    Args:
        job: This rank.
        model: The model, divided among the ranks.
        part: The part of the data that this rank sees.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator(device="cpu").manual_seed(100 + part)
    losses, times_us = [], []
    begin = time.monotonic()
    profiler = profiler_of(job)
    for step in range(job.words["steps"]):
        start = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
        # Each token is the previous one plus 7, which the model can learn.
        tokens = (
            (start + 7 * torch.arange(job.words["sequence"] + 1))
            .remainder(VOCABULARY)
            .to(job.device)
        )
        begin_step = time.monotonic()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step >= WARM_UP_STEPS:
            times_us.append((time.monotonic() - begin_step) * 1e6)
        losses.append(loss.detach())
        if profiler is not None:
            profiler.step()
    if profiler is not None:
        profiler.stop()
    values = torch.stack(losses).tolist()
    step_us = statistics.median(times_us) if times_us else 0.0
    return {"losses": values, "step_us": step_us, "seconds": time.monotonic() - begin}


def profiler_of(job: Session) -> Any:
    """PyTorch's profiler of the last steps of rank 0, started; None: no trace is wanted."""
    if not job.trace or job.rank != 0:
        return None
    wait = max(1, job.words["steps"] - TRACED_STEPS - 1)
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],
        schedule=torch.profiler.schedule(wait=wait, warmup=1, active=TRACED_STEPS),
        record_shapes=True,
        on_trace_ready=lambda done: done.export_chrome_trace(job.trace),
    )
    profiler.start()
    return profiler


def replicated(job: Session) -> dict[str, Any]:
    """DistributedDataParallel: all_reduce of gradients over all ranks."""
    job.join()
    device = job.device.index
    model = nn.parallel.DistributedDataParallel(transformer(job), device_ids=[device])
    return train(job, model, job.rank)


def sharded(job: Session) -> dict[str, Any]:
    """Weights sharded over all ranks: all_gather and reduce_scatter of each layer."""
    job.join()
    return train(job, shard(transformer(job), None), job.rank)


def mesh(job: Session) -> dict[str, Any]:
    """Weights sharded within a node, gradients summed along rails."""
    job.join()
    return train(job, shard(transformer(job), node_mesh(job, "replicate", "shard")), job.rank)


def tensor_parallel(job: Session) -> dict[str, Any]:
    """Each layer divided within a node, its weights sharded along rails."""
    job.join()
    ranks = node_mesh(job, "data", "tensor")
    model = transformer(job)
    for layer in model[1].layers:
        halves = {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()}
        parallelize_module(layer, ranks["tensor"], halves)
    return train(job, shard(model, ranks["data"]), job.rank // job.local_ranks)


def node_mesh(job: Session, between: str, within: str) -> Any:
    """The ranks as nodes times ranks of a node."""
    shape = (job.ranks // job.local_ranks, job.local_ranks)
    return init_device_mesh("cuda", shape, mesh_dim_names=(between, within))


def shard(model: Any, ranks: Any) -> Any:
    """Shard each layer of the model, then the rest, over a mesh; None: over all ranks."""
    words = {} if ranks is None else {"mesh": ranks}
    for layer in model[1].layers:
        fully_shard(layer, **words)
    fully_shard(model, **words)
    return model


TRAININGS = {
    "training": replicated,
    "sharded": sharded,
    "mesh": mesh,
    "tensor_parallel": tensor_parallel,
}
STEPS = ("training", "sharded", "tensor_parallel")
"""Trainings of the part `steps`: on one node, `mesh` is `sharded`."""
