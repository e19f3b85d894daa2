"""Synthesize for the benchmark topologies; compare with the bounds.

Every sketch candidate of every entry is synthesized, expert algorithms are tried as well, and the
fastest under the plain alpha-beta model (no executor costs) is shown with its share of the bound:
by the worse of its times with the messages on a port in turn and with max-min fair rates.
Sizes are decimal (1 MB = 1e6 bytes, size as in nccl-tests), as the published figures are. With
--prove each winner is also verified, sent through XML and run on real data. --less takes the first
NIC or NVLink away from each machine; of the NVLinks into an NVSwitch, 25 GB/s. With --save, cells
that the file already has are left out, so a run that ended goes on.

    python scripts/bench/bench_synthesis.py FILE.json --entry dgx1_8xV100 --op all_gather --size 1MB
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.collective import COLLECTIVES, Collective  # noqa: E402
from probes.files.bench_topologies import BenchTopology, read_bench_topologies  # noqa: E402
from probes.topology.graph import DeviceKind, Link, LinkKind, Topology  # noqa: E402
from sketches.candidates import sketch_candidates, whole_machine  # noqa: E402
from sketches.sketch import Sketch  # noqa: E402
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s, time_bound  # noqa: E402
from synthesizer.experts import expert_algorithms  # noqa: E402
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml  # noqa: E402
from synthesizer.ir.algorithm import Algorithm  # noqa: E402
from synthesizer.plan.synthesize import SynthesisOptions, synthesize  # noqa: E402
from synthesizer.prove.verifier import verify  # noqa: E402
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule  # noqa: E402
from tests.synthesizer.emulator import expected_outputs, run  # noqa: E402
from tuccl.errors import (  # noqa: E402
    InfeasibleError,
    MachineError,
    ProgramError,
)

SIZES = {"1KB": 10**3, "64KB": 64 * 10**3, "1MB": 10**6, "64MB": 64 * 10**6, "1GB": 10**9}
WIRES = ExecutionModel()
NVLINK_GB_PER_S = 25.0


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the table."""

    entry: str
    collective: str
    size: str
    time_us: float
    """The worse of the next two, simulated."""
    told_us: float | None
    """Time that synthesis told; None for an expert algorithm."""
    in_turn_us: float
    fair_us: float
    algbw_gb_per_s: float
    bound_gb_per_s: float
    ratio: float
    """Share of the bound that follows from bandwidth, latency, and both at cuts."""
    bandwidth_ratio: float
    winner: str
    chunks: int
    steps: int
    seconds: float
    """Seconds of one core for all sketches, without experts, which are made once per entry."""
    proved: str


@dataclass(frozen=True, slots=True)
class Machine:
    """An entry of the benchmark with its sketches."""

    name: str
    sketches: tuple[Sketch, ...]
    whole: Sketch
    all_gather_bound_gb_per_s: float
    """The file's; infinite for a machine that lacks something."""


class Choice(NamedTuple):
    """A schedule for a cell."""

    label: str
    sketch: Sketch
    algorithm: Algorithm
    told_us: float | None = None


def main() -> None:
    """Print a row per cell as soon as it is known."""
    given = arguments()
    kept = given.save.read_text(encoding="utf-8") if given.save and given.save.exists() else ""
    known = {
        (row["entry"], row["collective"], row["size"]) for row in map(json.loads, kept.splitlines())
    }
    print(
        f"{'entry':16} {'operation':14} {'size':>5} {'told us':>11} "
        f"{'in turn us':>11} {'fair us':>11} {'GB/s':>8} {'bound':>8} {'of bound':>8} "
        f"{'of bw':>6} {'s':>6} {'chunks':>6} {'steps':>6}  winner; proof"
    )
    for name, bench in read_bench_topologies(given.file).items():
        machine = None
        if not given.entry or name in given.entry:
            machine = machine_of(name, bench, given.less)
        if machine is None:
            continue
        for collective in given.op or COLLECTIVES:
            sizes = [
                size
                for size in given.size or SIZES
                if (machine.name, collective, size) not in known
            ]
            for row in rows(machine, Collective.named(collective), sizes, given) if sizes else ():
                show(row)
                if given.save:
                    with given.save.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(row)) + "\n")


def machine_of(name: str, bench: BenchTopology, lacking: str | None) -> Machine | None:
    """The machine of an entry; None if it has nothing to take away, or falls apart without it."""
    if lacking is None:
        topology, bound = bench.topology, bench.all_gather_bound_gb_per_s
    elif lacking == "nic" and not bench.topology.nics:
        return None
    else:
        topology = without_nic(bench.topology) if lacking == "nic" else without_link(bench.topology)
        name, bound = f"{name}-{lacking}", float("inf")
    try:
        return Machine(name, sketch_candidates(topology), whole_machine(topology), bound)
    except MachineError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def without_nic(topology: Topology) -> Topology:
    """The machine less its first NIC."""
    nic = topology.nics[0].name
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.name != nic),
        links=tuple(link for link in topology.links if nic not in {link.src, link.dst}),
    )


def without_link(topology: Topology) -> Topology:
    """The machine less its first NVLink, or less 25 GB/s of it if it leads to an NVSwitch."""
    first = next(link for link in topology.links if link.kind is LinkKind.NVLINK)
    ends = {first.src, first.dst}
    switched = any(topology.device[end].kind is DeviceKind.NVSWITCH for end in ends)

    def less(link: Link) -> tuple[Link, ...]:
        if {link.src, link.dst} != ends:
            return (link,)
        left = link.bandwidth_gb_per_s - NVLINK_GB_PER_S
        return (replace(link, bandwidth_gb_per_s=left),) if switched else ()

    return replace(topology, links=tuple(kept for link in topology.links for kept in less(link)))


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="benchmark topologies, JSON")
    parser.add_argument("--entry", action="append", help="only these entries")
    parser.add_argument("--op", action="append", choices=COLLECTIVES, help="only these operations")
    parser.add_argument("--size", action="append", choices=SIZES, help="only these sizes")
    parser.add_argument("--time-limit", type=float, default=5.0, help="work of the solver, s")
    parser.add_argument("--sketch", help="only this sketch candidate")
    parser.add_argument("--less", choices=("nic", "link"), help="machines that lack one")
    parser.add_argument("--no-experts", action="store_true")
    parser.add_argument("--prove", action="store_true", help="verify, XML and real data")
    parser.add_argument("--save", type=Path, help="append rows to this file, a JSON object a line")
    return parser.parse_args()


def rows(
    machine: Machine, collective: Collective, sizes: list[str], given: argparse.Namespace
) -> Iterator[Row]:
    """Rows of these sizes of one operation."""
    experts = [] if given.no_experts else list(expert_choices(machine, collective))
    bound = algbw_bound_gb_per_s(collective, machine.whole)
    if collective in {Collective.ALL_GATHER, Collective.REDUCE_SCATTER}:
        bound = min(bound, machine.all_gather_bound_gb_per_s)
    least = time_bound(collective, machine.whole)
    for size in sizes:
        size_bytes = SIZES[size]
        started = time.process_time()
        routed = list(routed_choices(machine, collective, size_bytes, given))
        seconds = time.process_time() - started
        timed = [
            (compile_schedule(choice.algorithm, choice.sketch).times(size_bytes, WIRES), choice)
            for choice in [*routed, *experts]
        ]
        times, best = min(timed, key=lambda item: (item[0].worse_us, item[1].label))
        time_us = times.worse_us
        algbw = size_bytes * 1e-3 / time_us
        yield Row(
            entry=machine.name,
            collective=collective,
            size=size,
            time_us=time_us,
            told_us=best.told_us,
            in_turn_us=times.in_turn_us,
            fair_us=times.fair_us,
            algbw_gb_per_s=algbw,
            bound_gb_per_s=bound,
            ratio=max(least.time_us(size_bytes), size_bytes * 1e-3 / bound) / time_us,
            bandwidth_ratio=algbw / bound,
            winner=best.label,
            chunks=best.algorithm.chunks_per_loop,
            steps=best.algorithm.step_count,
            seconds=seconds,
            proved=prove(best.algorithm) if given.prove else "",
        )


def routed_choices(
    machine: Machine, collective: Collective, size_bytes: int, given: argparse.Namespace
) -> Iterator[Choice]:
    """Yield a synthesized schedule for every sketch."""
    for sketch in machine.sketches:
        if given.sketch not in {None, sketch.name}:
            continue
        options = SynthesisOptions(time_limit_s=given.time_limit)
        try:
            result = synthesize(collective, sketch, size_bytes, options)
        except InfeasibleError:
            continue
        yield Choice(f"{sketch.name}:routed", sketch, result.algorithm, result.timetable_us)


def expert_choices(machine: Machine, collective: Collective) -> Iterator[Choice]:
    """Yield the expert algorithms of every sketch."""
    for sketch in machine.sketches:
        try:
            for algorithm in expert_algorithms(collective, sketch):
                name = algorithm.name.removeprefix(f"{collective}_")
                yield Choice(f"{sketch.name}:{name}", sketch, algorithm)
        except ProgramError as error:
            print(f"{machine.name} {sketch.name}: no experts: {error}", file=sys.stderr)


def prove(algorithm: Algorithm) -> str:
    """Verify, read back from XML, and run on integers; return `proved` or the failure."""
    again = read_msccl_xml(write_msccl_xml(algorithm))
    if again.content_hash() != algorithm.content_hash():
        return "XML DIFFERS"
    verdict = verify(again)
    if not verdict.proved:
        return f"DISPROVED {verdict.defects[0].describe()}"
    rng = np.random.default_rng(7)
    per_rank = algorithm.programs[0].input_chunks
    inputs = [rng.integers(0, 1000, per_rank, dtype=np.int64) for _ in range(algorithm.ranks)]
    outputs = run(again, inputs)
    wanted = expected_outputs(algorithm.collective, inputs)
    right = all(np.array_equal(a, b) for a, b in zip(outputs, wanted, strict=True))
    return "proved" if right else "WRONG DATA"


def show(row: Row) -> None:
    """The row as one line of text."""
    print(
        f"{row.entry:16} {row.collective:14} {row.size:>5} {row.told_us or row.time_us:11.2f} "
        f"{row.in_turn_us:11.2f} {row.fair_us:11.2f} "
        f"{row.algbw_gb_per_s:8.2f} {row.bound_gb_per_s:8.2f} {row.ratio:8.3f} "
        f"{row.bandwidth_ratio:6.3f} {row.seconds:6.1f} {row.chunks:6} {row.steps:6}  "
        f"{'; '.join(filter(None, (row.winner, row.proved)))}",
        flush=True,
    )


if __name__ == "__main__":
    main()
