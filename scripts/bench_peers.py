"""Schedules beside TE-CCL's and TACCL's published figures, on TE-CCL's own link set.

TE-CCL's repository holds links and results for two NDv2 and two DGX-2 chassis (microsoft/TE-CCL,
teccl/topologies/{ndv2,dgx2}.py and teccl/examples/experiments; TACCL's figures beside them in
generate_figures.py). There only some GPUs reach the network, each by a link of its own: NDv2 0 > 9
and 8 > 1, DGX-2 every odd GPU > the even one below it in the other chassis. The sketches here have
exactly these links. GPU/NIC sharing of real machines is in bench_synthesis.py.

A size is a rank's buffer, as in nccl-tests, and decimal: TE-CCL's epochs of 80 us at 64 MB on NDv2
are a chunk of size / 16 over 50 GB/s, for all_gather and alltoall alike.

    python scripts/bench_peers.py

`ratio` is ours / the better of both, with the best of all schedules made; `default` the same for
the one that synthesis makes for this very size unasked: the tree counts in TREES were picked by
looking at these machines. `of bound` is our share of what no schedule exceeds. Times are those of
the wires, as the peers'; `8 slots` is the best time with NCCL's 8 FIFO slots per connection. All of
it takes about six minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench_synthesis import PUBLISHED_GB_PER_S, SIZES, WIRES, prove  # noqa: E402

from sketches.sketch import Edge, EdgeKind, Port, Sketch  # noqa: E402
from sketches.symmetry import find_symmetries  # noqa: E402
from synthesizer.algorithm import Algorithm  # noqa: E402
from synthesizer.bounds import time_bound_us  # noqa: E402
from synthesizer.collectives import Collective  # noqa: E402
from synthesizer.experts import expert_algorithms  # noqa: E402
from synthesizer.simulator import ExecutionModel, compile_schedule  # noqa: E402
from synthesizer.synthesize import SynthesisOptions, synthesize  # noqa: E402

NIC_GB_PER_S = 12.5
TREES = {Collective.ALL_GATHER: (0, 1, 4, 16), Collective.ALLTOALL: (0, 1, 4)}
"""Trees per rank, or ways per pair, that are asked for; 0: as synthesis chooses."""
DOUBLE_NVLINKS = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
"""GPU pairs of an NDv2 with 50 GB/s."""
SINGLE_NVLINKS = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
"""Those with 25 GB/s."""
WIRES_ALONE = ExecutionModel(fifo_slots=1 << 20)
"""As the peers' models: a connection takes any number of messages before the first arrives."""


def ndv2() -> Sketch:
    """Two chassis of eight V100 in a hybrid cube mesh, one link each way between them."""
    edges = []
    for pairs, gb_per_s in ((DOUBLE_NVLINKS, 50.0), (SINGLE_NVLINKS, 25.0)):
        for a, b in pairs:
            for first in (0, 8):
                for src, dst in ((first + a, first + b), (first + b, first + a)):
                    edges.append(Edge(src, dst, EdgeKind.NVLINK, 0.7, gb_per_s))
    edges += [Edge(a, b, EdgeKind.NETWORK, 1.3, NIC_GB_PER_S) for a, b in ((0, 9), (8, 1))]
    return _sketch("ndv2_2x8", 8, edges, [])


def dgx2() -> Sketch:
    """Two chassis of sixteen V100 behind NVSwitches, eight links each way between them."""
    edges, ports = [], []
    for rank in range(32):
        ports += [Port(f"in:{rank}", 125.0), Port(f"out:{rank}", 125.0)]
    for a, b in permutations(range(32), 2):
        if a // 16 == b // 16:
            edges.append(Edge(a, b, EdgeKind.NVLINK, 0.7, 125.0, (f"out:{a}", f"in:{b}")))
        elif a % 2 and b == (a - 1 + 16) % 32:
            edges.append(Edge(a, b, EdgeKind.NETWORK, 2.6, NIC_GB_PER_S))
    return _sketch("dgx2_2x16", 16, edges, ports)


def _sketch(name: str, gpus: int, edges: list[Edge], ports: list[Port]) -> Sketch:
    sketch = Sketch(
        name=name,
        why="the links that TE-CCL's repository states",
        node_of_rank=tuple(rank // gpus for rank in range(2 * gpus)),
        edges=tuple(sorted(edges, key=lambda edge: (edge.src, edge.dst))),
        ports=tuple(sorted(ports, key=lambda port: port.name)),
    )
    return replace(sketch, symmetries=find_symmetries(sketch))


def candidates(collective: Collective, sketch: Sketch) -> Iterator[tuple[str, Algorithm]]:
    """Schedules synthesized for every size, and the experts that these links allow.

    A schedule made for one size can be the best at another: synthesis reckons with 8 FIFO slots.
    """
    for size, size_bytes in SIZES.items():
        for trees in TREES[collective]:
            options = SynthesisOptions(trees_per_rank=trees)
            name = f"for {size}, {trees} trees" if trees else f"for {size}"
            yield name, synthesize(collective, sketch, size_bytes, options).algorithm
    for algorithm in expert_algorithms(collective, sketch):
        yield algorithm.name, algorithm


def rows(sketch: Sketch, collective: Collective, sizes: Sequence[str]) -> Iterator[str]:
    """A cell per size, proved, beside what is published for it."""
    compiled = [
        (name, algorithm, compile_schedule(algorithm, sketch))
        for name, algorithm in candidates(collective, sketch)
    ]
    published = PUBLISHED_GB_PER_S[sketch.name, collective.value]
    for size in sizes:
        size_bytes = SIZES[size]
        name, algorithm, fastest = min(
            compiled, key=lambda made: made[2].time_us(size_bytes, WIRES_ALONE)
        )
        time_us = fastest.time_us(size_bytes, WIRES_ALONE)
        fifo_us = min(schedule.time_us(size_bytes, WIRES) for *_, schedule in compiled)
        te_ccl, taccl = published["TE-CCL"][size], published["TACCL"][size]
        ours = size_bytes * 1e-3 / time_us
        made_for_it = next(schedule for made, _, schedule in compiled if made == f"for {size}")
        default = size_bytes * 1e-3 / made_for_it.time_us(size_bytes, WIRES_ALONE)
        yield (
            f"| {sketch.name} | {collective} | {size} | {time_us:.2f} | {ours:.4g} | {te_ccl:g} "
            f"| {taccl:g} | {ours / max(te_ccl, taccl):.3f} "
            f"| {default / max(te_ccl, taccl):.3f} "
            f"| {time_bound_us(collective, sketch, size_bytes) / time_us:.1%} | {fifo_us:.2f} "
            f"| {name}, {prove(algorithm)} |"
        )


def main() -> None:
    """Prints the rows of an operation as soon as they are known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", choices=("all_gather", "alltoall"))
    parser.add_argument("--size", action="append", choices=SIZES)
    given = parser.parse_args()
    print("| machine | operation | size | us | GB/s | TE-CCL | TACCL | ratio | default |", end="")
    print(" of bound | us, 8 slots | |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    for sketch in (ndv2(), dgx2()):
        for collective in given.op or ("all_gather", "alltoall"):
            for row in rows(sketch, Collective(collective), given.size or list(SIZES)):
                print(row, flush=True)


if __name__ == "__main__":
    main()
