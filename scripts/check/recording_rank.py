"""Run one rank of check_recording.py with plain torch.distributed, as any job does.

    torchrun --nproc-per-node N recording_rank.py FOLDER STEPS SWITCH

It uses nothing of TuCCL but the recorder that its environment names, which it loads through the
plugin SWITCH (switched_recorder.c), to make calls with and without it in turn. It counts the calls
that it makes with it and writes them, with the times of its parts, to FOLDER/rankN.json.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch_session import captured, versions

K, M = 1 << 10, 1 << 20
BUCKETS_BYTES = (25 * M, 25 * M, 7 * M, 300 * K)
"""Gradients, as DistributedDataParallel reduces them."""
WEIGHTS_BYTES = 8 * M
SMALL_BYTES = 4 * K
SMALL_CALLS = 50
IN_GRAPH_BYTES = 64 * K
CALLS_IN_GRAPH = 20
PAIRS = 50
"""Pairs of blocks of each kind of step, one with the recorder and one without."""


class Loop:
    """The tensors and calls of a rank."""

    def __init__(self, device: Any, ranks: int) -> None:
        self.made: Counter[tuple[str, int, str, bool]] = Counter()
        self.is_recorded = True
        self._ranks = ranks
        self._buckets = [self._zeros(size, torch.float32, device) for size in BUCKETS_BYTES]
        self._part = self._zeros(WEIGHTS_BYTES, torch.bfloat16, device)
        self._whole = self._zeros(WEIGHTS_BYTES * ranks, torch.bfloat16, device)
        self._mask = self._zeros(SMALL_BYTES, torch.uint8, device)
        self._masks = self._zeros(SMALL_BYTES * ranks, torch.uint8, device)
        self._small = self._zeros(SMALL_BYTES, torch.float16, device)
        self._token = self._zeros(IN_GRAPH_BYTES, torch.bfloat16, device)
        self._captures = False

    @staticmethod
    def _zeros(size_bytes: int, kind: Any, device: Any) -> Any:
        return torch.zeros(size_bytes // kind.itemsize, dtype=kind, device=device)

    def _count(self, operation: str, tensor: Any, ranks: int = 1) -> None:
        if not self.is_recorded:
            return
        size_bytes = tensor.numel() * tensor.element_size() * ranks
        kind = str(tensor.dtype).removeprefix("torch.")
        self.made[operation, size_bytes, kind, self._captures] += 1

    def _all_reduce(self, tensor: Any) -> None:
        self._count("all_reduce", tensor)
        dist.all_reduce(tensor)

    def _all_gather(self, part: Any, whole: Any) -> None:
        self._count("all_gather", part, self._ranks)
        dist.all_gather_into_tensor(whole, part)

    def training(self) -> None:
        """A step that reduces gradients, gathers weights and scatters sums."""
        for bucket in self._buckets:
            self._all_reduce(bucket)
        self._all_gather(self._part, self._whole)
        self._all_gather(self._mask, self._masks)
        self._count("reduce_scatter", self._part, self._ranks)
        dist.reduce_scatter_tensor(self._part, self._whole)

    def small(self) -> None:
        """Calls that take the host longer than the GPU."""
        for _ in range(SMALL_CALLS):
            self._all_reduce(self._small)

    def token(self) -> None:
        """The calls of a graph."""
        for _ in range(CALLS_IN_GRAPH):
            self._all_reduce(self._token)
        self._all_gather(self._mask, self._masks)

    def captured(self) -> Any:
        """A CUDA graph of `token`, replayed once."""

        def act() -> None:
            self._captures = torch.cuda.is_current_stream_capturing()
            self.token()

        graph = captured(act, warm_ups=1)
        self._captures = False
        return graph


class Switch:
    """The recorder of this process, with a switch."""

    def __init__(self, path: str) -> None:
        """Have NCCL load the plugin at `path`, and that the recorder of the environment."""
        os.environ["TUCCL_RECORDER"] = os.environ["NCCL_PROFILER_PLUGIN"]
        os.environ["NCCL_PROFILER_PLUGIN"] = path
        self._library = ctypes.CDLL(path)
        self._library.switch_recorder.argtypes = [ctypes.c_bool]
        self._library.switch_recorder.restype = ctypes.c_bool

    def turn(self, loop: Loop, *, on: bool) -> None:
        """Turn the recorder on or off, between calls."""
        if not self._library.switch_recorder(on):
            raise RuntimeError("NCCL has not loaded the recorder; it takes NCCL 2.28 or later")
        loop.is_recorded = on


def paired_us(
    loop: Loop, switch: Switch, act: Callable[[], object], steps: int
) -> list[tuple[float, float]]:
    """Return times of a step with the recorder's events off and on, by pairs of blocks."""
    act()
    in_block = max(1, steps // (2 * PAIRS))
    pairs = []
    for number in range(PAIRS):
        times_us = {}
        for is_on in ((False, True), (True, False))[number % 2]:
            switch.turn(loop, on=is_on)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(in_block):
                act()
            torch.cuda.synchronize()
            times_us[is_on] = (time.perf_counter() - begin) * 1e6 / in_block
        pairs.append((times_us[False], times_us[True]))
    switch.turn(loop, on=True)
    return pairs


def main() -> int:
    """Run the rank; return 0."""
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    switch = Switch(sys.argv[3])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    loop = Loop(device, ranks)
    loop.captured()
    parts = {"training": loop.training, "small": loop.small}
    pairs_us = {part: paired_us(loop, switch, act, steps) for part, act in parts.items()}
    made = [
        {
            "operation": operation,
            "size_bytes": size,
            "datatype": kind,
            "graph": in_graph,
            "calls": n,
        }
        for (operation, size, kind, in_graph), n in sorted(loop.made.items())
    ]
    result = {"made": made, "pairs_us": pairs_us, "versions": versions()}
    (folder / f"rank{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
