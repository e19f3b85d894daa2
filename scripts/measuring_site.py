"""Where and how scripts time NCCL: which ranks, GPUs and NCCL, and the options that say so."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from measuring_job import JobResult, run_job

from tuccl.engines.gpu_sharing import require_mps
from tuccl.engines.nccl_environment import count_gpus
from tuccl.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
from tuccl.engines.nccl_variables import PLUGIN_VARIABLE

STOCK = {PLUGIN_VARIABLE: "none"}
"""NCCL with nothing set, and no plugin."""
Key = tuple[str, int]
"""An operation as nccl-tests names it, and a size in bytes."""
_M = 1 << 20


def step(key: Key, launches: int) -> dict[str, Any]:
    """A step of a job; large messages need fewer calls in a launch to be timed well."""
    operation, size_bytes = key
    calls = 20 if size_bytes <= _M else 10 if size_bytes <= 16 * _M else 4
    return {"operation": operation, "size_bytes": size_bytes, "calls": calls, "launches": launches}


@dataclass(frozen=True)
class Site:
    """Where and how everything is timed."""

    folder: Path
    libraries: Path
    nccl: str
    ranks: int
    nodes: int
    limit_s: float
    call: Mapping[str, Any]
    """Members of every step: data type, in place or not, graph or not, which clock."""
    gpus: int | None = None
    """Fewer than ranks, where those of faked nodes share them."""
    _numbers: Iterator[int] = field(default_factory=count)

    def run(
        self, steps: Sequence[dict[str, Any]], variables: Mapping[str, str], *, controlled: bool
    ) -> JobResult:
        """One job in new processes."""
        return run_job(
            self.folder / f"job{next(self._numbers)}",
            self.ranks,
            [dict(self.call) | step for step in steps],
            {LIBRARY_VARIABLE: self.nccl, **variables},
            libraries=self.libraries,
            controlled=controlled,
            nodes=self.nodes,
            gpus=self.gpus,
            limit_s=self.limit_s,
        )


def add_site_arguments(
    parser: argparse.ArgumentParser, *, fake_nodes: int = 1, limit_s: float = 180.0
) -> None:
    """The options that `site_of` reads, with these defaults."""
    parser.add_argument("--gpus", type=int, help="use the first N GPUs (default: all)")
    parser.add_argument(
        "--fake-nodes", type=int, default=fake_nodes, help="split the GPUs into N nodes"
    )
    parser.add_argument(
        "--share-gpus", action="store_true", help="each of these nodes has all GPUs, through MPS"
    )
    parser.add_argument("--nccl", help="path of libnccl.so.2 (default: the one that is found)")
    parser.add_argument(
        "--limit",
        type=float,
        default=limit_s,
        help="seconds until a job is killed that hangs",
    )


def check_site_arguments(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Leave by the parser where they contradict each other."""
    if arguments.share_gpus and arguments.fake_nodes < 2:
        parser.error("--share-gpus is for --fake-nodes: NCCL refuses two ranks on a GPU of a node")


def site_of(
    arguments: argparse.Namespace,
    folder: Path,
    libraries: Path,
    call: Mapping[str, Any],
) -> Site:
    """The site that the options describe.

    Raises:
        NoGpuError: There are too few GPUs.
        NoMpsError: They are to be shared, and cannot be.
        NcclLibraryError: There is no NCCL that can be used.
    """
    gpus = arguments.gpus or count_gpus(1 if arguments.share_gpus else 2)
    if arguments.share_gpus:
        require_mps(gpus)
    return Site(
        folder=folder,
        libraries=libraries,
        nccl=str(find_nccl(arguments.nccl).path),
        ranks=gpus * (arguments.fake_nodes if arguments.share_gpus else 1),
        nodes=arguments.fake_nodes,
        limit_s=arguments.limit,
        call=call,
        gpus=gpus,
    )
