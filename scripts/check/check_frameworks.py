#!/usr/bin/env python3
"""Call NCCL by CuPy and by JAX with a table: results are right, and the executor counts the calls.

    check_frameworks.py DIR [--frameworks cupy,jax]

DIR is a directory of `tuccl ship DIR --to dlopen` for the GPUs of this host. CuPy runs a process
for each GPU, JAX one for all; each without and with the table. Sums, gathers and scattered sums of
2 KB to 32 MB of fp16 are compared with NumPy's. Needs the frameworks. Exit code 0: results are
right, and with the table, and only so, the executor counted calls; 1: they are not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.runtime.executor_library import PRELOAD_VARIABLE
from tuccl.shipping.bench.surroundings import without_table
from tuccl.shipping.sourcing import job_environment

LIMIT_S = 150.0
"""Time limit of a job's processes."""
COUNTS = tuple(1 << exponent for exponent in (10, 14, 18, 22, 24))
"""Elements of fp16 at each rank."""
Halves = np.ndarray[Any, np.dtype[np.float16]]


def of_ranks(count: int, ranks: int) -> list[Halves]:
    """Return what each rank sends: integers, of which every sum is exact in fp16."""
    return [(np.arange(count) % 251 + rank).astype(np.float16) for rank in range(ranks)]


def differing(got: Any, right: Halves) -> int:
    """Return how many elements differ."""
    return int((np.asarray(got).reshape(-1) != right).sum())


def run_cupy(rank: int, ranks: int, meeting: Path) -> int:
    """Be a rank of CuPy's; return the number of wrong elements."""
    import cupy  # noqa: PLC0415 - its ranks alone need it
    from cupy.cuda import nccl  # noqa: PLC0415

    cupy.cuda.Device(rank).use()
    if rank == 0:
        meeting.with_suffix(".new").write_bytes(nccl.get_unique_id())
        meeting.with_suffix(".new").rename(meeting)
    while not meeting.exists():
        time.sleep(0.01)
    communicator = nccl.NcclCommunicator(ranks, meeting.read_bytes(), rank)
    stream = cupy.cuda.Stream(non_blocking=True)
    wrong = 0
    for count in COUNTS:
        sent = of_ranks(count, ranks)
        total: Halves = np.sum(sent, axis=0, dtype=np.float16)
        part = count // ranks
        kind, words = nccl.NCCL_FLOAT16, (nccl.NCCL_FLOAT16, nccl.NCCL_SUM, stream.ptr)
        cases = (
            (communicator.allReduce, count, words, total),
            (communicator.allGather, count, (kind, stream.ptr), np.concatenate(sent)),
            (communicator.reduceScatter, part, words, total[rank * part :][:part]),
        )
        for call, counted, others, right in cases:
            with stream:
                send, received = cupy.asarray(sent[rank]), cupy.zeros(right.size, cupy.float16)
            call(send.data.ptr, received.data.ptr, counted, *others)
            stream.synchronize()
            wrong += differing(received.get(), right)
    communicator.destroy()
    return wrong


def run_jax() -> int:
    """Be JAX's process of all GPUs; return the number of wrong elements."""
    import jax  # noqa: PLC0415 - its process alone needs it
    from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: PLC0415

    devices = jax.devices()
    mesh, spec = Mesh(np.array(devices), ("rank",)), PartitionSpec("rank")

    def compiled(call: Any) -> Any:
        return jax.jit(jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec))

    summed = compiled(lambda each: jax.lax.psum(each, "rank"))
    gathered = compiled(lambda each: jax.lax.all_gather(each, "rank", tiled=True))
    scattered = compiled(lambda each: jax.lax.psum_scatter(each, "rank", tiled=True))
    wrong = 0
    for count in COUNTS:
        sent = of_ranks(count, len(devices))
        total: Halves = np.sum(sent, axis=0, dtype=np.float16)
        flat = jax.device_put(np.concatenate(sent), NamedSharding(mesh, spec))
        wrong += differing(summed(flat), np.tile(total, len(devices)))
        wrong += differing(gathered(flat), np.tile(np.concatenate(sent), len(devices)))
        wrong += differing(scattered(flat), total)
    return wrong


def environment_of(directory: Path | None, framework: str) -> dict[str, str]:
    """Return a job's environment: stock NCCL's, or with the table as executor.md says."""
    if directory is None:
        return dict(without_table(os.environ))
    found = dict(job_environment(directory, os.environ))
    if framework == "jax":
        library = directory / "dlopen" / "libnccl.so.2"
        found[PRELOAD_VARIABLE] = f"{library} {found.get(PRELOAD_VARIABLE, '')}"
    return found


def run_job(framework: str, environment: Mapping[str, str], ranks: int) -> tuple[int, int]:
    """Run a job; return its wrong elements and the calls that the executor counted."""
    with tempfile.TemporaryDirectory(prefix="tuccl-frameworks-") as folder:
        meeting, metrics = Path(folder) / "id", Path(folder) / "metrics"
        metrics.mkdir()
        words = [sys.executable, __file__, folder, "--frameworks", framework]
        processes = 1 if framework == "jax" else ranks
        jobs = [
            subprocess.Popen(
                [*words, "--rank", f"{rank},{ranks},{meeting}"],
                env={**environment, "TUCCL_METRICS": str(metrics)},
                stdout=subprocess.PIPE,
            )
            for rank in range(processes)
        ]
        try:
            wrong = sum(json.loads(job.communicate(timeout=LIMIT_S)[0]) for job in jobs)
        finally:
            for job in jobs:
                job.kill()
        text = "".join(path.read_text(encoding="utf-8") for path in metrics.iterdir())
    counted = re.findall(r'^tuccl_calls_total\{.*path="schedule"\} (\d+)$', text, re.MULTILINE)
    return wrong, sum(map(int, counted))


def main() -> int:
    """Run each framework without and with the table, print a row for each, return the code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--frameworks", default="cupy,jax")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank, ranks, meeting = given.rank.split(",")
        is_jax = given.frameworks == "jax"
        print(run_jax() if is_jax else run_cupy(int(rank), int(ranks), Path(meeting)), flush=True)
        return 0
    ranks, is_right = count_gpus(2), True
    for framework in given.frameworks.split(","):
        for directory in (None, given.directory):
            wrong, counted = run_job(framework, environment_of(directory, framework), ranks)
            name = "stock NCCL" if directory is None else "with the table"
            print(f"{framework:6} {name:16} {wrong} wrong elements, {counted} calls of schedules")
            is_right &= not wrong and bool(counted) == (directory is not None)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
