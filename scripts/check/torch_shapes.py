"""The part `shapes` of torch_rank.py: communicators of every shape, called in turn and at once.

A rank makes the communicators that parallel trainings make: all ranks, those of its node, its rail
(one rank of each node), and pairs of neighbours. For each it counts who took its calls by their own
word: the executor's counter, and the tuner plugin's lines in NCCL's log (TUCCL_EXPLAIN=1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch_session import Session

K, M = 1 << 10, 1 << 20
SIZES_BYTES = (K, 16 * K, 256 * K, 4 * M, 64 * M)
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
LOG_VARIABLE = "NCCL_DEBUG_FILE"
ENTRY_APPLIED, NO_ENTRY = "): applied", "no entry, NCCL decides"


def families_of(ranks: int, local_ranks: int) -> dict[str, list[list[int]]]:
    """Return the communicators of each shape as ranks; every rank is in one of each shape."""
    everyone = list(range(ranks))
    nodes = [everyone[first : first + local_ranks] for first in range(0, ranks, local_ranks)]
    families = {"whole": [everyone]}
    if len(nodes) > 1 and local_ranks > 1:
        families["node"] = nodes
        families["rail"] = [[node[place] for node in nodes] for place in range(local_ranks)]
    if ranks % 2 == 0 and ranks > 2:
        families["pairs"] = [[rank, rank + 1] for rank in range(0, ranks, 2)]
        families["pairs across"] = [
            sorted((rank, (rank + 1) % ranks)) for rank in range(1, ranks, 2)
        ]
    return families


class Member:
    """This rank in one communicator of a shape."""

    def __init__(self, job: Session, members: list[int], group: Any) -> None:
        self._rank, self._device = job.rank, job.device
        self._members = members
        self._group = group
        self.stream = torch.cuda.Stream(job.device)

    def call(self, operation: str, size_bytes: int) -> Callable[[], bool]:
        """Start a call; the result says, once the GPU is done, whether the numbers are right."""
        ranks, count = len(self._members), max(1, size_bytes // 2)
        part = max(1, count // ranks)
        own = float(self._members.index(self._rank) + 1)
        total = float(ranks * (ranks + 1) // 2)
        if operation == "all_reduce":
            tensor = self._filled(count, own)
            dist.all_reduce(tensor, group=self._group)
            return lambda: bool((tensor == total).all())
        if operation == "reduce_scatter":
            source, tensor = self._filled(part * ranks, own), self._filled(part, 0.0)
            dist.reduce_scatter_tensor(tensor, source, group=self._group)
            return lambda: bool((tensor == total).all())
        source, tensor = self._filled(part, own), self._filled(part * ranks, 0.0)
        dist.all_gather_into_tensor(tensor, source, group=self._group)
        wanted = torch.arange(1, ranks + 1, device=self._device).half().repeat_interleave(part)
        return lambda: bool((tensor == wanted).all())

    def _filled(self, count: int, value: float) -> Any:
        return torch.full((count,), value, dtype=torch.float16, device=self._device)


def shapes(job: Session) -> dict[str, Any]:
    """Call the communicators of all shapes in turn, then at once; count who took the calls."""
    job.join()
    members = {}
    for family, communicators in families_of(job.ranks, job.local_ranks).items():
        groups = [dist.new_group(ranks) for ranks in communicators]
        own = next(place for place, ranks in enumerate(communicators) if job.rank in ranks)
        members[family] = Member(job, communicators[own], groups[own])
    found: dict[str, Any] = {"wrong_calls": [], "shapes": {}}
    for family, member in members.items():
        executor, logged = job.executor_calls(), _log_size()
        for operation in OPERATIONS:
            for size_bytes in SIZES_BYTES:
                is_right = member.call(operation, size_bytes)
                torch.cuda.synchronize()
                if not is_right():
                    found["wrong_calls"].append(f"{family} {operation} {size_bytes}")
        told = _log_since(logged)
        found["shapes"][family] = {
            "calls": len(OPERATIONS) * len(SIZES_BYTES),
            "executor": job.executor_calls() - executor,
            "plugin": sum(ENTRY_APPLIED in line for line in told),
            "no_entry": sum(NO_ENTRY in line for line in told),
        }
    found["rounds"] = job.words["rounds"]
    sizes = [size for size in SIZES_BYTES if size <= job.words["at_once_bytes"]]
    for number in range(found["rounds"]):
        found["wrong_calls"] += _at_once(members, sizes, number)
    found["wrong"] = len(found["wrong_calls"])
    return found


def _at_once(members: dict[str, Member], sizes: Sequence[int], number: int) -> list[str]:
    """Call all communicators, each on its stream; return the calls with wrong results."""
    checks = {}
    for place, (family, member) in enumerate(members.items()):
        with torch.cuda.stream(member.stream):
            operation = OPERATIONS[(number + place) % len(OPERATIONS)]
            size_bytes = sizes[number % len(sizes)]
            what = f"{family} {operation} {size_bytes} at once"
            checks[what] = member.call(operation, size_bytes)
    torch.cuda.synchronize()
    return [what for what, is_right in checks.items() if not is_right()]


def _log_size() -> int:
    path = os.environ.get(LOG_VARIABLE)
    return Path(path).stat().st_size if path and Path(path).exists() else 0


def _log_since(size_bytes: int) -> list[str]:
    path = os.environ.get(LOG_VARIABLE)
    if not path or not Path(path).exists():
        return []
    with Path(path).open("rb") as log:
        log.seek(size_bytes)
        return log.read().decode(errors="replace").splitlines()
