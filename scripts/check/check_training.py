"""Tune unmodified PyTorch jobs by their own workloads, and hold their steps against the predicted.

    check_training.py [--parts mesh tensor_parallel decoding] [--nodes 2 --share-gpus] [--json FILE]

For each job `tuccl workload record` counts its calls, `tuccl init --workload` tunes them within
--budget, `tuccl ship` writes the table, and `tuccl workload bench` runs the job without and with it
in turn, by its environment alone; with --trim `tuccl workload trim` then leaves out what slows the
job down. Jobs are those of torch_job.py: a transformer on a mesh of nodes and ranks (FSDP within a
node, sums along rails), one that is tensor-parallel within nodes, a decode loop. Needs NVIDIA GPUs,
all that are visible, and PyTorch. Exit code 0: no job is slower, and each saves what was predicted
within 5 % of its step; 1: one does not; 2: a command failed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_job import TRAININGS, add_arguments

from tuccl.measuring.engines.nccl_environment import count_gpus

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"step (\S+) us")
"""A job's own figure."""
DEFAULT_PARTS = ("mesh", "tensor_parallel", "decoding")
MOST_APART = 0.05
"""Largest difference of predicted and measured saving as a share of the step."""
DECODED_TOKENS = 8
"""Tokens whose calls NCCL sees in the decode loop: three of each kind before the capture, and it;
reductions alone count as tokens, as they make the same calls."""


class CommandError(Exception):
    """A command of TuCCL failed."""


def tuccl(*words: str, codes: Sequence[int] = (0,)) -> str:
    """Run `tuccl WORDS`, its notes on standard error, and return what it printed.

    Raises:
        CommandError: Its exit code is none of `codes`.
    """
    command = [sys.executable, "-m", "tuccl", *words]
    print(f"$ tuccl {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if "--json" not in words:
        print(done.stdout, file=sys.stderr, flush=True)
    if done.returncode not in codes:
        raise CommandError(f"tuccl {words[0]} ended with code {done.returncode}: {done.stdout}")
    return done.stdout


def job_command(part: str, arguments: argparse.Namespace) -> list[str]:
    """Return the command that starts a job."""
    words = [sys.executable, str(ROOT / "scripts" / "check" / "torch_job.py"), part]
    words += ["--nodes", str(arguments.nodes), "--limit", str(arguments.limit)]
    for name in ("steps", "width", "sequence", "layers"):
        words += [f"--{name}", str(getattr(arguments, name))]
    words += [] if arguments.gpus is None else ["--gpus", str(arguments.gpus)]
    return words + (["--share-gpus"] if arguments.share_gpus else [])


def machine_words(arguments: argparse.Namespace) -> list[str]:
    """Return the options of `tuccl init` for the ranks of the jobs."""
    words = [] if arguments.nodes == 1 else ["--nodes", str(arguments.nodes)]
    words += ["--fake-nodes"] if arguments.nodes > 1 or arguments.share_gpus else []
    words += ["--share-gpus"] if arguments.share_gpus else []
    if arguments.gpus is not None:
        words += ["--node-gpus", ",".join([str(arguments.gpus)] * arguments.nodes)]
    return words


def import_trace(
    job: Sequence[str], trace: Path, workload: str, arguments: argparse.Namespace
) -> None:
    """Run a job under PyTorch's profiler and write the workload of its trace.

    Raises:
        CommandError: The job failed, or its trace has no collectives.
    """
    command = [*job, "--trace", str(trace)]
    traced = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(traced.stdout, file=sys.stderr, flush=True)
    # Most steps run before the profiler starts.
    step = STEP.search(traced.stdout)
    if traced.returncode != 0 or step is None:
        raise CommandError(f"the traced job ended with code {traced.returncode}")
    ranks = arguments.gpus or count_gpus(1)
    of_node = ranks if arguments.share_gpus else ranks // arguments.nodes
    words = ("workload", "import", str(trace), "--ranks-per-node", str(of_node))
    tuccl(*words, "--step-time", f"{step[1]}us", "-o", workload)


def check(part: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Record, tune, ship and bench a job; return the document of the bench.

    Raises:
        CommandError: A command failed.
    """
    job, workload = job_command(part, arguments), str(folder / f"{part}.json")
    workspace, shipped = (str(folder / f"{part}-{name}") for name in ("workspace", "shipped"))
    if arguments.traces and part in TRAININGS:
        import_trace(job, folder / f"{part}-trace.json", workload, arguments)
    else:
        steps = arguments.steps if part in TRAININGS else DECODED_TOKENS
        tuccl("workload", "record", "-o", workload, "--steps", str(steps), "--", *job)
    tuned = ["init", "--workload", workload, "--workspace", workspace]
    if arguments.max_channels is not None:
        tuned += ["--max-channels", str(arguments.max_channels)]
    tuned += ["--alone"] if arguments.alone else []
    tuccl(*tuned, "--budget", arguments.budget, *machine_words(arguments))
    tuccl("ship", shipped, "--workspace", workspace)
    of_job = [shipped, "--rounds", str(arguments.pairs)]
    of_job += ["--metric", STEP.pattern, "--unit", "us", "--json", "--", *job]
    found: dict[str, Any] = json.loads(tuccl("workload", "bench", *of_job, codes=(0, 1)))
    if arguments.trim:
        found["trimmed"] = json.loads(tuccl("workload", "trim", *of_job, codes=(0, 1)))
    return found


def trimmed_lines(found: Mapping[str, Any]) -> list[str]:
    """Return what `tuccl workload trim` says of the parts and of what is left."""
    if "trimmed" not in found:
        return []
    gain, parts = found["trimmed"]["gain"], found["trimmed"]["parts"]
    lines = [
        f"  {part['operation'] or 'all'} {part['shape'] or 'process profile'}: {part['ratio']:.3f} "
        f"({part['low']:.3f} to {part['high']:.3f}){' left out' if part['left_out'] else ''}"
        for part in parts
    ]
    lines += [f"  trimmed: {gain['ratio']:.3f} ({gain['low']:.3f} to {gain['high']:.3f})"]
    return lines


def shares(found: Mapping[str, Any]) -> tuple[float, float]:
    """Return the predicted and the measured saving as shares of the step; 0 without a step."""
    saving = found["saving"]
    if saving is None:
        return 0.0, 0.0
    return saving["predicted_us"] / saving["step_us"], saving["measured_us"] / saving["step_us"]


def is_right(found: Mapping[str, Any]) -> bool:
    """Whether a job is not slower, and saves what was predicted."""
    predicted, measured = shares(found)
    return not found["slower"] and abs(predicted - measured) <= MOST_APART


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parts = (*TRAININGS, "decoding")
    parser.add_argument("--parts", nargs="+", choices=parts, default=DEFAULT_PARTS)
    parser.add_argument("--budget", default="180s", help="machine time of each `tuccl init`")
    parser.add_argument(
        "--traces",
        action="store_true",
        help="take workloads from PyTorch's traces, which tell what steps wait for",
    )
    parser.add_argument(
        "--max-channels", type=int, help="bound of `tuccl init`, as jobs compute beside their calls"
    )
    parser.add_argument(
        "--alone", action="store_true", help="time calls alone, not beside a trace's computation"
    )
    parser.add_argument(
        "--trim", action="store_true", help="find what slows the job down, and leave it out"
    )
    parser.add_argument("--pairs", type=int, default=5, help="runs without and with the table")
    add_arguments(parser)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def main() -> int:
    """Check all parts, write the results in any case and return the exit code."""
    arguments = parse_arguments()
    found: dict[str, dict[str, Any]] = {}
    code = 0
    with tempfile.TemporaryDirectory(prefix="tuccl-training-") as folder:
        for part in arguments.parts:
            try:
                found[part] = check(part, arguments, Path(folder))
            except CommandError as error:
                print(f"{part}: {error}", file=sys.stderr)
                code = 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for part, bench in found.items():
        gain, (predicted, measured) = bench["gain"], shares(bench)
        code = max(code, 0 if is_right(bench) else 1)
        print(
            f"{part}: {gain['ratio']:.3f} times as fast ({gain['low']:.3f} to {gain['high']:.3f}); "
            f"a step takes {100 * measured:.1f} % less, predicted {100 * predicted:.1f} %: "
            f"{'right' if is_right(bench) else 'NOT RIGHT'}",
            *trimmed_lines(bench),
            sep="\n",
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
