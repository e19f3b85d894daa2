#!/usr/bin/env python3
"""Run jobs that learn from an empty table (TUCCL_LEARN), beside stock NCCL and a shipped table.

    check_learn.py DIR [--rounds 3] [--steps 500] [--learning 300] [--calls 20000] [--compute 64M]
                   [--step ddp] [--json FILE]

DIR is a directory of `tuccl ship` for the GPUs of this host, with its `table.parquet`. Each round
runs three jobs, a process for each GPU: stock NCCL; DIR's table; and a table without entries that
learns, whose runners-up are DIR's entries and its runners-up.
A step makes the calls of an eager step of data-parallel training (`ddp`: all_reduces of 1 MB and
eight of 25 MB; `fsdp`: of 16 layers two all_gathers and a reduce_scatter of 8 MB) on one stream,
while another one reads twice --compute bytes; the next step begins when both have ended. The host
is four steps ahead at most.

Then --calls random calls with DIR's table and with the empty one, both learning: whole numbers of
float32, from eager calls, groups and CUDA graphs, on two streams, compared bit for bit with NCCL
past the executor (sums of whole numbers are exact in any order).

It prints the steps' times and what was learned. Exit code 0: after --learning steps the job that
learned has 80 % of the table's gain over stock NCCL, or more; until then its steps are not slower
than stock NCCL's by 2 % in the mean; and no random call differs. 1: one of these does not hold.
Needs NVIDIA GPUs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from check_at_start import (  # noqa: E402
    RIGHT,
    STOCK,
    WRONG,
    conclude,
    contenders_of,
    run_check,
    run_ranks,
)
from check_guard import BLOCK, found_in, job_arguments, job_of, rank_work  # noqa: E402

from lookup_tables.bundles.bundle_writer import bundle_bytes  # noqa: E402
from lookup_tables.lookup import (  # noqa: E402
    MOST_RUNNER_UP_SCHEDULES,
    MOST_RUNNERS_UP,
    key_order,
)
from lookup_tables.table import RunnersUp, Table, schedules_of  # noqa: E402
from tuccl.reports.learned import LearnedKey, read_learned  # noqa: E402
from tuccl.shipping.bench.contenders import ShippedTable  # noqa: E402

LEARNING, TABLE_LEARNING = "empty table, learning", "table, learning"
STEPS = {
    "ddp": [("all_reduce", 1 << 20), *[("all_reduce", 25 << 20)] * 8],
    "fsdp": [("all_gather", 8 << 20), ("all_gather", 8 << 20), ("reduce_scatter", 8 << 20)] * 16,
    "small": [("all_gather", 16 << 10), ("all_reduce", 16 << 10), ("all_reduce", 1 << 10)],
}
LEAST_SHARE, MOST_SLOWER = 0.8, 1.02


def empty_bundle(shipped: ShippedTable, table: Table, _: int) -> bytes:
    """Return the bundle of a shipped table without entries, which become runners-up."""
    runners_up = {own.key: own for own in table.runners_up}
    for entry in table.entries:
        own = runners_up.get(entry.key, RunnersUp(entry.key))
        if entry.schedule is not None:
            schedules = (entry.schedule, *own.schedules)[:MOST_RUNNER_UP_SCHEDULES]
            own = replace(own, schedules=schedules)
        if entry.builtin is not None:
            own = replace(own, settings=(entry.builtin, *own.settings)[:MOST_RUNNERS_UP])
        runners_up[entry.key] = own
    ranked = tuple(sorted(runners_up.values(), key=lambda own: key_order(own.key)))
    used = schedules_of((), ranked)
    empty = replace(
        table,
        entries=(),
        runners_up=ranked,
        schedules=tuple(own for own in table.schedules if own.content_hash in used),
        placements=(),
        sums=(),
    )
    return bundle_bytes(empty, shipped.bundle.facts)


def run_job(
    given: argparse.Namespace, folder: Path, part: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a process for each GPU; return the times of its steps and what it learned.

    Raises:
        JobError: A rank died or hung, or ranks ran different calls.
    """
    job = job_of(given, part, first_step=0)
    results, _ = run_ranks(Path(__file__), given.ranks, folder, job, environment)
    return {**found_in(results), "learned": learned_in(folder)}


def learned_in(folder: Path) -> list[dict[str, Any]]:
    """Return what a job's processes learned."""
    files = sorted(folder.glob("learned-*.json"))
    return [shown(key) for key in read_learned(files).keys] if files else []


def shown(key: LearnedKey) -> dict[str, Any]:
    """Return what was learned of a size."""
    return {
        "key": f"{key.operation.value} {key.size_bytes}",
        "calls": key.calls,
        "races": key.races,
        "runs": key.chosen.text,
        "gain": key.gain,
        "refused": [arm.text for arm in key.arms if arm.refused],
        "us": {arm.text: arm.time_us for arm in key.arms},
    }


def judge(
    steps: Mapping[str, Sequence[Mapping[str, Any]]],
    randoms: Mapping[str, Mapping[str, Any]],
    learning: int,
) -> dict[str, Any]:
    """Return the verdicts, and the figures that they follow from."""
    first = learning // BLOCK
    after = {
        name: median(median(job["times_us"][first:]) for job in jobs)
        for name, jobs in steps.items()
    }
    # NCCL connects in the first block.
    until = {
        name: median(mean(job["times_us"][1:first]) for job in jobs) for name, jobs in steps.items()
    }
    table_gain, gain = after[STOCK] / after[RIGHT], after[STOCK] / after[LEARNING]
    on_the_way = until[LEARNING] / until[STOCK]
    different = {name: job["different_bytes"] for name, job in randoms.items()}
    return {
        "step_us": after,
        "step_us_until_then": until,
        "table_gain": table_gain,
        "gain": gain,
        "on_the_way": on_the_way,
        "different_bytes": different,
        "right": gain - 1.0 >= LEAST_SHARE * (table_gain - 1.0)
        and on_the_way <= MOST_SLOWER
        and not any(different.values()),
    }


def report(steps: Mapping[str, Sequence[Mapping[str, Any]]], verdict: Mapping[str, Any]) -> None:
    """Print the figures."""
    for name, step_us in verdict["step_us"].items():
        print(
            f"{name:22} step {step_us:10.1f} us, {verdict['step_us_until_then'][name]:.1f} before"
        )
    for key in steps[LEARNING][-1]["learned"]:
        gain = "-" if key["gain"] is None else f"{key['gain']:.3f}x"
        refused = f"; refused: {', '.join(key['refused'])}" if key["refused"] else ""
        print(f"{key['key']}: {key['runs']} ({gain}, {key['races']} races){refused}")
    print(
        f"gain over stock NCCL: table {verdict['table_gain']:.4f}x, learned "
        f"{verdict['gain']:.4f}x; while learning {verdict['on_the_way']:.4f} of its step"
    )
    for name, count in verdict["different_bytes"].items():
        print(f"random calls, {name}: {count} bytes differ from NCCL's")


def main() -> int:
    """Run all jobs, print the figures, and return the exit code."""
    parser = job_arguments(__doc__, rounds=3, steps=500)
    parser.add_argument("--learning", type=int, default=300, help="steps until it has learned")
    parser.add_argument("--step", choices=STEPS, default="ddp")
    given = parser.parse_args()
    given.keys = STEPS[given.step]
    steps: dict[str, list[dict[str, Any]]] = {STOCK: [], RIGHT: [], LEARNING: []}
    randoms: dict[str, dict[str, Any]] = {}
    with contenders_of(given, empty_bundle, "0ms") as (_, of, folder):
        for number in range(given.rounds):
            for place, (contender, jobs) in enumerate(steps.items()):
                here = folder / f"{number}-{place}"
                own = of[WRONG] | learns(here) if contender == LEARNING else of[contender]
                jobs.append(run_job(given, here, "steps", own))
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
        for contender, base in ((TABLE_LEARNING, RIGHT), (LEARNING, WRONG)):
            here = folder / f"random-{base}"
            randoms[contender] = run_job(given, here, "random", of[base] | learns(here))
    verdict = judge(steps, randoms, given.learning)
    report(steps, verdict)
    return conclude(given, {"verdict": verdict, "steps": steps, "random": randoms})


def learns(folder: Path) -> dict[str, str]:
    """Return the variables of a job that learns, whose processes write to a folder."""
    return {"TUCCL_LEARN": "1", "TUCCL_LEARN_FILE": f"{folder}/learned-%p.json"}


if __name__ == "__main__":
    run_check(main, rank_work)
