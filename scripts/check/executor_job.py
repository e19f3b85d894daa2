"""Start ranks of check_executor.py, watch them and collect their results."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_schedules import Hashes, kernels_of, nodes_of
from measuring_job import TAKEN_OUT, JobError, wait_for_all
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

ROOT = Path(__file__).resolve().parents[2]
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


def gpus_here(arguments: argparse.Namespace, least: int) -> int:
    """Return the number of GPUs that the ranks may use.

    Raises:
        MeasurementError: They are fewer than `least`, or 1 where ranks share them.
    """
    if arguments.share_gpus:
        return count_gpus(1)
    return arguments.gpus or count_gpus(least)


def variables_of_sharing(arguments: argparse.Namespace, gpus: int) -> dict[str, str]:
    """Return the variables of ranks where those of one node share GPUs; else none.

    Args:
        arguments: The command line, with `node_sizes`.
        gpus: Number of GPUs of this host.

    Raises:
        TucclError: NCCL cannot do that.
    """
    if max(arguments.node_sizes) <= gpus:
        return {}
    return sharing_variables(find_nccl(arguments.nccl), sum(arguments.node_sizes), gpus)


def run_job(
    arguments: argparse.Namespace, folder: Path, words: Mapping[str, Any], *, processes: int
) -> list[dict[str, Any]]:
    """Run a job and return the result of each rank.

    Raises:
        JobError: A rank died or hung; the message has its number and the end of its output.
    """
    write_job(arguments, folder, words)
    environments = [environment_of(arguments, folder, rank) for rank in range(processes)]
    started = start(folder, environments)
    limit: float = arguments.limit + words.get("seconds", 0)
    with heartbeat(folder, arguments.heartbeat):
        ends = wait_for_all(started, time.monotonic() + limit)
    return collect(folder, ends)


def write_job(arguments: argparse.Namespace, folder: Path, words: Mapping[str, Any]) -> None:
    """Make the folder of a job, with its schedules and what its ranks are told."""
    folder.mkdir()
    kernels = write_schedules(arguments, folder)
    job = {
        "folder": str(folder),
        "nccl": str(find_nccl(arguments.nccl).path.resolve()),
        "ranks": arguments.ranks,
        "gpus": min(arguments.gpus, arguments.gpus_here),
        "one_by_one": bool(arguments.sharing),
        "wanted": asdict(wanted_of(arguments, kernels)),
        "seed": arguments.seed,
        **words,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")


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


def start(folder: Path, environments: Sequence[Mapping[str, str]]) -> list[subprocess.Popen[bytes]]:
    """Start a process for each environment: one for each rank, or one for all."""
    command = [
        sys.executable,
        str(ROOT / "scripts" / "check" / "executor_rank.py"),
        str(folder / "job.json"),
    ]
    started = []
    for rank, environment in enumerate(environments):
        with (folder / f"out{rank}").open("wb") as out:
            started.append(
                subprocess.Popen(
                    [*command, str(rank)], env=environment, stdout=out, stderr=subprocess.STDOUT
                )
            )
    return started


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


def collect(folder: Path, ends: Sequence[str]) -> list[dict[str, Any]]:
    """Results of all ranks; a failure that a rank found outweighs how other ranks ended.

    Raises:
        JobError: A rank has no result, and no rank found a failure.
    """
    results, missing = [], []
    for rank, end in enumerate(ends):
        path = folder / f"result{rank}.json"
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        if result is None or "error" in result:
            output = (folder / f"out{rank}").read_text(encoding="utf-8", errors="replace")
            progress = folder / f"progress{rank}"
            last = progress.read_text(encoding="utf-8") if progress.exists() else "nothing"
            why = f"{end} after {last}" if result is None else result["error"]
            missing.append(f"rank {rank}: {why}; its output ends: {output[-800:]!r}")
        else:
            results.append(result)
    if missing and not any(result["failures"] for result in results):
        raise JobError("\n".join(missing))
    return results


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
