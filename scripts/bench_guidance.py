"""What leaving sketches out by their figures costs and saves, beside trying all of them.

Every sketch candidate of every entry with at most --gpus GPUs is searched and timed as `tuccl
synthesize` does it. Then the choice among those that the guidance keeps is held against the choice
among all: the loss in modelled time, and the seconds of one core that the others took.

    python scripts/bench_guidance.py bench_topologies.json --op all_gather --size 1M

Exit code 1: some choice is more than 0.5 % slower.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from probes.files.bench_topologies import read_bench_topologies  # noqa: E402
from sketches.candidates import sketch_candidates  # noqa: E402
from sketches.sketch import Sketch  # noqa: E402
from synthesizer.errors import SynthesisError  # noqa: E402
from synthesizer.ir.collectives import Collective  # noqa: E402
from tuccl.schedules.guidance import guided, worth_trying  # noqa: E402
from tuccl.schedules.schedule_choice import Request, choose_schedule  # noqa: E402
from tuccl.words.sizes import parse_size  # noqa: E402

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "alltoall")
SIZES = ("1K", "1M", "64M", "1G")
MOST_LOST = 0.005


@dataclass
class Totals:
    """Over all cells."""

    sketches: int = 0
    left_out: int = 0
    seconds: float = 0.0
    saved_s: float = 0.0
    guiding_s: float = 0.0
    losses: list[float] = field(default_factory=list)


def main() -> int:
    """Prints a row per operation and size of machines that have several candidates."""
    given = arguments()
    totals = Totals()
    print(f"{'entry':16} {'operation':14} {'size':>5} {'lost':>7} {'s':>6} {'saved':>6}  left out")
    for name, bench in read_bench_topologies(given.file).items():
        sketches = sketch_candidates(bench.topology)
        if given.entry and name not in given.entry:
            continue
        if len(bench.topology.gpus) > given.gpus or len(sketches) < 2:
            continue
        for operation in given.op or COLLECTIVES:
            collective = Collective(operation)
            started = time.process_time()
            told = guided([collective], sketches)
            totals.guiding_s += time.process_time() - started
            for size in given.size or SIZES:
                print(f"{name:16} {row(collective, size, told, totals)}", flush=True)
    print(
        f"{totals.left_out} of {totals.sketches} sketches left out, at most "
        f"{max(totals.losses):.2%} lost; {totals.saved_s:.0f} of {totals.seconds:.0f} s saved, "
        f"{totals.guiding_s:.2f} s for bounds"
    )
    return int(max(totals.losses) > MOST_LOST)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="benchmark topologies, JSON")
    parser.add_argument("--entry", action="append", help="only these entries")
    parser.add_argument("--op", action="append", choices=COLLECTIVES, help="only these operations")
    parser.add_argument("--size", action="append", help="instead of 1K, 1M, 64M and 1G")
    parser.add_argument("--gpus", type=int, default=16, help="of the largest machine")
    return parser.parse_args()


def row(collective: Collective, size: str, sketches: tuple[Sketch, ...], totals: Totals) -> str:
    """One cell; every sketch is tried, kept or not."""
    request = Request(collective, parse_size(size), time_limit_s=5.0)
    best_us: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for sketch in sketches:
        started = time.process_time()
        try:
            best_us[sketch.name] = choose_schedule(request, [sketch]).best.weighed_us
        except SynthesisError:
            best_us[sketch.name] = float("inf")
        seconds[sketch.name] = time.process_time() - started
    _, reasons = worth_trying(collective, sketches, [request.size_bytes])
    left_out = {name: f"{name} ({best_us[name] / min(best_us.values()):.3f})" for name in reasons}
    kept_us = min(time_us for name, time_us in best_us.items() if name not in left_out)
    lost = kept_us / min(best_us.values()) - 1
    saved_s = sum(seconds[name] for name in left_out)
    totals.sketches += len(sketches)
    totals.left_out += len(left_out)
    totals.seconds += sum(seconds.values())
    totals.saved_s += saved_s
    totals.losses.append(lost)
    return (
        f"{collective:14} {size:>5} {lost:7.2%} {sum(seconds.values()):6.1f} {saved_s:6.1f}  "
        f"{', '.join(left_out.values())}"
    )


if __name__ == "__main__":
    sys.exit(main())
