#!/usr/bin/env python3
"""Compare every element of random sums with an addition on the host, with a table and without.

    check_invariant.py DIR [--calls 10000] [--starts 4] [--gpus 4] [--largest 16M] [--json]

DIR is a directory of `tuccl ship` for the GPUs of this host, of a table of `tuccl init
--invariant`. Each start is a process for each GPU: with the table, by DIR's `libtuccl-nccl.so`, and
with stock NCCL. All make the same calls: all_reduce and reduce_scatter in float16, bfloat16 and
float32, of 1 element to --largest, in place or not, from addresses of any alignment, one in twenty
from a CUDA graph. An element's values on the ranks are one of 4,093 sets of random numbers, so the
same sum comes at any place of a call of any size. With the table every element must have the bits
of an addition in the order of ranks, rounded once, and the executor must have run every call. For
stock NCCL it reports the share of elements that differ from the result of the same sum in its first
calls. Needs PyTorch. Exit code 0: the table's sums did not move; 1: one did, or a call was not
served.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from check_calling_library import SUM, Nccl, contenders

from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.quantities import parse_size
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME

LIMIT_S = 900.0
"""Time limit of a start."""
DRAWN = 4093
"""Sets of values, a prime number, so that they meet every place of a chunk."""
TYPES = {"float16": 6, "bfloat16": 9, "float32": 7}
"""NCCL's codes (nccl.h)."""
MOST_SHIFT = 9
"""Elements by which buffers begin later than an aligned address, and one more."""
TOLD_EVERY = 500
STOCK, TABLE = "stock NCCL", "the table"


@dataclass(frozen=True)
class SumCall:
    """A random call, the same on all ranks."""

    scatters: bool
    data_type: str
    count: int
    """Elements that a rank receives."""
    phase: int
    """Set of values of the first element."""
    send_shift: int
    receive_shift: int
    in_place: bool
    from_graph: bool


@dataclass
class Found:
    """What the calls of a rank, or of all of them, have shown."""

    calls: int = 0
    elements: int = 0
    wrong_calls: int = 0
    """Calls with an element of other bits than the host's."""
    wrong_elements: int = 0
    moved_elements: int = 0
    """Elements of other bits than the same sum had in the first calls of its start."""
    made: int = 0
    """Calls of NCCL's functions: one from a graph is made twice, as its first use may connect."""
    executor_calls: int = 0
    first_wrong: str = ""

    def add(self, other: Found) -> None:
        """Count another rank's calls, too."""
        self.first_wrong = self.first_wrong or other.first_wrong
        for name, count in asdict(other).items():
            if name != "first_wrong":
                setattr(self, name, getattr(self, name) + count)


def random_calls(seed: int, calls: int, ranks: int, largest_bytes: int) -> Iterator[SumCall]:
    """Yield the calls of a start."""
    drawn = random.Random(seed)  # noqa: S311 - repeatable
    for _ in range(calls):
        scatters, data_type = drawn.random() < 0.5, drawn.choice(list(TYPES))
        most = largest_bytes // (4 if data_type == "float32" else 2) // (ranks if scatters else 1)
        yield SumCall(
            scatters,
            data_type,
            max(1, int(most ** drawn.random())),
            drawn.randrange(DRAWN),
            drawn.choice((0, drawn.randrange(MOST_SHIFT))),
            drawn.choice((0, drawn.randrange(MOST_SHIFT))),
            drawn.random() < 0.25,
            drawn.random() < 0.05,
        )


class Sums(Nccl):
    """NCCL's sums of any type."""

    def run(self, call: SumCall, send: Any, receive: Any, stream: Any) -> None:
        """Enqueue a call on tensors."""
        name = "ncclReduceScatter" if call.scatters else "ncclAllReduce"
        pointers = (ctypes.c_void_p(each.data_ptr()) for each in (send, receive))
        count, code = ctypes.c_size_t(call.count), TYPES[call.data_type]
        self._check(getattr(self._library, name)(*pointers, count, code, SUM, self._comm, stream))


class Checker:
    """A rank's buffers and values, and what was found."""

    def __init__(self, torch: Any, nccl: Sums, given: argparse.Namespace) -> None:
        self.torch, self.nccl, self.given = torch, nccl, given
        self.found = Found()
        room = given.largest + 4 * (DRAWN + MOST_SHIFT)
        self.send = torch.empty(room, dtype=torch.uint8, device="cuda")
        self.receive = torch.empty(room, dtype=torch.uint8, device="cuda")
        self.values: dict[str, Any] = {}
        self.sums: dict[str, Any] = {}
        """Values of this rank and sums of the host, repeated over the largest call."""
        self.first: dict[str, Any] = {}
        """Sums of the first calls of this start."""
        for name in TYPES:
            of_ranks = [self.drawn(name, rank) for rank in range(given.ranks)]
            total = of_ranks[0].float()
            for own in of_ranks[1:]:
                total = total + own.float()
            self.values[name] = self.repeated(of_ranks[given.rank])
            self.sums[name] = self.repeated(total.to(of_ranks[0].dtype))

    def drawn(self, name: str, rank: int) -> Any:
        """Return a rank's values: random mantissas, signs and exponents."""
        torch = self.torch
        drawn = torch.Generator().manual_seed(1000 + rank)
        numbers = torch.randn(DRAWN, generator=drawn)
        exponents = torch.randint(-4, 4, (DRAWN,), generator=drawn)
        return (numbers * torch.exp2(exponents.float())).to(getattr(torch, name))

    def repeated(self, values: Any) -> Any:
        """Return values over the largest call and one period more, on the GPU."""
        times = self.given.largest // values.element_size() // DRAWN + 2
        return values.cuda().repeat(times)

    def begin(self) -> None:
        """Note what every sum is in a call of all values, and how often the executor was asked."""
        for name in TYPES:
            call = SumCall(False, name, DRAWN, 0, 0, 0, False, False)
            self.first[name] = self.repeated(self.run(call).cpu())

    def run(self, call: SumCall) -> Any:
        """Make a call; return its result."""
        torch, given = self.torch, self.given
        kind = self.values[call.data_type].dtype
        sent = call.count * (given.ranks if call.scatters else 1)
        send = self.send.view(kind)[call.send_shift : call.send_shift + sent]
        receive = self.receive.view(kind)[call.receive_shift : call.receive_shift + call.count]
        if call.in_place:
            first = given.rank * call.count if call.scatters else 0
            receive = send[first : first + call.count]
        values = self.values[call.data_type][call.phase : call.phase + sent]
        receive.fill_(-1)
        send.copy_(values)
        self.found.made += 1
        self.nccl.run(call, send, receive, self.stream())
        torch.cuda.synchronize()
        if not call.from_graph:
            return receive
        receive.fill_(-1)
        send.copy_(values)
        self.found.made += 1
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side):
            self.nccl.run(call, send, receive, self.stream())
        graph.replay()
        torch.cuda.synchronize()
        return receive

    def stream(self) -> Any:
        """Return CUDA's current stream."""
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def check(self, call: SumCall) -> None:
        """Make a call, and compare its bits."""
        bits = self.torch.int32 if call.data_type == "float32" else self.torch.int16
        found = self.run(call).view(bits)
        first = call.phase + (self.given.rank * call.count if call.scatters else 0)
        own = slice(first, first + call.count)
        wrong = int((found != self.sums[call.data_type][own].view(bits)).sum())
        self.found.calls += 1
        self.found.elements += call.count
        self.found.wrong_calls += wrong > 0
        self.found.wrong_elements += wrong
        moved = found != self.first[call.data_type][own].view(bits)
        self.found.moved_elements += int(moved.sum())
        if wrong and not self.found.first_wrong:
            self.found.first_wrong = f"rank {self.given.rank}: {call}, {wrong} elements"


def run_rank(given: argparse.Namespace) -> None:
    """Be a rank: print a line of JSON."""
    import torch  # noqa: PLC0415 - the ranks alone need it

    torch.cuda.set_device(given.rank)
    torch.zeros(1, device="cuda")
    nccl = Sums(given.library, given.rank, given.ranks, given.meeting)
    checker = Checker(torch, nccl, given)
    checker.begin()
    checker.found = Found()
    before = nccl.executor_calls()
    for number, call in enumerate(
        random_calls(given.seed, given.calls, given.ranks, given.largest)
    ):
        checker.check(call)
        if given.rank == 0 and (number + 1) % TOLD_EVERY == 0:
            wrong = checker.found.wrong_calls
            print(
                f"  {number + 1} of {given.calls} calls, {wrong} wrong", file=sys.stderr, flush=True
            )
    checker.found.executor_calls = nccl.executor_calls() - before
    nccl.close()
    print(json.dumps(asdict(checker.found)), flush=True)


def run_start(
    library: str, environment: Mapping[str, str], given: argparse.Namespace, number: int
) -> Found:
    """Run a process for each GPU; return what all have found."""
    with tempfile.TemporaryDirectory(prefix="tuccl-invariant-") as folder:
        words = [sys.executable, __file__, str(given.directory), "--library", library]
        words += ["--calls", str(given.calls // given.starts), "--largest", str(given.largest)]
        words += ["--ranks", str(given.ranks), "--meeting", str(Path(folder) / "id")]
        ranks = [
            subprocess.Popen(
                [*words, "--seed", str(number), "--rank", str(rank)],
                env=dict(environment),
                stdout=subprocess.PIPE,
            )
            for rank in range(given.ranks)
        ]
        found = Found()
        try:
            for each in ranks:
                found.add(Found(**json.loads(each.communicate(timeout=LIMIT_S)[0])))
        finally:
            for each in ranks:
                each.kill()
    return found


def is_kept(found: Found) -> bool:
    """Whether no sum of a table moved, and the executor ran every call."""
    return not found.wrong_elements and found.executor_calls == found.made > 0


def main() -> int:
    """Run all starts, print a row for each contender, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--calls", type=int, default=10_000, help="of each contender")
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--largest", type=parse_size, default=16 << 20)
    parser.add_argument("--json", action="store_true")
    for name, kind in (("library", str), ("rank", int), ("ranks", int), ("meeting", Path)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        run_rank(given)
        return 0
    given.ranks = given.gpus or count_gpus(2)
    jobs = contenders(given.directory.resolve())
    sources = {STOCK: jobs[STOCK], TABLE: jobs[CALLING_LIBRARY_NAME]}
    found = {name: Found() for name in sources}
    for number in range(given.starts):
        for name, (library, environment) in sources.items():
            print(f"start {number + 1} of {given.starts}: {name}", file=sys.stderr, flush=True)
            found[name].add(run_start(library, environment, given, number))
    code = 0 if is_kept(found[TABLE]) else 1
    if given.json:
        print(json.dumps({name: asdict(own) for name, own in found.items()}, indent=1))
        return code
    print(f"{given.ranks} ranks, {given.calls} calls in {given.starts} starts of each")
    for name, own in found.items():
        print(
            f"{name:12} {own.elements} elements on all ranks: {own.wrong_elements} in "
            f"{own.wrong_calls} of {own.calls} results differ from the host "
            f"({own.wrong_elements / own.elements:.2%}), {own.moved_elements} from the same sum in "
            f"its first calls ({own.moved_elements / own.elements:.2%}); the executor ran "
            f"{own.executor_calls} of {own.made}"
        )
        if own.first_wrong and name == TABLE:
            print(f"{'':12} first: {own.first_wrong}")
    print(
        "the table's sums do not move" if code == 0 else "the table's sums MOVE, or are not served"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
