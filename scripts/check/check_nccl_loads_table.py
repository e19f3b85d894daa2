"""Check on GPUs that a stock NCCL follows a TuCCL table, and is unchanged without one.

Four runs of the same calls, one process per GPU:
  default   no plugin: what NCCL chooses by itself
  tuned     a table that deliberately differs from that: NCCL's TUNING log must show the table
  damaged   the same bundle with one bit flipped: the defaults, and one warning per process
  wrong sum TUCCL_BUNDLE_CRC of another bundle: no communicator starts, and the message names both

Needs NVIDIA GPUs, an installed NCCL 2.21 or newer (PyTorch brings one), and a C compiler unless the
plugin is installed. Exit code 0: all of it holds; 1: something does not; 2: the check cannot
run on this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from nccl_tuning_log import (  # noqa: E402
    MIN_TRAFFIC_BYTES,
    Choice,
    attained_channels,
    tuccl_warnings,
    tuning_lines,
)

from lookup_tables.bundle_layout import bundle_crc  # noqa: E402
from lookup_tables.bundles.bundle_writer import bundle_bytes  # noqa: E402
from lookup_tables.lookup import key_order  # noqa: E402
from lookup_tables.table import (  # noqa: E402
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    Operation,
    Shape,
    Table,
)
from tuccl.errors import HostError  # noqa: E402
from tuccl.runtime import plugin_path  # noqa: E402

RUN_LIMIT_S = 75
LEAST_KEYS = 12
K, M = 1 << 10, 1 << 20
# Operation, size, algorithm, protocol, channels: none of it what a model of bandwidth would pick.
WANTED = (
    ("all_reduce", 1 * K, "ring", "LL128", 1),
    ("all_reduce", 16 * K, "tree", "Simple", 1),
    ("all_reduce", 64 * K, "ring", "LL", 4),
    ("all_reduce", 256 * K, "tree", "LL128", 3),
    ("all_reduce", 1 * M, "ring", "Simple", 2),
    ("all_reduce", 4 * M, "ring", "LL128", 5),
    ("all_reduce", 16 * M, "tree", "Simple", 4),
    ("all_gather", 16 * K, "ring", "LL", 2),
    ("all_gather", 64 * K, "ring", "Simple", 2),
    ("all_gather", 1 * M, "ring", "LL128", 3),
    ("all_gather", 4 * M, "ring", "LL", 5),
    ("all_gather", 16 * M, "ring", "Simple", 4),
    ("reduce_scatter", 16 * K, "ring", "LL128", 1),
    ("reduce_scatter", 64 * K, "ring", "LL", 3),
    ("reduce_scatter", 1 * M, "ring", "Simple", 2),
    ("reduce_scatter", 4 * M, "ring", "LL128", 4),
    ("reduce_scatter", 16 * M, "ring", "LL", 5),
)


class CannotRunError(Exception):
    """A requirement of this check is missing."""


@dataclass(frozen=True)
class Run:
    """Logs and results of the processes of one run."""

    logs: tuple[str, ...]
    """NCCL's log of each rank."""
    results: tuple[dict[str, Any], ...]

    def errors(self) -> list[str]:
        """Errors by rank."""
        return [f"rank {i}: {r['error']}" for i, r in enumerate(self.results) if "error" in r]


def wanted_keys(ranks: int) -> list[tuple[str, int, BuiltinConfig]]:
    """Keys whose channel count a communicator of this size attains in any release."""
    keys = []
    for operation, size, algorithm, protocol, channels in WANTED:
        attained = {
            attained_channels(operation, protocol, size, ranks, channels, min_traffic_bytes=least)
            for least in MIN_TRAFFIC_BYTES
        }
        if attained == {channels}:
            config = BuiltinConfig(NcclAlgorithm(algorithm), NcclProtocol(protocol), channels)
            keys.append((operation, size, config))
    return keys


def make_table(ranks: int, gpu_models: tuple[str, ...]) -> Table:
    """One entry per key, each for sizes from its own to just below twice that."""
    entries = [
        Entry(
            key=Key(Operation(operation), size, 2 * size - 1, Shape(ranks, 1, ranks), "check"),
            tuned_bytes=size,
            builtin=config,
            schedule=None,
            time_us=1.0,
            builtin_time_us=1.0,
            default_time_us=1.0,
            samples=0,
            spread=0.0,
            tuned_at="",
        )
        for operation, size, config in wanted_keys(ranks)
    ]
    ordered = tuple(sorted(entries, key=lambda entry: key_order(entry.key)))
    return Table("check", "check", gpu_models, ordered)


def gpus_here() -> int:
    """NVIDIA GPUs that nvidia-smi lists, or those of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip()])
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotRunError(f"nvidia-smi lists no GPUs ({error}); say --gpus N") from error
    return listed.stdout.count("GPU ")


def gpu_models_here() -> tuple[str, ...]:
    """PCI vendor:device of NVIDIA's GPUs in sysfs; the plugin compares them with the table's."""
    models = set()
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            kind, vendor, model = (
                int((device / name).read_text(), 16) for name in ("class", "vendor", "device")
            )
        except (OSError, ValueError):
            continue
        if vendor == 0x10DE and kind >> 16 in (0x03, 0x12):
            models.add(f"{vendor:04x}:{model:04x}")
    return tuple(sorted(models))


def find_nccl(given: str | None) -> str:
    """The NCCL of --nccl, of the installed wheel, or of the loader's search path."""
    if given is not None:
        return given
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(folder) / "lib" / "libnccl.so.2"
        if candidate.exists():
            return str(candidate)
    return "libnccl.so.2"


def find_plugin(given: str | None, folder: Path) -> Path:
    """The plugin of --plugin, of this installation, or compiled from this checkout."""
    if given is not None:
        return Path(given).resolve()
    try:
        return plugin_path()
    except HostError:
        pass
    output = folder / "libnccl-tuner-tuccl.so"
    command = [str(ROOT / "scripts" / "make" / "build_plugin.sh"), str(output)]
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotRunError(f"the plugin does not compile ({error}); say --plugin") from error
    return output


def run_job(
    folder: Path, nccl: str, ranks: int, communicators: int, variables: dict[str, str]
) -> Run:
    """Start one process per GPU and wait for all of them."""
    folder.mkdir()
    calls = [[operation, size] for operation, size, _ in wanted_keys(ranks)]
    job = {
        "ranks": ranks,
        "folder": str(folder),
        "nccl": nccl,
        "calls": calls,
        "communicators": communicators,
    }
    job_file = folder / "job.json"
    job_file.write_text(json.dumps(job))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NCCL_ALGO", "NCCL_PROTO") and not name.startswith("TUCCL_")
    }
    processes = []
    for rank in range(ranks):
        environment = inherited | variables
        environment |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
        environment["NCCL_DEBUG_FILE"] = str(folder / f"log{rank}")
        with (folder / f"out{rank}").open("wb") as out:
            command = [
                sys.executable,
                str(ROOT / "scripts" / "check" / "nccl_rank.py"),
                str(job_file),
            ]
            processes.append(
                subprocess.Popen(
                    [*command, str(rank)], env=environment, stdout=out, stderr=subprocess.STDOUT
                )
            )
    deadline = time.monotonic() + RUN_LIMIT_S
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return collect(folder, ranks)


def collect(folder: Path, ranks: int) -> Run:
    """Logs and results of a run; a rank that died left no result."""
    logs, results = [], []
    for rank in range(ranks):
        files = [folder / f"log{rank}", folder / f"out{rank}"]
        logs.append("".join(file.read_text(errors="replace") for file in files if file.exists()))
        result = folder / f"result{rank}.json"
        died = {"error": f"died or hung; its output ends: {logs[-1][-300:]!r}"}
        results.append(json.loads(result.read_text()) if result.exists() else died)
    return Run(tuple(logs), tuple(results))


def choices(run: Run, ranks: int) -> list[Choice | None]:
    """NCCL's choice for each call, None where the log does not show the call."""
    lines = [line for log in run.logs for line in tuning_lines(log)]
    found: list[Choice | None] = []
    for operation, size, _ in wanted_keys(ranks):
        part = size if operation == "all_reduce" else size // ranks
        hits = [
            line.choice
            for line in lines
            if line.operation == operation and line.logged_bytes == part
        ]
        found.append(hits[0] if len(hits) == 1 else None)
    return found


def judge(ranks: int, default: Run, tuned: Run, damaged: Run, wrong_sum: Run) -> dict[str, Any]:
    """The verdict as plain values."""
    rows = []
    seen = zip(choices(default, ranks), choices(tuned, ranks), choices(damaged, ranks), strict=True)
    for (operation, size, config), (base, got, fallback) in zip(
        wanted_keys(ranks), seen, strict=True
    ):
        wanted = Choice(
            config.algorithm.value.replace("_", ""), config.protocol.value.lower(), config.nchannels
        )
        rows.append(
            {
                "operation": operation,
                "bytes": size,
                "default": str(base),
                "wanted": str(wanted),
                "tuned": str(got),
                "damaged": str(fallback),
                "differs_from_default": base != wanted,
                "obeyed": got == wanted,
                "fell_back": base is not None and fallback == base,
            }
        )
    obeyed = [row for row in rows if row["obeyed"] and row["differs_from_default"]]
    checks = {
        "runs without errors": not (default.errors() or tuned.errors() or damaged.errors()),
        "every key of the table obeyed": bool(rows) and all(row["obeyed"] for row in rows),
        f"at least {LEAST_KEYS} keys over three operations that differ from the default": len(
            obeyed
        )
        >= LEAST_KEYS
        and len({row["operation"] for row in obeyed}) == 3,
        "no warning with a good bundle": not any(tuccl_warnings(log) for log in tuned.logs),
        "defaults with a damaged bundle": all(row["fell_back"] for row in rows),
        "one warning per process with a damaged bundle": all(
            len(tuccl_warnings(log)) == 1 for log in damaged.logs
        ),
        "no start with a wrong sum": len(wrong_sum.errors()) == ranks
        and all(
            any("must not start together" in line for line in tuccl_warnings(log))
            for log in wrong_sum.logs
        ),
    }
    return {"ranks": ranks, "keys": rows, "checks": checks, "ok": all(checks.values())}


def tell(verdict: dict[str, Any], runs: dict[str, Run]) -> None:
    """The verdict as text, with lines of the log where it failed."""
    print(f"NCCL {verdict['nccl_version']}, {verdict['ranks']} GPUs, plugin {verdict['plugin']}")
    print(f"{'key':<24} {'default':<18} {'wanted':<18} {'tuned':<18} {'damaged':<18}")
    for row in verdict["keys"]:
        good = row["obeyed"] and row["fell_back"]
        key = f"{row['operation']} {row['bytes']}"
        print(
            f"{key:<24} {row['default']:<18} {row['wanted']:<18} {row['tuned']:<18} "
            f"{row['damaged']:<18} {'PASS' if good else 'FAIL'}"
        )
    for name, run in runs.items():
        lines = [line for line in run.logs[0].splitlines() if "TuCCL" in line]
        print(f"{name}, rank 0 of {len(run.logs)}: " + ("; ".join(lines) or "TuCCL says nothing"))
    for name, holds in verdict["checks"].items():
        print(f"{'PASS' if holds else 'FAIL'} {name}")
    if not verdict["ok"]:
        for name, run in runs.items():
            print(f"--- {name}: errors {run.errors()}; rank 0's TUNING, tuner and WARN lines:")
            for line in run.logs[0].splitlines():
                if any(
                    word in line for word in ("Algo", "TUNER", "Tuner", "WARN", "coll channels")
                ):
                    print(line)


def check(arguments: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], dict[str, Run]]:
    """Run all four and judge them."""
    ranks = arguments.gpus or gpus_here()
    if ranks < 2:
        raise CannotRunError(f"{ranks} GPU here, a collective needs 2")
    nccl = find_nccl(arguments.nccl)
    plugin = find_plugin(arguments.plugin, folder)
    good = bundle_bytes(make_table(ranks, gpu_models_here()))
    bundle, damaged = folder / "good.tuccl", folder / "damaged.tuccl"
    bundle.write_bytes(good)
    damaged.write_bytes(good[:-20] + bytes([good[-20] ^ 1]) + good[-19:])
    sum_of = {"TUCCL_BUNDLE_CRC": f"{bundle_crc(good):08x}"}
    other_sum = {"TUCCL_BUNDLE_CRC": f"{bundle_crc(good) ^ 1:08x}"}
    loaded = {"NCCL_TUNER_PLUGIN": str(plugin), "TUCCL_BUNDLE": str(bundle)}
    # Two communicators in the damaged run: the second must not warn again.
    jobs: dict[str, tuple[int, dict[str, str]]] = {
        "default": (1, {"NCCL_TUNER_PLUGIN": "none"}),
        "tuned": (1, loaded | sum_of),
        "damaged": (2, loaded | {"TUCCL_BUNDLE": str(damaged)}),
        "wrong sum": (1, loaded | other_sum),
    }
    runs = {
        name: run_job(folder / name.replace(" ", "-"), nccl, ranks, communicators, variables)
        for name, (communicators, variables) in jobs.items()
    }
    verdict = judge(ranks, *runs.values())
    verdict["nccl_version"] = runs["default"].results[0].get("version")
    verdict["plugin"] = str(plugin)
    return verdict, runs


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--gpus", type=int, help="use the first N GPUs (default: all)")
    parser.add_argument("--nccl", help="path of libnccl.so.2 (default: the installed wheel's)")
    parser.add_argument("--plugin", help="path of the plugin (default: installed, or compiled)")
    parser.add_argument("--json", action="store_true", help="verdict and log lines as JSON")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-check-") as folder:
            verdict, runs = check(arguments, Path(folder))
    except CannotRunError as error:
        print(f"check_nccl_loads_table: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        lines = {
            name: {
                "errors": run.errors(),
                "calls": [asdict(line) for log in run.logs for line in tuning_lines(log)],
                "warnings": [tuccl_warnings(log) for log in run.logs],
            }
            for name, run in runs.items()
        }
        print(json.dumps(verdict | {"runs": lines}, indent=2))
    else:
        tell(verdict, runs)
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
