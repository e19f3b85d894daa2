"""Run an unmodified PyTorch under `tuccl workload record`; hold its workload against its calls.

    check_recording.py [--gpus N] [--steps N] [--rounds N] [--json FILE]

Two things are checked: that the workload has the calls that the loop made, no more and no fewer,
and what recording cost. The loop captures calls in a CUDA graph, reduces gradients and gathers
weights, and makes many small calls, in short blocks with the recorder's events off and on in turn,
since two processes differ by more than it costs. The cost is the median of the ratios of rank 0's
pairs of blocks, with its interval of 95 %. Needs NVIDIA GPUs, NCCL 2.28 or later, PyTorch and cc.
Exit code 0: every workload is right; 1: one is wrong, or recording costs more than 1 % for certain;
2: a job could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from measuring_job import JobError, without_tables  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402
from tuccl.measuring.engines.nccl_environment import count_gpus  # noqa: E402
from tuccl.measuring.engines.nccl_library import find_nccl  # noqa: E402
from tuccl.measuring.engines.nccl_workers import sharing_variables  # noqa: E402
from tuccl.runtime import PROFILER_NAME  # noqa: E402
from tuccl.search.statistics.intervals import pairs_interval  # noqa: E402
from tuccl.workloads.workload_file import read_workload  # noqa: E402

LIMIT = 0.01
"""The share of a job's time that recording may take."""
Calls = dict[tuple[str, int, str, bool], float]


class Jobs:
    """Recorded jobs, each in new processes."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._started = 0
        gpus = count_gpus(2 if arguments.gpus is None else 1)
        self.ranks: int = arguments.gpus or gpus
        libraries = folder / "libraries"
        build_profiler(libraries)
        self._switch = build_switch(libraries)
        self._environment = without_tables(os.environ)
        self._environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(libraries)])
        if self.ranks > gpus:
            self._environment |= sharing_variables(find_nccl(), self.ranks, gpus)

    def run(self) -> tuple[list[dict[str, Any]], Path]:
        """Run a job; return the results of its ranks, and the workload's path.

        Raises:
            JobError: It did not end well.
        """
        folder = self._folder / f"job{self._started}"
        self._started += 1
        folder.mkdir()
        workload = folder / "W.json"
        ranks = ["--standalone", f"--nproc-per-node={self.ranks}"]
        script = str(ROOT / "scripts" / "check" / "recording_rank.py")
        job = [sys.executable, "-m", "torch.distributed.run", *ranks, script]
        job += [str(folder), str(self._arguments.steps), str(self._switch)]
        tuccl = [sys.executable, "-m", "tuccl", "workload", "record", "-o", str(workload), "--"]
        with (folder / "out").open("w") as out:
            try:
                code = subprocess.run(
                    [*tuccl, *job],
                    env=self._environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=self._arguments.limit,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
        said = (folder / "out").read_text(encoding="utf-8", errors="replace")
        if code != 0:
            raise JobError(f"a job ended with code {code}: {said[-3000:]}")
        if self._started == 1:
            print(said.strip(), flush=True)
        results = [
            json.loads((folder / f"rank{rank}.json").read_text(encoding="utf-8"))
            for rank in range(self.ranks)
        ]
        return results, workload


def build_profiler(folder: Path) -> None:
    """Compile the plugin of this checkout to where `tuccl.runtime` finds it on PYTHONPATH.

    Raises:
        JobError: It does not compile.
    """
    target = folder / "tuccl" / "runtime"
    target.mkdir(parents=True)
    script = ROOT / "scripts" / "make" / "build_library.sh"
    command = ["sh", str(script), "profiler", str(target / PROFILER_NAME)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobError(f"{PROFILER_NAME} does not compile: {done.stderr.strip()}")


def build_switch(folder: Path) -> Path:
    """Compile the plugin that turns the recorder off and on; return its path.

    Raises:
        JobError: It does not compile.
    """
    target = folder / "switched_recorder.so"
    declarations = ROOT / "tuccl" / "runtime" / "profiler"
    words = ["-std=c11", "-O2", "-D_POSIX_C_SOURCE=200809L", "-fPIC", "-fvisibility=hidden"]
    words += ["-shared", f"-I{declarations}", "-o", str(target)]
    source = ROOT / "scripts" / "check" / "switched_recorder.c"
    command = [os.environ.get("CC", "cc"), *words, str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobError(f"{source.name} does not compile: {done.stderr.strip()}")
    return target


def made_by(result: Mapping[str, Any]) -> Calls:
    """Return the calls that a rank counted itself."""
    return {
        (call["operation"], call["size_bytes"], call["datatype"], call["graph"]): call["calls"]
        for call in result["made"]
    }


def recorded_in(path: Path, ranks: int) -> Calls:
    """Return the calls in a workload; those of another communicator than the loop's stand apart."""
    found: Calls = {}
    for call in read_workload(path).calls:
        apart = "" if call.ranks == ranks else f" of {call.ranks} ranks"
        key = (f"{call.operation}{apart}", call.size_bytes, call.datatype or "?", bool(call.graph))
        found[key] = found.get(key, 0.0) + call.calls_per_step
    return found


def differences(made: Calls, recorded: Calls) -> list[str]:
    """Return a line for each call whose numbers differ."""
    lines = []
    for key in sorted(made.keys() | recorded.keys()):
        operation, size_bytes, kind, graph = key
        if made.get(key, 0) != recorded.get(key, 0):
            where = " in a graph" if graph else ""
            lines.append(
                f"{operation} of {size_bytes} bytes of {kind}{where}: made {made.get(key, 0)}, "
                f"recorded {recorded.get(key, 0):g}"
            )
    return lines


def cost_of(ratios: Sequence[float]) -> dict[str, float]:
    """Return the median cost as a share, and its interval of 95 %.

    A mean would be that of the few blocks that something else stopped for as long as they take.
    """
    _, bounds = pairs_interval(ratios, 0.025)
    return {
        "median": median(ratios) - 1.0,
        "least": bounds.low - 1.0,
        "most": bounds.high - 1.0,
    }


def check(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run all rounds and return what was found.

    Raises:
        JobError: A job did not end well.
    """
    jobs = Jobs(arguments, folder)
    rounds: list[dict[str, Any]] = []
    wrong: list[str] = []
    for number in range(arguments.rounds):
        results, workload = jobs.run()
        made = made_by(results[0])
        wrong += differences(made, recorded_in(workload, jobs.ranks))
        rounds.append(results[0]["pairs_us"])
        line = "  ".join(
            f"{part} {median(plain for plain, _ in pairs):.1f} and "
            f"{median(recorded for _, recorded in pairs):.1f}"
            for part, pairs in rounds[-1].items()
        )
        print(f"round {number + 1}, us per step without and with the recorder: {line}", flush=True)
    costs = {
        part: cost_of([recorded / plain for each in rounds for plain, recorded in each[part]])
        for part in rounds[0]
    }
    calls = int(sum(made.values()))
    versions = results[0]["versions"]
    return {"versions": versions, "calls": calls, "wrong": wrong, "costs": costs, "rounds": rounds}


def tell(found: Mapping[str, Any], ranks_said: str) -> int:
    """Print the findings and return the exit code."""
    print(f"{found['versions']}, {ranks_said}")
    for line in found["wrong"]:
        print(f"wrong: {line}")
    if not found["wrong"]:
        print(f"every workload has the {found['calls']} calls that a rank made")
    code = 1 if found["wrong"] else 0
    for part, cost in found["costs"].items():
        print(
            f"cost of recording, {part}: {100 * cost['median']:+.2f} % "
            f"({100 * cost['least']:+.2f} to {100 * cost['most']:+.2f} %)"
        )
        if cost["least"] > LIMIT:
            code = 1
    return code


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gpus", type=int, help="ranks, on the first GPUs in turn (default: one a GPU)"
    )
    parser.add_argument("--steps", type=int, default=2000, help="of each part of the loop")
    parser.add_argument("--rounds", type=int, default=3, help="each starts the job once")
    parser.add_argument("--limit", type=float, default=180, help="seconds until a job is killed")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.steps < 100:
        parser.error("use at least one round and 100 steps")
    return arguments


def main() -> int:
    """Check, write the findings and return the exit code."""
    arguments = parse_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-recording-") as folder:
            found = check(arguments, Path(folder))
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return tell(found, f"{arguments.rounds} rounds of {arguments.steps} steps")


if __name__ == "__main__":
    sys.exit(main())
