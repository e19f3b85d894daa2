"""Run an unmodified PyTorch without and with the executor, in new processes, and compare.

    check_executor_torch.py --executor libtuccl-executor.so --bundle bundle-CRC.tuccl [--json FILE]
    check_executor_torch.py --table SHIPPED --parts training decoding

Parts: 200 steps of training, whose losses are compared, with the model
replicated (training), sharded, on a mesh of nodes and ranks, and tensor-parallel; a tensor-parallel
decode loop; several groups on several streams; groups destroyed and created again; a last rank
without the executor, which all others must leave to NCCL with a warning each. The part `steps`
times the steps of three trainings in one job, --repeats pairs of jobs, and none may be slower with
the executor beyond its 95 % interval. Stock trains twice,
and the distance of its losses is the scale for the executor's. Training is repeated in turn, and
the ratio of step times is told. With --nodes the ranks appear as those of several hosts, over TCP
on loopback. Needs NVIDIA GPUs and PyTorch; TuCCL enters the processes through their environment
alone. Exit code 0: all results are correct; 1: a result is wrong; 2: a part could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from executor_job import STOCK, executor_variables  # noqa: E402
from measuring_job import JobError, without_tables  # noqa: E402
from torch_job import TRAININGS, TorchJob, add_arguments  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402
from tuccl.runtime.executor_library import PRELOAD_VARIABLE  # noqa: E402
from tuccl.search.statistics.intervals import UNKNOWN, pairs_interval  # noqa: E402
from tuccl.shipping.bench.contenders import read_shipped_table  # noqa: E402

DEFAULT_PARTS = (*TRAININGS, "decoding", "streams", "groups", "unpreloaded", "shapes")
PARTS = (*DEFAULT_PARTS, "steps")
TOLERANCE = 0.01
"""Largest relative distance of two losses of the same step: sums of 32-bit floats in another
order differ in the last bits, and training amplifies that."""

BOUND_ERROR = 0.025
"""Error of each bound of a 95 % interval."""


class Variants:
    """The environments that are compared, and a folder for the output of their processes."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._folder = folder
        self._jobs = 0
        self.repeats: int = arguments.repeats
        self._job = TorchJob.of(arguments)
        self.ranks = self._job.ranks
        self.of = {"stock": dict(STOCK), "executor": executor_environment(arguments)}
        if arguments.nccl:
            for variables in self.of.values():
                preloaded = [variables.get(PRELOAD_VARIABLE, ""), str(Path(arguments.nccl))]
                variables[PRELOAD_VARIABLE] = " ".join(filter(None, preloaded))

    def run(self, part: str, variant: str) -> dict[str, Any]:
        """Run a part in new processes; return rank 0's result with errors of all ranks.

        Raises:
            JobError: A rank died or hung; says how its output ends.
        """
        folder = self._folder / f"torch{self._jobs}"
        self._jobs += 1
        begin = time.monotonic()
        results = self._job.run(
            part, folder, lambda rank: without_tables(os.environ) | self._variables(variant, rank)
        )
        found = dict(results[0])
        if "wrong" in found:
            found["wrong"] = sum(result["wrong"] for result in results)
        found["warnings"] = sum(
            (folder / f"out{rank}").read_text("utf-8", "replace").count("executor is off")
            for rank in range(self.ranks)
        )
        seconds = time.monotonic() - begin
        steps = {name: round(us) for name, us in found.get("steps_us", {}).items()} or ""
        calls = found["executor_calls"]
        print(f"{part}, {variant}: {seconds:.0f} s, {calls} calls {steps}".rstrip(), flush=True)
        return found

    def _variables(self, variant: str, rank: int) -> dict[str, str]:
        last = rank == self.ranks - 1
        if variant == "unpreloaded":
            # Ranks of another process profile would break NCCL itself.
            preloaded = self.of["stock" if last else "executor"].get(PRELOAD_VARIABLE, "")
            return self.of["executor"] | {"NCCL_DEBUG": "WARN", PRELOAD_VARIABLE: preloaded}
        if variant == "explained":
            explained = {"TUCCL_EXPLAIN": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING"}
            explained["NCCL_DEBUG_FILE"] = str(self._folder / f"log{rank}")
            return self.of["executor"] | explained
        return dict(self.of[variant])


def executor_environment(arguments: argparse.Namespace) -> dict[str, str]:
    """Variables of a job that runs the executor.

    Raises:
        JobError: The arguments name no executor.
        UsageError: The table lacks a file.
    """
    if arguments.table is not None:
        table = read_shipped_table(arguments.table.resolve(), str(arguments.table))
        variables = dict(table.variables)
        if not table.has_executor and arguments.executor is not None:
            variables[PRELOAD_VARIABLE] = str(arguments.executor.resolve())
        return variables
    if arguments.executor is None or arguments.bundle is None:
        raise JobError("name --executor and --bundle, or --table")
    return executor_variables(arguments.executor, arguments.bundle)


def check(variants: Variants, part: str) -> dict[str, Any]:
    """Run a part under stock NCCL and the executor; `right` says whether both are correct."""
    if part == "unpreloaded":
        return check_unpreloaded(variants)
    if part == "shapes":
        executor = variants.run(part, "explained")
        used = all(of["executor"] + of["plugin"] > 0 for of in executor["shapes"].values())
        return {"executor": executor, "right": used and not executor["wrong"]}
    if part == "steps":
        return check_steps(variants)
    stock = variants.run(part, "stock")
    executor = variants.run(part, "executor")
    found: dict[str, Any] = {"stock": stock, "executor": executor}
    found["right"] = executor["executor_calls"] > 0 and not (
        stock.get("wrong", 0) or executor.get("wrong", 0)
    )
    if part in TRAININGS:
        again = variants.run(part, "stock")
        found |= compare_losses(stock["losses"], again["losses"], executor["losses"])
        found["right"] = found["right"] and found["largest_distance"] <= TOLERANCE
        found["step_ratios"] = step_ratios(variants, part, stock, executor, again)
    return found


def step_ratios(variants: Variants, part: str, *runs: dict[str, Any]) -> list[float]:
    """Stock NCCL's time of a step over the executor's, of pairs of jobs one after the other."""
    stock, executor, again = (run["step_us"] for run in runs)
    ratios = [stock / executor]
    for repeat in range(1, variants.repeats):
        before = again if repeat == 1 else variants.run(part, "stock")["step_us"]
        ratios.append(before / variants.run(part, "executor")["step_us"])
    return ratios


def check_steps(variants: Variants) -> dict[str, Any]:
    """Time steps in pairs of jobs, of which every other begins with the executor."""
    runs: dict[str, list[dict[str, Any]]] = {"stock": [], "executor": []}
    for pair in range(variants.repeats):
        for variant in list(runs)[:: -1 if pair % 2 else 1]:
            runs[variant].append(variants.run("steps", variant))
    steps: dict[str, dict[str, Any]] = {}
    for name in runs["stock"][0]["steps_us"]:
        times_us = [[run["steps_us"][name] for run in own] for own in runs.values()]
        pairs = zip(*times_us, strict=True)
        ratio, bounds = pairs_interval([stock / own for stock, own in pairs], BOUND_ERROR)
        steps[name] = {
            "times_us": times_us,
            "ratio": ratio,
            "interval": None if bounds == UNKNOWN else [bounds.low, bounds.high],
        }
    # Too few pairs show nothing.
    right = all(of["interval"] and of["interval"][1] >= 1.0 for of in steps.values())
    return {"executor": runs["executor"][-1], "steps": steps, "right": right}


def check_unpreloaded(variants: Variants) -> dict[str, Any]:
    """Run groups where the last rank has no executor; all must leave their calls to NCCL."""
    stock = variants.run("groups", "stock")
    executor = variants.run("groups", "unpreloaded")
    warned = (variants.ranks - 1) * executor["groups"]
    right = executor["executor_calls"] == 0 and executor["warnings"] == warned
    return {
        "stock": stock,
        "executor": executor,
        "right": right and not (stock["wrong"] or executor["wrong"]),
    }


def compare_losses(stock: list[float], again: list[float], executor: list[float]) -> dict[str, Any]:
    """Largest distance of loss curves, relative to the loss at that step."""

    def distance(losses: list[float]) -> float:
        pairs = zip(stock, losses, strict=True)
        return max(abs(a - b) / abs(a) if isfinite(a + b) else float("inf") for a, b in pairs)

    return {
        "bitwise": executor == stock,
        "largest_distance": distance(executor),
        "stock_twice_distance": distance(again),
        "tolerance": TOLERANCE,
        "first_and_last_loss": [stock[0], stock[-1], executor[0], executor[-1]],
    }


def tell(part: str, found: Mapping[str, Any]) -> None:
    """Print the result of a part, as soon as it is known."""
    stock, executor = found.get("stock", {}), found["executor"]
    print(f"{part}: {'right' if found['right'] else 'NOT RIGHT'} ({executor['versions']})")
    for name, what in (("reductions_us", "all_reduce of a token"), ("token_us", "a whole token")):
        if name in stock:
            ratio = stock[name] / executor[name]
            print(f"  {what:<24}{stock[name]:>9.1f} us{executor[name]:>9.1f} us{ratio:>8.3f}")
    if part in TRAININGS:
        first, last, _, own_last = found["first_and_last_loss"]
        print(
            f"  loss {first:.4f} to {last:.6f}, with the executor to {own_last:.6f}; "
            f"{'bitwise the same' if found['bitwise'] else 'not bitwise the same'}, apart by "
            f"{found['largest_distance']:.2e} of the loss at most, stock twice by "
            f"{found['stock_twice_distance']:.2e}, allowed {TOLERANCE:g}; "
            f"{stock['seconds']:.1f} s and {executor['seconds']:.1f} s"
        )
        ratios = found["step_ratios"]
        print(
            f"  a step {stock['step_us']:.0f} us and {executor['step_us']:.0f} us; ratio "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, "
            f"{len(ratios)} pairs of jobs)"
        )
    if part == "unpreloaded":
        print(f"  {executor['warnings']} warnings of {executor['groups']} communicators")
    for name, of in found.get("steps", {}).items():
        stock_us, own_us = map(statistics.median, of["times_us"])
        bounds = "too few pairs for bounds, 6 have some"
        if of["interval"]:
            low, high = of["interval"]
            bounds = f"{low:.3f} to {high:.3f}"
        print(f"  {name:<16}{stock_us:>9.0f} us{own_us:>9.0f} us{of['ratio']:>8.3f} ({bounds})")
    for shape, of in executor.get("shapes", {}).items():
        print(
            f"  {shape:<14}{of['calls']:>3} calls: {of['executor']} by the executor, "
            f"{of['plugin']} by the plugin's entries, {of['no_entry']} without an entry"
        )
    if part == "shapes":
        print(f"  wrong results: {executor['wrong']}, {executor['rounds']} rounds at once")
    elif "wrong" in executor:
        print(f"  wrong results: {stock['wrong']} without, {executor['wrong']} with the executor")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--executor", type=Path, help="libtuccl-executor.so")
    parser.add_argument("--bundle", type=Path, help="bundle of a shipped table")
    parser.add_argument("--table", type=Path, help="directory written by `tuccl ship`")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=DEFAULT_PARTS)
    parser.add_argument("--nccl", help="an NCCL to preload in both, where PyTorch's is too old")
    parser.add_argument("--repeats", type=int, default=1, help="pairs of jobs that train")
    add_arguments(parser)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def main() -> int:
    """Run all parts and write the results in any case; return the exit code."""
    arguments = parse_arguments()
    found: dict[str, Any] = {}
    code = 0
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-torch-") as folder:
            variants = Variants(arguments, Path(folder))
            for part in arguments.parts:
                try:
                    found[part] = check(variants, part)
                    code = max(code, 0 if found[part]["right"] else 1)
                    tell(part, found[part])
                except JobError as error:
                    print(f"{part}: {error}", file=sys.stderr)
                    code = 2
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        code = 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
