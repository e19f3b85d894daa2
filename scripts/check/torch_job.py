"""Start the ranks of a PyTorch job as a launcher does, and print the time of its steps.

    torch_job.py {training,sharded,mesh,tensor_parallel,decoding} [--nodes N] [--share-gpus] ...

The ranks run torch_rank.py in this process's environment; with --nodes they appear as those of
several hosts, over TCP on loopback. The last line is `step N us`: the median time of a step of
training, or of a token. Needs NVIDIA GPUs and PyTorch. Exit code 2: a rank did not end well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from measuring_job import JobError, wait_for_all  # noqa: E402

from tuccl.errors import TucclError  # noqa: E402
from tuccl.measuring.engines.nccl_environment import count_gpus  # noqa: E402
from tuccl.measuring.engines.nccl_library import find_nccl  # noqa: E402
from tuccl.measuring.engines.nccl_workers import sharing_variables  # noqa: E402
from tuccl.measuring.workers.seating import appearing_as  # noqa: E402

TRAININGS = ("training", "sharded", "mesh", "tensor_parallel")
WORDS = ("steps", "width", "sequence", "layers", "rounds", "at_once_bytes")
GROUPS = 5
"""Groups that the part `groups` creates."""
EnvironmentOf = Callable[[int], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class TorchJob:
    """The ranks of a job and what they do."""

    gpus: int
    """Number of GPUs that the ranks take in turn."""
    nodes: int
    ranks: int
    words: Mapping[str, int]
    """Numbers of steps, layers and rounds, width of the model and length of its sequences."""
    limit_s: float
    """Seconds until the job is killed."""
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Variables of ranks where those of one node share a GPU."""
    trace: str = ""
    """File for a trace of rank 0's last steps; empty: none is made."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> TorchJob:
        """Return the job of a command line with the options of `add_arguments`.

        Raises:
            JobError: The ranks are not equal nodes.
            MeasurementError: There are no GPUs, or NCCL takes no two ranks of a node on one GPU.
        """
        shares = arguments.share_gpus
        gpus_here = count_gpus(1) if shares or arguments.gpus is None else arguments.gpus
        gpus = arguments.gpus or gpus_here
        ranks = gpus * (arguments.nodes if shares else 1)
        if ranks % arguments.nodes or ranks < 2:
            raise JobError(f"{ranks} ranks are not {arguments.nodes} equal nodes of a job")
        words = {name: getattr(arguments, name) for name in WORDS}
        words |= {"groups": GROUPS}
        in_node = ranks // arguments.nodes > gpus_here
        sharing = sharing_variables(find_nccl(), ranks, gpus_here) if in_node else {}
        used, trace = min(gpus, gpus_here), str(arguments.trace or "")
        return cls(used, arguments.nodes, ranks, words, arguments.limit, sharing, trace)

    def run(self, part: str, folder: Path, environment: EnvironmentOf) -> list[dict[str, Any]]:
        """Run a part in new processes and return the results of all ranks.

        Args:
            part: A part of torch_rank.py.
            folder: A new folder for the output and the results of the ranks.
            environment: Environment of each rank, without the variables of faked nodes.

        Raises:
            JobError: A rank died or hung; says how its output ends.
        """
        folder.mkdir()
        job = {"part": part, "ranks": self.ranks, "folder": str(folder), "gpus": self.gpus}
        job |= {"local_ranks": self.ranks // self.nodes, "words": dict(self.words)}
        job |= {"limit_s": self.limit_s, "trace": self.trace}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        begin = time.monotonic()
        processes = list(self._start(folder, environment))
        ends = wait_for_all(processes, begin + self.limit_s)
        return [read_result(folder, rank, end) for rank, end in enumerate(ends)]

    def _start(self, folder: Path, environment: EnvironmentOf) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, str(ROOT / "scripts" / "check" / "torch_rank.py")]
        for rank in range(self.ranks):
            node = rank // (self.ranks // self.nodes)
            faked = appearing_as(node) if self.nodes > 1 else {}
            with (folder / f"out{rank}").open("wb") as out:
                yield subprocess.Popen(
                    [*command, str(folder / "job.json"), str(rank)],
                    env={**self.sharing, **environment(rank), **faked},
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )


def read_result(folder: Path, rank: int, end: str) -> dict[str, Any]:
    """Result of a rank; `end` says how the rank ended.

    Raises:
        JobError: The rank left no result.
    """
    path = folder / f"result{rank}.json"
    if not path.exists():
        output = (folder / f"out{rank}").read_text(encoding="utf-8", errors="replace")
        raise JobError(f"rank {rank} {end}; its output ends: {output[-1500:]!r}")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a job."""
    parser.add_argument("--steps", type=int, default=200, help="of training")
    parser.add_argument("--width", type=int, default=512, help="of the model that is trained")
    parser.add_argument("--sequence", type=int, default=128, help="tokens of its sequences")
    parser.add_argument("--layers", type=int, default=80, help="of decoding")
    parser.add_argument("--rounds", type=int, default=100, help="of streams")
    parser.add_argument(
        "--at-once-bytes", type=int, default=4 << 20, help="largest calls of shapes at once"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, help="let the ranks appear as those of several nodes"
    )
    parser.add_argument("--gpus", type=int, help="use the first N GPUs (default: all)")
    parser.add_argument(
        "--share-gpus",
        action="store_true",
        help="each node has all GPUs, and ranks take turns on them where --gpus says more; "
        "needs MPS",
    )
    parser.add_argument("--trace", type=Path, help="file for a trace of the last training steps")
    parser.add_argument("--limit", type=float, default=60, help="seconds until a job is killed")


def main() -> int:
    """Run the job once and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("part", choices=(*TRAININGS, "decoding"))
    add_arguments(parser)
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="tuccl-torch-") as folder:
            job = TorchJob.of(arguments)
            result = job.run(arguments.part, Path(folder) / "job", lambda _: os.environ)[0]
    except (JobError, TucclError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    print(f"{result['versions']}; the executor ran {result['executor_calls']} calls of rank 0")
    print(f"step {result['token_us' if arguments.part == 'decoding' else 'step_us']:.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
