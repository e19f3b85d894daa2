"""Start the ranks of a PyTorch job as a launcher does, and print the time of its steps.

    torch_job.py {training,sharded,mesh,tensor_parallel,decoding} [--nodes N] [--share-gpus] ...

The ranks run torch_rank.py in this process's environment; with --nodes they appear as those of
several hosts, over TCP on loopback. The last line is `step N us`: the median time of a step of
training, or of a token. Needs NVIDIA GPUs and PyTorch. Exit code 2: a rank did not end well.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring_job import JobError, results_of, start_ranks, wait_for_all

from tuccl.errors import TucclError
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_library import find_nccl
from tuccl.measuring.engines.nccl_workers import sharing_variables
from tuccl.measuring.workers.seating import appearing_as

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
        local_ranks = self.ranks // self.nodes
        job = {"part": part, "ranks": self.ranks, "local_ranks": local_ranks, "gpus": self.gpus}
        job |= {"words": dict(self.words), "limit_s": self.limit_s, "trace": self.trace}
        environments = [
            {
                **self.sharing,
                **environment(rank),
                **(appearing_as(rank // local_ranks) if self.nodes > 1 else {}),
            }
            for rank in range(self.ranks)
        ]
        begin = time.monotonic()
        program = Path(__file__).with_name("torch_rank.py")
        processes = start_ranks(program, folder, job, environments)
        return results_of(folder, wait_for_all(processes, begin + self.limit_s))


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
