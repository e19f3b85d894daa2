"""Schedules beside TE-CCL's and TACCL's published figures, on TE-CCL's own link set.

TE-CCL's repository holds links and results for two NDv2 and two DGX-2 chassis (microsoft/TE-CCL,
teccl/topologies/{ndv2,dgx2}.py and teccl/examples/experiments; TACCL's figures beside them in
generate_figures.py). There only some GPUs reach the network, each by a link of its own: NDv2 0 > 9
and 8 > 1, DGX-2 every odd GPU > the even one below it in the other chassis. The sketches here have
exactly these links. GPU/NIC sharing of real machines is in bench_synthesis.py.

With two chassis TE-CCL's NDv2 takes GPU 0 for a switch (set_switch_indicies), so its alltoall is
one of 15 GPUs: 56 blocks cross each network link where 16 GPUs need 64. `ndv2_15gpus` is that
problem, with blocks of size / 16 as there.

A size is a rank's buffer, as in nccl-tests, and decimal: TE-CCL's epochs of 80 us at 64 MB on NDv2
are a chunk of size / 16 over 50 GB/s, for all_gather and alltoall alike.

    python scripts/bench_peers.py

`ratio` is ours / the better of both, with the best of all schedules made; `default` the same for
the one that synthesis makes for this very size unasked: the tree counts in TREES were picked by
looking at these machines. `bound` is what no schedule on these links exceeds, proved in
`synthesizer.bounds.time_bounds`; then come our share of it and that of the better peer. A cell is
`ahead`, `ruled out by bound` where the peer's figure exceeds the bound even if it was rounded up,
or `short`. Times are those of the wires, as the peers'; `8 slots` is the best time with NCCL's 8
FIFO slots per connection. All of it takes three to six minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench_synthesis import PUBLISHED_GB_PER_S, SIZES, WIRES, prove  # noqa: E402

from sketches.sketch import Edge, EdgeKind, Port, Sketch  # noqa: E402
from sketches.symmetry import find_symmetries  # noqa: E402
from synthesizer.bounds.time_bounds import time_bound  # noqa: E402
from synthesizer.experts import expert_algorithms  # noqa: E402
from synthesizer.ir.algorithm import Algorithm  # noqa: E402
from synthesizer.ir.collectives import Collective  # noqa: E402
from synthesizer.plan.synthesize import SynthesisOptions, synthesize  # noqa: E402
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule  # noqa: E402

NIC_GB_PER_S = 12.5
TREES = {Collective.ALL_GATHER: (0, 1, 4, 16), Collective.ALLTOALL: (0, 1, 4)}
"""Trees per rank, or ways per pair, that are asked for; 0: as synthesis chooses."""
DOUBLE_NVLINKS = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
"""GPU pairs of an NDv2 with 50 GB/s."""
SINGLE_NVLINKS = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
"""Those with 25 GB/s."""
WIRES_ALONE = ExecutionModel(fifo_slots=1 << 20)
"""As the peers' models: a connection takes any number of messages before the first arrives."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An operation on a machine, and what is published for it."""

    sketch: Sketch
    collective: Collective
    published: dict[str, dict[str, float]]
    """By peer and size."""
    share: Fraction = Fraction(1)
    """Of the size that figures are stated for: what one of these ranks has."""


def ndv2() -> Sketch:
    """Two chassis of eight V100 in a hybrid cube mesh, one link each way between them."""
    edges = []
    for pairs, gb_per_s in ((DOUBLE_NVLINKS, 50.0), (SINGLE_NVLINKS, 25.0)):
        for a, b in pairs:
            for first in (0, 8):
                for src, dst in ((first + a, first + b), (first + b, first + a)):
                    edges.append(Edge(src, dst, EdgeKind.NVLINK, 0.7, gb_per_s))
    edges += [Edge(a, b, EdgeKind.NETWORK, 1.3, NIC_GB_PER_S) for a, b in ((0, 9), (8, 1))]
    return _sketch("ndv2_2x8", (0,) * 8 + (1,) * 8, edges, [])


def ndv2_15gpus() -> Sketch:
    """NDv2 where GPU 0 passes on what others send, and neither sends nor takes anything itself.

    Rank r is GPU r + 1. A message through the switch passes the link into it and the one out of it,
    with the alphas of both, which leaves direct links between the same GPUs the better way.
    """
    whole = ndv2()
    edges = {(e.src, e.dst): e for e in whole.edges if 0 not in (e.src, e.dst)}
    into = [edge for edge in whole.edges if edge.dst == 0]
    out = [edge for edge in whole.edges if edge.src == 0]
    for first, then in product(into, out):
        if first.src != then.dst:
            through = Edge(
                first.src,
                then.dst,
                then.kind,
                first.alpha_us + then.alpha_us,
                min(first.bandwidth_gb_per_s, then.bandwidth_gb_per_s),
                (f"{first.src}>0", f"0>{then.dst}"),
            )
            edges.setdefault((first.src, then.dst), through)
    ports = [Port(f"{edge.src}>{edge.dst}", edge.bandwidth_gb_per_s) for edge in (*into, *out)]
    renamed = [replace(edge, src=edge.src - 1, dst=edge.dst - 1) for edge in edges.values()]
    return _sketch("ndv2_15gpus", whole.node_of_rank[1:], renamed, ports)


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
    return _sketch("dgx2_2x16", (0,) * 16 + (1,) * 16, edges, ports)


def _sketch(name: str, nodes: tuple[int, ...], edges: list[Edge], ports: list[Port]) -> Sketch:
    sketch = Sketch(
        name=name,
        why="the links that TE-CCL's repository states",
        node_of_rank=nodes,
        edges=tuple(sorted(edges, key=lambda edge: (edge.src, edge.dst))),
        ports=tuple(sorted(ports, key=lambda port: port.name)),
    )
    return replace(sketch, symmetries=find_symmetries(sketch))


def problems() -> Iterator[Problem]:
    """What both peers publish, and TE-CCL's alltoall of 15 GPUs."""
    for sketch in (ndv2(), dgx2()):
        for collective in (Collective.ALL_GATHER, Collective.ALLTOALL):
            published = PUBLISHED_GB_PER_S[sketch.name, collective.value]
            yield Problem(sketch, collective, published)
            if sketch.name == "ndv2_2x8" and collective is Collective.ALLTOALL:
                te_ccl = {"TE-CCL": published["TE-CCL"]}
                yield Problem(ndv2_15gpus(), collective, te_ccl, Fraction(15, 16))


def candidates(problem: Problem) -> Iterator[tuple[str, Algorithm]]:
    """Schedules synthesized for every size, and the experts that these links allow.

    A schedule made for one size can be the best at another: synthesis reckons with 8 FIFO slots.
    """
    for size, size_bytes in SIZES.items():
        for trees in TREES[problem.collective]:
            options = SynthesisOptions(trees_per_rank=trees)
            name = f"for {size}, {trees} trees" if trees else f"for {size}"
            own_bytes = int(size_bytes * problem.share)
            made = synthesize(problem.collective, problem.sketch, own_bytes, options)
            yield name, made.algorithm
    for algorithm in expert_algorithms(problem.collective, problem.sketch):
        yield algorithm.name, algorithm


def verdict(ours: float, peer: float, bound: float) -> str:
    """Whether the peer's figure is reached, and if not, whether it can be; all in GB/s."""
    if ours >= peer:
        return "ahead"
    last_digit = Decimal(1).scaleb(int(Decimal(str(peer)).as_tuple().exponent))
    return "ruled out by bound" if peer - float(last_digit) / 2 > bound else "short"


def rows(problem: Problem, sizes: Sequence[str]) -> Iterator[str]:
    """A cell per size, proved, beside what is published for it."""
    compiled = [
        (name, algorithm, compile_schedule(algorithm, problem.sketch))
        for name, algorithm in candidates(problem)
    ]
    bound = time_bound(problem.collective, problem.sketch)
    for size in sizes:
        own_bytes = float(SIZES[size] * problem.share)
        name, algorithm, fastest = min(
            compiled, key=lambda made: made[2].time_us(own_bytes, WIRES_ALONE)
        )
        made_for_it = next(schedule for made, _, schedule in compiled if made == f"for {size}")
        time_us = fastest.time_us(own_bytes, WIRES_ALONE)
        fifo_us = min(schedule.time_us(own_bytes, WIRES) for *_, schedule in compiled)
        ours, default, most = (
            SIZES[size] * 1e-3 / us
            for us in (
                time_us,
                made_for_it.time_us(own_bytes, WIRES_ALONE),
                bound.time_us(own_bytes),
            )
        )
        figures = [problem.published.get(peer, {}).get(size) for peer in ("TE-CCL", "TACCL")]
        peer = max(figure for figure in figures if figure is not None)
        shown = " | ".join("-" if figure is None else f"{figure:g}" for figure in figures)
        yield (
            f"| {problem.sketch.name} | {problem.collective} | {size} | {ours:.4g} | {shown} "
            f"| {ours / peer:.3f} | {default / peer:.3f} | {most:.5g} | {ours / most:.1%} "
            f"| {peer / most:.2%} | {verdict(ours, peer, most)} | {time_us:.2f} | {fifo_us:.2f} "
            f"| {name}, {prove(algorithm)} |"
        )


def main() -> None:
    """Prints the rows of an operation as soon as they are known."""
    every = list(problems())
    machines = list(dict.fromkeys(problem.sketch.name for problem in every))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", action="append", choices=machines)
    parser.add_argument("--op", action="append", choices=("all_gather", "alltoall"))
    parser.add_argument("--size", action="append", choices=SIZES)
    given = parser.parse_args()
    print("| machine | operation | size | GB/s | TE-CCL | TACCL | ratio | default ", end="")
    print("| bound GB/s | ours of it | peer of it | | us | us, 8 slots | |")
    print("|---|---|---|" + "---:|" * 8 + "---|---:|---:|---|")
    for problem in every:
        if problem.sketch.name not in (given.machine or machines):
            continue
        if given.op and problem.collective not in given.op:
            continue
        for row in rows(problem, given.size or list(SIZES)):
            print(row, flush=True)


if __name__ == "__main__":
    main()
