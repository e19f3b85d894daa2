#!/usr/bin/env python3
"""How a table serves the sizes between those that were tuned, in the model, without its noise.

    scripts/bench/bench_between_sizes.py [--machines shipped:h100-8gpu-8nic] [--step 4]

Each machine is tuned on the simulated backend. Then each eighth of an octave between two sizes is
looked up in the table, and what a job would run there is timed against NCCL's own choice. `slower`
counts the sizes at which it takes more than 1 % longer, `worst` is the least ratio and its size,
`ladder` the geometric mean over the sizes without those that were added, `between` that over all
sizes looked up. With `--step 4` no sizes are added where NCCL's own choice changes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.lookup import lookup  # noqa: E402
from tuccl.api.tuning import tune  # noqa: E402
from tuccl.measuring.backends.backend_choice import open_backend  # noqa: E402
from tuccl.options.run_options import SIMULATED, RunOptions  # noqa: E402
from tuccl.quantities import format_size, parse_size  # noqa: E402
from tuccl.reports.tuning_result import TuningResult, read_machine  # noqa: E402
from tuccl.search.trials.backend import Backend  # noqa: E402
from tuccl.search.trials.config import STOCK, ProcessProfile, Task  # noqa: E402
from tuccl.tuning.pipeline.carried_table import calls_of  # noqa: E402
from tuccl.tuning.pipeline.preparing import prepare  # noqa: E402
from tuccl.tuning.pipeline.shape_schedules import saved_schedules  # noqa: E402

_OCTAVE = 8
_SLOWER = 0.99


def main() -> None:
    """Tune each machine, and print a row for each operation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machines", default="shipped:h100-8gpu-8nic,shipped:a100-8gpu-8nic")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--budget", help="machine time of a run, as 60s")
    parser.add_argument("--step", type=int, help="tune exactly each size times this factor")
    parser.add_argument("--schedules", action="store_true", help="search schedules, as `init` does")
    parser.add_argument("--min-size", default="64K", help="smallest size that is looked up")
    parser.add_argument("--max-size", default="4M", help="largest size that is looked up")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    smallest, largest = parse_size(given.min_size), parse_size(given.max_size)
    print("machine  seed  operation  keys  ladder  between  slower  worst")
    for machine in given.machines.split(","):
        for seed in range(given.seeds):
            options = RunOptions(
                topology=machine,
                nodes=given.nodes,
                schedules=given.schedules,
                budget=given.budget,
                step=given.step,
                seed=seed,
                shapes="whole",
            )
            with tempfile.TemporaryDirectory() as workspace:
                result = tune(options=options, workspace=workspace)
                _compare(machine, options, result, sizes_between(smallest, largest))


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Return each eighth of an octave from `smallest` to `largest`, in whole 256 bytes."""
    sizes, step = [], 0
    while (size := round(smallest * 2 ** (step / _OCTAVE) / 256) * 256) <= largest:
        sizes.append(size)
        step += 1
    return sizes


def _compare(machine: str, options: RunOptions, result: TuningResult, sizes: list[int]) -> None:
    prepared = prepare(options, lambda: read_machine(result.run))
    candidates = saved_schedules(
        prepared.topology, prepared.settings, result.run, {prepared.shape}, ()
    )
    request = replace(prepared.request(candidates), spread=0.0)
    with open_backend(SIMULATED, request) as backend:
        for operation in prepared.settings.operations:
            ladder = prepared.settings.sizes_of(operation, prepared.shape)
            keys = sum(key.operation is operation for key in result.report.keys)
            ratios = {
                size: _ratio(backend, result, Task(operation, size, prepared.shape))
                for size in (*ladder, *sizes)
            }
            between = {size: ratios[size] for size in sizes}
            worst = min(between, key=between.__getitem__)
            slower = [size for size, ratio in between.items() if ratio < _SLOWER]
            print(
                f"{machine}  {options.seed}  {operation}  {keys}  "
                f"{geometric_mean(ratios[size] for size in ladder):.4f}  "
                f"{geometric_mean(between.values()):.4f}  {len(slower)} of {len(sizes)}  "
                f"{between[worst]:.3f} at {format_size(worst)}",
                flush=True,
            )


def _ratio(backend: Backend, result: TuningResult, task: Task) -> float:
    """Time of stock NCCL over that of what a job with the table runs."""
    entry = lookup(result.table, task.operation, task.size_bytes, task.shape)
    profile = ProcessProfile.of(tuple(result.table.profile.items()))
    call = profile.default if entry is None else calls_of(entry, profile)[0]
    stock, own = (backend.measure(task, config, 0, 1).samples_us[0] for config in (STOCK, call))
    return stock / own


if __name__ == "__main__":
    main()
