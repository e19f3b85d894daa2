"""Shows on real GPUs that what `tuccl` measures is what it says.

Runs every operation under NCCL's own choice and under forced configurations, in graphs and without,
in and out of place, in several data types. Holds when

  - NCCL loaded the plugin and was forced as wanted, and what it cannot run was refused by name
  - one forced channel is much slower than many on a large message within a node: the setting
    reaches the GPU
  - every byte of every checked call is right
  - a plugin that NCCL cannot load is noticed

Needs NVIDIA GPUs, an installed NCCL 2.21.5 or newer (PyTorch brings one) and a C compiler. Exit
code 0 when all of it holds, 1 when something does not, 2 when the check cannot run here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from measuring_job import JobError, JobResult, build_libraries  # noqa: E402
from measuring_site import (  # noqa: E402
    Site,
    add_site_arguments,
    check_site_arguments,
    site_of,
)

from tuccl.engines.gpu_sharing import NoMpsError  # noqa: E402
from tuccl.engines.nccl_environment import NoGpuError  # noqa: E402
from tuccl.engines.nccl_library import NcclLibraryError  # noqa: E402

K, M = 1 << 10, 1 << 20
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
SIZES = (4 * K, 64 * K, 1 * M, 16 * M)
FORCED = (
    ("ring", "LL", 2),
    ("ring", "LL128", 8),
    ("ring", "Simple", 16),
    ("ring", "Simple", 1),
    ("tree", "LL", 4),
    ("tree", "Simple", 0),
    ("nvls", "Simple", 0),
    ("pat", "Simple", 0),
)
DATA_TYPES = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
PROOF_BYTES = 64 * M


def steps(largest_bytes: int) -> list[dict[str, Any]]:
    """Everything to run, in order."""
    made: list[dict[str, Any]] = []
    for operation in OPERATIONS:
        for size in SIZES:
            base = {"operation": operation, "size_bytes": size, "check": True}
            made += [
                base,
                base | {"use_graph": False},
                base | {"use_graph": False, "host_clock": True, "check": False},
                base | {"in_place": True},
            ]
            made += [
                base | {"algorithm": algorithm, "protocol": protocol, "nchannels": nchannels}
                for algorithm, protocol, nchannels in FORCED
            ]
    made += [
        {
            "operation": operation,
            "size_bytes": 1 * M,
            "data_type": data_type,
            "check": True,
            "launches": 1,
            "calls": 2,
        }
        for operation in (*OPERATIONS, "broadcast", "reduce", "alltoall")
        for data_type in DATA_TYPES
    ]
    proof = {"operation": "all_reduce", "size_bytes": PROOF_BYTES, "calls": 3}
    made += [
        proof | {"algorithm": "ring", "protocol": "Simple", "nchannels": nchannels}
        for nchannels in (1, 16, 1, 16)
    ]
    return [
        *made,
        {"operation": "all_reduce", "size_bytes": largest_bytes, "calls": 3, "check": True},
    ]


def key(step: dict[str, Any]) -> str:
    """For people: what a step runs."""
    words = [step["operation"], str(step["size_bytes"]), step.get("algorithm", "default")]
    words += [step.get("protocol", ""), f"ch{step['nchannels']}" if step.get("nchannels") else ""]
    words += [step.get("data_type", ""), "in-place" if step.get("in_place") else ""]
    words += ["" if step.get("use_graph", True) else "plain", "host" * step.get("host_clock", 0)]
    return " ".join(word for word in words if word)


def may_be_refused(step: dict[str, Any]) -> bool:
    """Whether NCCL may rule this out on some machine, or always does."""
    algorithm = step.get("algorithm")
    return (
        algorithm in {"nvls", "pat"}
        or (algorithm == "tree" and step["operation"] != "all_reduce")
        or step.get("protocol") == "LL128"
        or step["operation"] == "alltoall"
    )


def judge(
    todo: list[dict[str, Any]], result: JobResult, unloaded: str, nodes: int
) -> dict[str, Any]:
    """The whole verdict as plain values."""
    rows, proof_us = [], {1: [], 16: []}  # type: ignore[var-annotated]
    for step, found in zip(todo, result.steps, strict=True):
        median = statistics.median(found["times_us"]) if "times_us" in found else None
        rows.append({"key": key(step), "median_us": median, **found})
        if step["size_bytes"] == PROOF_BYTES and median is not None and "nchannels" in step:
            proof_us[step["nchannels"]].append(median)
    refused = [(step, row) for step, row in zip(todo, rows, strict=True) if "error" in row]
    checks = {
        "nothing was refused that runs everywhere": all(
            may_be_refused(step) for step, _ in refused
        ),
        "what cannot run was refused by name": any(
            "NCCL refused tree" in row["error"] for _, row in refused
        ),
        "all data is right": not any(row.get("findings") for row in rows),
        "a plugin that cannot be loaded is noticed": "did not load the tuner plugin" in unloaded,
    }
    if nodes == 1:  # Over TCP the number of channels hardly matters.
        proven = all(proof_us.values()) and min(proof_us[1]) > 2 * max(proof_us[16])
        checks["one channel is more than twice as slow as 16 on 64 MB"] = proven
    return {
        "versions": result.versions,
        "open_seconds": result.open_seconds,
        "seconds": result.seconds,
        "rows": rows,
        "unloadable_plugin": unloaded,
        "checks": checks,
        "ok": all(checks.values()),
    }


def run_with_unloadable_plugin(site: Site) -> str:
    """The error of a job whose plugin is no library."""
    broken = site.folder / "broken"
    shutil.copytree(site.libraries, broken)
    (broken / "tuccl" / "runtime" / "libnccl-tuner-tuccl.so").write_text("no library\n")
    step = {"operation": "all_reduce", "size_bytes": 1 * K}
    one_node = replace(site, libraries=broken, ranks=site.gpus or site.ranks, nodes=1, limit_s=60)
    try:
        result = one_node.run([step], {}, controlled=True)
    except JobError as error:
        return str(error)
    return f"not noticed: {result.steps}"


def check(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs both jobs and judges."""
    site = site_of(arguments, folder, build_libraries(folder / "built"), {})
    todo = steps(arguments.largest)
    begin = time.monotonic()
    debug = {"NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}
    result = site.run(todo, debug, controlled=True)
    unloaded = run_with_unloadable_plugin(site)
    verdict = judge(todo, result, unloaded, site.nodes)
    ran = {"ranks": site.ranks, "nccl": site.nccl}
    return verdict | ran | {"total_seconds": time.monotonic() - begin}


def tell(verdict: dict[str, Any]) -> None:
    """The verdict for people."""
    print(f"{verdict['versions']}, {verdict['ranks']} ranks, {verdict['nccl']}")
    print(
        f"opened in {verdict['open_seconds']:.1f} s, all calls in {verdict['seconds']:.1f} s, both "
        f"jobs in {verdict['total_seconds']:.1f} s"
    )
    for row in verdict["rows"]:
        if "error" in row:
            told = f"{row['error']} ({row['ranks_that_failed']} ranks)"
        else:
            times = " ".join(f"{t:.2f}" for t in row["times_us"])
            told = f"{row['median_us']:10.2f} us [{times}] {row['seconds'] * 1e3:.1f} ms"
            told += f", check {row['check_seconds'] * 1e3:.0f} ms" if "check_seconds" in row else ""
            told += f", NCCL's model prefers {row['nccl_prefers']}" if "nccl_prefers" in row else ""
            told += f" WRONG {row['findings']}" if row["findings"] else ""
        print(f"{row['key']:<52} {told}")
    print(f"unloadable plugin: {verdict['unloadable_plugin'][:600]}")
    for name, holds in verdict["checks"].items():
        print(f"{'PASS' if holds else 'FAIL'} {name}")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    add_site_arguments(parser, limit_s=150.0)
    parser.add_argument("--largest", type=int, default=256 * M, help="bytes of the last check")
    parser.add_argument("--json", type=Path, help="write the verdict to this file")
    arguments = parser.parse_args()
    check_site_arguments(parser, arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-check-") as folder:
            verdict = check(arguments, Path(folder))
    except (JobError, NcclLibraryError, NoGpuError, NoMpsError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(verdict, indent=1), encoding="utf-8")
    tell(verdict)
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
