"""What a whole table costs and gains on a record: one process profile, restarts priced.

The record is replayed as a machine on which every change of the process profile costs a restart.
For each seed a table is tuned as `tuccl tune` does, with a share of the seconds that
measuring the whole record would take, and held against the best table that any single profile of
the record allows, found by looking at everything. Truth is the median of a configuration's samples.

    python scripts/bench_table.py ../shared/data/replay/h200x4_nvlink_nccl2.28.9.csv --seeds 20
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tuccl.backends.replay import RESTART_S, ReplayBackend  # noqa: E402
from tuccl.inputs.machine import MachineOptions, load_machine  # noqa: E402
from tuccl.records.grid_csv import read_grid_csv, topology_beside  # noqa: E402
from tuccl.records.record import Record  # noqa: E402
from tuccl.records.record_file import read_record  # noqa: E402
from tuccl.trials.config import STOCK, Config, ProcessProfile, Task  # noqa: E402
from tuccl.trials.space import Space, space_of  # noqa: E402
from tuccl.tuning.settings import RunSettings  # noqa: E402
from tuccl.tuning.tune import SearchSpaces, TuningResult, tune  # noqa: E402
from tuccl.workspace.measurement_log import MeasurementLog  # noqa: E402


@dataclass(frozen=True)
class Outcome:
    """One table."""

    seed: int
    profile: str
    profiles_visited: int
    seconds: float
    gain: float
    """Geometric mean over stock, by the record's medians."""
    share_of_best: float
    entries: int
    worst: float
    """Least gain of a key."""


def main() -> None:
    """Tune with each seed, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.2, help="of the record's seconds")
    parser.add_argument("--strategy", default="mraco")
    parser.add_argument("--floor", type=float, default=0.0, help="least gain of a key; 0: none")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    record = record_of(given.record)
    truth = {task: times_us(record, task) for task in record.tasks}
    best_profile, best_gain = best_single_profile(truth)
    whole_s = grid_seconds(record)
    outcomes = [
        tuned(record, truth, seed, given.share * whole_s, given.strategy, best_gain, given.floor)
        for seed in range(given.seeds)
    ]
    if given.json:
        best = {"profile": best_profile, "gain": best_gain, "grid_seconds": whole_s}
        print(json.dumps({"best": best, "tables": [asdict(one) for one in outcomes]}, indent=2))
        return
    print(f"{len(truth)} keys; measuring all of it and a restart per profile: {whole_s:.1f} s")
    print(f"best table of a single profile: {best_gain:.4f} over stock, {best_profile}")
    print(" seed  seconds visited entries    gain  of best  worst")
    for one in outcomes:
        print(
            f"{one.seed:>4} {one.seconds:8.2f} {one.profiles_visited:>7} {one.entries:>7} "
            f"{one.gain:7.4f} {one.share_of_best:8.4f} {one.worst:6.3f}  {one.profile}"
        )
    shares = [one.share_of_best for one in outcomes]
    print(f"share of the best: median {median(shares):.4f}, least {min(shares):.4f}")


def record_of(path: Path) -> Record:
    """A record in Parquet, or a grid's CSV with its machine beside it."""
    if path.suffix != ".csv":
        return read_record(path)
    machine = load_machine(MachineOptions(str(topology_beside(path))))
    return read_grid_csv(path, machine)


def times_us(record: Record, task: Task) -> dict[Config, float]:
    """The record's median of every configuration of a key."""
    rows = ((config, record.row(task, config)) for config in record.configs(task))
    return {config: median(row.samples_us) for config, row in rows if row and row.samples_us}


def best_single_profile(truth: dict[Task, dict[Config, float]]) -> tuple[str, float]:
    """By looking at everything: the profile with the best geometric mean over stock."""
    gains: dict[ProcessProfile, float] = {}
    profiles = {config.profile for times in truth.values() for config in times} - {STOCK.profile}
    for profile in sorted(profiles):
        best = [
            min((us for config, us in times.items() if config.profile == profile), default=math.inf)
            for times in truth.values()
        ]
        gains[profile] = geometric_mean(
            [times[STOCK] / us for times, us in zip(truth.values(), best, strict=True)]
        )
    winner = max(gains, key=lambda profile: gains[profile])
    return winner.default.describe(), gains[winner]


def grid_seconds(record: Record) -> float:
    """What measuring the record took: its launches, and a restart for each profile."""
    rows = [row for row in record.rows if row.config != STOCK]
    launches_s = sum(
        sum(row.samples_us) * 1e-6 * record.timing.calls(row.size_bytes) for row in rows
    )
    return launches_s + RESTART_S * len({row.config.profile for row in rows})


def shuffled(record: Record, seed: int) -> Record:
    """The record with the samples of each configuration in another order."""
    rng = random.Random(seed)  # noqa: S311 - an order, no secret
    rows = [
        replace(row, samples_us=tuple(rng.sample(row.samples_us, len(row.samples_us))))
        for row in record.rows
    ]
    return replace(record, rows=tuple(rows))


def tuned(
    record: Record,
    truth: dict[Task, dict[Config, float]],
    seed: int,
    budget_s: float,
    strategy: str,
    best_gain: float,
    floor: float = 0.0,
) -> Outcome:
    """A table tuned on the record."""
    result = tune_record(shuffled(record, seed), seed, budget_s, strategy, floor)
    gains = []
    entries = 0
    for key in result.keys:
        winner = key.decision.builtin
        entries += winner is not None
        config = result.profile.default if winner is None else winner.config
        gains.append(truth[key.task][STOCK] / truth[key.task][config])
    gain = geometric_mean(gains)
    return Outcome(
        seed=seed,
        profile=result.profile.default.describe(),
        profiles_visited=len(result.race.visits),
        seconds=result.spent_s,
        gain=gain,
        share_of_best=gain / best_gain,
        entries=entries,
        worst=min(gains),
    )


def tune_record(
    record: Record, seed: int, budget_s: float, strategy: str, floor: float = 0.0
) -> TuningResult:
    """`tuccl tune` on the replay backend."""
    tasks = record.tasks
    settings = RunSettings(
        operations=tuple(sorted({task.operation for task in tasks})),
        sizes_bytes=tuple(sorted({task.size_bytes for task in tasks})),
        backend="replay",
        seed=seed,
        strategy=strategy,
        budget_s=budget_s,
        floor=floor or None,
    )
    backend = ReplayBackend(record, seed)
    spaces = SearchSpaces(
        builtins=lambda task: space_of("record", record.configs(task)),
        schedules=lambda _: Space("no executor", ()),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasurementLog(Path(folder) / "log", backend, "bench") as log,
    ):
        return tune(settings, record.shape, spaces, log, lambda *_: None)


def geometric_mean(values: list[float]) -> float:
    """Of positive values."""
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    main()
