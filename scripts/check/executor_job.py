"""The jobs of check_executor.py and check_ends.py: their options, and how their ranks run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_schedules import Hashes, kernels_of, nodes_of
from measuring_job import (
    ROOT,
    TAKEN_OUT,
    JobError,
    results_of,
    start_ranks,
    wait_for_all,
)
from random_calls import Wanted

from lookup_tables.bundles.bundle import load_bundle
from tuccl.errors import TucclError
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.measuring.engines.nccl_workers import sharing_variables
from tuccl.measuring.workers.laboratory import Laboratory, parse_node_sizes
from tuccl.measuring.workers.seating import appearing_as
from tuccl.quantities import parse_size
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PRELOAD_VARIABLE
from tuccl.schedules.executor_schedules import programs_bundle

STOCK = {PLUGIN_VARIABLE: "none"}
"""Configuration of NCCL without settings and plugin."""
_BUNDLE = "bundle.tuccl"
_OF_ANOTHER = "was not written by scripts/make/write_programs.py: write the folder again"


def executor_variables(library: Path, bundle: Path) -> dict[str, str]:
    """Variables with which a process runs NCCL behind the executor, by this bundle."""
    return {
        **STOCK,
        PRELOAD_VARIABLE: str(library.resolve()),
        BUNDLE_VARIABLE: str(bundle.resolve()),
    }


def node_sizes_of(arguments: argparse.Namespace) -> list[int]:
    """The ranks of each node that the ranks appear on.

    Raises:
        TucclError: There are no such nodes of these GPUs.
    """
    nodes, sizes = parse_node_sizes(arguments.nodes, "--nodes")
    laboratory = Laboratory(nodes, arguments.share_gpus, sizes=sizes)
    ranks = laboratory.ranks(arguments.gpus)
    if not sizes and ranks % nodes:
        raise TucclError(f"{ranks} ranks are not {nodes} equal nodes")
    if ranks > arguments.gpus and not arguments.share_gpus:
        raise TucclError(
            f"--nodes {arguments.nodes} needs {ranks} GPUs, there are {arguments.gpus}"
        )
    return list(laboratory.node_sizes(ranks)) or [ranks]


def add_arguments(parser: argparse.ArgumentParser, nodes: str, limit_s: float) -> None:
    """Add the options of a job; `nodes` and `limit_s` are the defaults."""
    parser.add_argument("--executor", type=Path, required=True, help="libtuccl-executor.so")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first call or trial")
    parser.add_argument("--gpus", type=int, help="use the first N GPUs (default: all)")
    parser.add_argument(
        "--nodes",
        default=nodes,
        metavar="NODES",
        help="let the ranks appear as those of several nodes: their number, or sizes such as 3+1",
    )
    parser.add_argument(
        "--share-gpus",
        action="store_true",
        help="each node has all GPUs, and its ranks take turns on them; needs MPS",
    )
    parser.add_argument("--nccl", help="path of libnccl.so.2 (default: the one that is found)")
    parser.add_argument(
        "--limit", type=float, default=limit_s, help="seconds in which ranks must end"
    )
    parser.add_argument("--json", type=Path, help="write everything to this file")


def find_machine(arguments: argparse.Namespace, least_gpus: int) -> None:
    """Add the GPUs here, the ranks of each node and the variables of ranks that share a GPU.

    Raises:
        TucclError: There are no such nodes of these GPUs, fewer GPUs than `least_gpus`, or NCCL
            takes no two ranks of a node on one.
    """
    least = 1 if arguments.share_gpus else least_gpus
    chosen = None if arguments.share_gpus else arguments.gpus
    arguments.gpus_here = here = chosen or count_gpus(least)
    arguments.gpus = arguments.gpus or here
    arguments.node_sizes = node_sizes_of(arguments)
    arguments.ranks = sum(arguments.node_sizes)
    arguments.sharing = {}
    if max(arguments.node_sizes) > here:
        arguments.sharing = sharing_variables(find_nccl(arguments.nccl), arguments.ranks, here)


def run_job(
    arguments: argparse.Namespace, folder: Path, words: Mapping[str, Any], *, processes: int
) -> list[dict[str, Any]]:
    """Run a job and return the result of each rank.

    Raises:
        JobError: A rank died or hung; the message has its number and the end of its output.
    """
    started = start_job(arguments, folder, words, processes=processes)
    limit: float = arguments.limit + words.get("seconds", 0)
    with heartbeat(folder, arguments.heartbeat):
        ends = wait_for_all(started, time.monotonic() + limit)
    return results_of(folder, ends)


def start_job(
    arguments: argparse.Namespace, folder: Path, words: Mapping[str, Any], *, processes: int
) -> list[subprocess.Popen[bytes]]:
    """Start the processes of a job, one for each rank or one for all, in a new folder."""
    folder.mkdir()
    kernels = write_schedules(arguments, folder)
    job = {
        "nccl": str(find_nccl(arguments.nccl).path.resolve()),
        "ranks": arguments.ranks,
        "gpus": min(arguments.gpus, arguments.gpus_here),
        "one_by_one": bool(arguments.sharing),
        "wanted": asdict(wanted_of(arguments, kernels)),
        "seed": arguments.seed,
        **words,
    }
    environments = [environment_of(arguments, folder, rank) for rank in range(processes)]
    return start_ranks(Path(__file__).with_name("executor_rank.py"), folder, job, environments)


def write_schedules(arguments: argparse.Namespace, folder: Path) -> Hashes:
    """Write a bundle with all schedules that may be chosen to the job's folder.

    Returns:
        Schedules that kernels run; the interpreted ones are of `arguments.programs`.
    """
    kernels, schedules = kernels_of(range(2, arguments.ranks + 1), arguments.node_sizes)
    if arguments.programs is not None:
        schedules += load_bundle(arguments.programs / _BUNDLE).schedules
    (folder / _BUNDLE).write_bytes(programs_bundle(schedules))
    return kernels


def environment_of(arguments: argparse.Namespace, folder: Path, rank: int) -> dict[str, str]:
    """The environment of a rank with the executor preloaded."""
    inherited = {name: value for name, value in os.environ.items() if name not in TAKEN_OUT}
    environment = {**arguments.sharing, **inherited}
    environment |= executor_variables(arguments.executor, folder / _BUNDLE)
    # Tools such as compute-sanitizer also use LD_PRELOAD.
    preloaded = os.environ.get(PRELOAD_VARIABLE, ""), environment[PRELOAD_VARIABLE]
    environment[PRELOAD_VARIABLE] = " ".join(filter(None, preloaded))
    if len(arguments.node_sizes) > 1:
        environment |= appearing_as(len(nodes_of(rank + 1, arguments.node_sizes)) - 1)
    environment["PYTHONPATH"] = str(ROOT)
    environment["PYTHONFAULTHANDLER"] = "1"  # Who crashes in a library says where.
    return environment


@contextmanager
def heartbeat(folder: Path, every_s: float) -> Iterator[None]:
    """Print rank 0's progress at intervals."""
    begin = time.monotonic()
    over = threading.Event()

    def tell() -> None:
        while not over.wait(every_s):
            with suppress(OSError):
                text = (folder / "progress0").read_text(encoding="utf-8")
                print(f"  {time.monotonic() - begin:.0f} s: {text}", flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wanted_of(arguments: argparse.Namespace, kernels: Hashes) -> Wanted:
    """The ranges from which calls are drawn."""
    runners = (
        {} if arguments.programs is None else read_runners(arguments.programs, arguments.ranks)
    )
    return Wanted(
        tuple(arguments.operations),
        tuple(arguments.types),
        tuple(arguments.reductions),
        arguments.ranks,
        parse_size(arguments.largest),
        kernels,
        runners,
    )


def read_runners(folder: Path, gpus: int) -> dict[str, dict[str, list[str]]]:
    """The schedules of write_programs.py, by ranks and operation.

    Raises:
        JobError: write_programs.py did not write the folder, or not for this number of GPUs.
    """
    path = folder / "runners.json"
    try:
        runners: dict[str, dict[str, list[str]]] = json.loads(path.read_text(encoding="utf-8"))
        made_for = [int(ranks) for ranks in runners]
        named = {name for of in runners.values() for names in of.values() for name in names}
    except (ValueError, AttributeError, TypeError) as error:
        raise JobError(f"{path} {_OF_ANOTHER}") from error
    if not named <= {stored.content_hash for stored in load_bundle(folder / _BUNDLE).schedules}:
        raise JobError(f"{path} {_OF_ANOTHER}")
    if gpus not in made_for:
        raise JobError(
            f"{path} has schedules for {made_for} ranks, none for {gpus}: "
            f"scripts/make/write_programs.py FOLDER 2 {gpus} makes them"
        )
    return runners
