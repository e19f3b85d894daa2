"""The paper's tables and figures in the model, each by one command, beside the printed figures.

    python scripts/bench/paper.py configurations         # Table III and Figure 2
    python scripts/bench/paper.py links                  # Table II and Figure 5a
    python scripts/bench/paper.py gains                  # Figures 3, 4, 6 and 7
    python scripts/bench/paper.py gains --record FILE    # the ablation, from a run's record
    python scripts/bench/paper.py across                 # the same for machines that are not even
    python scripts/bench/paper.py search                 # Figure 5b

The machines are those of `paper_clusters.py`, for `across` those of `bench_across_hosts.py`.
Schedules run step by step on the model of the executor (docs/reference/simulated-backend.md),
because MSCCL's interpreter is not among the models. A sample has noise of `--noise`; a search
measures samples, and what it chose is then judged without noise. An interval is the least and the
most of all seeds.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench_across_hosts import MACHINES  # noqa: E402
from bench_search import search_all  # noqa: E402
from paper_clusters import (  # noqa: E402
    DEFAULT,
    OPERATIONS,
    Schedules,
    clusters,
    configured,
    schedules_of,
    table_iv,
)
from regret_report import GOOD, Outcome  # noqa: E402
from search_problems import Problem, Remembered, model_problem  # noqa: E402

from lookup_tables.collective import Collective  # noqa: E402
from probes.topology.graph import Topology  # noqa: E402
from sketches.candidates import whole_machine  # noqa: E402
from sketches.sketch import Sketch  # noqa: E402
from synthesizer.ir.algorithm import Algorithm  # noqa: E402
from tuccl.measuring.backends.simulated import SimulatedBackend  # noqa: E402
from tuccl.measuring.records.reading import read_records  # noqa: E402
from tuccl.measuring.records.record import Record  # noqa: E402
from tuccl.models.figures import communicator_shape  # noqa: E402
from tuccl.quantities import format_size, parse_size  # noqa: E402
from tuccl.schedules.candidates import Candidate  # noqa: E402
from tuccl.schedules.executor_schedules import executor_space  # noqa: E402
from tuccl.schedules.staged_candidates import (  # noqa: E402
    RoundsRequest,
    candidates_across_hosts,
)
from tuccl.search.statistics.intervals import Interval, interval_of_two_starts  # noqa: E402
from tuccl.search.strategies.meter import Meter  # noqa: E402
from tuccl.search.strategies.mraco import Mraco  # noqa: E402
from tuccl.search.strategies.strategy import run_search  # noqa: E402
from tuccl.search.trials.backend import Measured  # noqa: E402
from tuccl.search.trials.config import STOCK, Config, Task  # noqa: E402
from tuccl.search.trials.presets import nccl_space  # noqa: E402
from tuccl.search.trials.space import AXES, Space, nearest_to_own  # noqa: E402

REPEATS = 9
STRATEGIES = ("mraco", "algorithm-1", "tpe", "coordinate", "random", "grid")
SHARES = (0.003, 0.01, 0.03)
MOST = 0.9
"""Share of searches within 1 % of the best at which a budget is enough."""
TABLE_III = {
    "C0": ("full mesh", 1, 4),
    "C1": ("full mesh", 1, 8),
    "C2": ("full mesh", 4, 4),
    "C3": ("relay", 1, 8),
    "C4": ("relay", 4, 4),
    "C5": ("relay", 4, 8),
}
"""Sketch, channels, buffer in MB; Simple and 512 threads throughout."""
PRINTED = {
    ("V100", Collective.ALL_GATHER): "sketch 3.2, configuration 3.5, joint 4 (Figure 6); "
    "1.75 on three servers to 4.82 on two (Figure 3)",
    ("V100", Collective.ALL_REDUCE): "sketch 2.3, configuration 2.5, joint 5 (Figure 6); "
    "1.97 to 11.49 (Figure 3)",
    ("A100", Collective.ALL_GATHER): "sketch or configuration alone 1.27 to 1.52, joint 4.85 "
    "(Figure 7); up to 5.35 (Figure 4)",
    ("A100", Collective.ALL_REDUCE): "sketch or configuration alone 1.27 to 1.52, joint 4.85 "
    "(Figure 7); up to 7.09 (Figure 4)",
}
PRINTED_UTILISATION = {"V100": (5.77, 0.47), "A100": (24.78, 2.79)}
"""Table II, in per cent: all_gather, all_reduce."""


class Model:
    """One operation on one cluster."""

    def __init__(
        self, topology: Topology, candidates: Mapping[str, Candidate], noise: float
    ) -> None:
        """Backends are kept, because each simulates every configuration once."""
        self._candidates = candidates
        self._topology = topology
        self._noise = noise
        self.backend = lru_cache(maxsize=None)(self._backend)
        """The model with the noise of a seed; without noise for None."""

    def _backend(self, seed: int | None) -> SimulatedBackend:
        spread = 0.0 if seed is None else self._noise
        return SimulatedBackend(self._topology, self._candidates, seed or 0, spread)

    def task(self, operation: Collective, size_bytes: int) -> Task:
        """Return a key of all GPUs."""
        return Task(operation, size_bytes, communicator_shape(self._topology))

    def time_us(self, task: Task, config: Config) -> float:
        """Return the time without noise."""
        return self.backend(None).measure(task, config, 0, 1).samples_us[0]


@dataclass(frozen=True)
class Case:
    """One operation on one of the paper's clusters."""

    topology: Topology
    operation: Collective
    schedules: Schedules
    model: Model


def cases(given: argparse.Namespace) -> list[Case]:
    """Synthesize for every cluster and operation that was asked for."""
    found = []
    for topology in clusters():
        if given.cluster in topology.name:
            for operation in filter(lambda each: given.operation in each.value, given.of):
                print(f"synthesizing: {topology.name}, {operation}", file=sys.stderr)
                schedules = schedules_of(topology, operation)
                model = Model(topology, schedules.all, given.noise)
                found.append(Case(topology, operation, schedules, model))
    return found


def configurations(given: argparse.Namespace) -> None:
    """Print Table III's configurations in the model."""
    given.cluster = "2 x 8 A100"
    size_bytes = 4 << 30
    rows = []
    for case in cases(given):
        operation, model = case.operation, case.model
        task = model.task(operation, size_bytes)
        relays = [each for each in case.schedules.sketched if each.origin == "relay"]
        for name, (sketch, channels, buffer_mb) in TABLE_III.items():
            config = replace(DEFAULT, nchannels=channels, buffer_bytes=buffer_mb << 20)
            candidates = relays if sketch == "relay" else [case.schedules.default]
            times_us = [model.time_us(task, configured(each, config)) for each in candidates]
            rows.append((operation.value, name, sketch, channels, buffer_mb, min(times_us)))
    columns = ["operation", "configuration", "sketch", "channels", "buffer MB", "time_us"]
    frame = pd.DataFrame(rows, columns=columns)
    default_us = frame.groupby("operation")["time_us"].transform("first")
    frame["GB/s"] = size_bytes * 1e-3 / frame["time_us"]
    frame["to C0"] = default_us / frame.pop("time_us")
    print(f"2 x 8 A100, {format_size(size_bytes)}, Simple, 512 threads\n")
    show(frame)
    print(
        "\nprinted: C1 to C3 up to 1.049 of C0; the best 4.85 (all_gather) and 3.83 (all_reduce)\n"
        'not comparable: how the paper\'s "Relay" sketch was drawn is not printed; here it is the\n'
        "sketch `relay`, with the fastest schedule on it"
    )


def links(given: argparse.Namespace) -> None:
    """Print link utilisation on the all-to-all sketch and on TuCCL's."""
    rows = []
    for case in cases(given):
        topology, operation, model = case.topology, case.operation, case.model
        for size_bytes in given.sizes:
            task = model.task(operation, size_bytes)
            default = case.schedules.default
            times_us = {
                each.content_hash: model.time_us(task, configured(each, DEFAULT))
                for each in (default, *case.schedules.sketched)
            }
            best = min(case.schedules.sketched, key=lambda each: times_us[each.content_hash])
            row: list[object] = [topology.name, operation.value, format_size(size_bytes)]
            for each in (default, best):
                time_us = times_us[each.content_hash]
                busy = utilisation(each.steps, each.sketch, case.schedules.mesh, task, time_us)
                row += [each.origin, *busy]
            printed = PRINTED_UTILISATION[topology.name.split()[-1]]
            rows.append([*row, printed[OPERATIONS.index(operation)]])
    columns = ["cluster", "operation", "size", "sketch", "links %", "network %"]
    columns += ["best sketch", "its links %", "its network %", "printed default %"]
    show(pd.DataFrame(rows, columns=columns))
    print(
        "\nprinted for TuCCL (Figure 5a): up to 18.45 % more on V100 and 34.46 % more on A100\n"
        "links: the mean share of the call's time for which a link carries data, over all ways\n"
        "between GPUs (a direction of an NVLink, a GPU's way into the NVSwitches, a NIC);\n"
        "network: the NICs alone. C0 for both, under which data fills a link to 77 % at most.\n"
        "not comparable: the paper prints neither sizes nor the links that it counts"
    )


def utilisation(
    algorithm: Algorithm, sketch: Sketch, mesh: Sketch, task: Task, time_us: float
) -> tuple[float, float]:
    """Return the mean share of the time, in per cent, that links are busy: all, and NICs."""
    rates = {port.name: port.bandwidth_gb_per_s for port in mesh.ports}
    for edge in mesh.edges:
        if not edge.ports:
            rates[f"{edge.src} to {edge.dst}"] = edge.bandwidth_gb_per_s
    sent = dict.fromkeys(rates, 0.0)
    chunk_bytes = task.size_bytes / algorithm.chunks_per_loop
    for gpu in algorithm.programs:
        for block in gpu.threadblocks:
            for step in block.steps:
                if step.type.sends:
                    edge = sketch.edge[gpu.rank, block.send_peer]
                    for port in edge.ports or (f"{edge.src} to {edge.dst}",):
                        sent[port] += step.count * chunk_bytes
    shares = pd.Series({port: 1e-1 * sent[port] / rates[port] / time_us for port in rates})
    nics = shares[shares.index.str.startswith(("tx:", "rx:"))]
    return float(shares.mean()), float(nics.mean()) if len(nics) else math.nan


def gains(given: argparse.Namespace) -> None:
    """Print the ablation by size: sketch only, configuration only, joint."""
    if given.record is not None:
        show(recorded_gains(read_records(given.record)))
        print(
            "\nstock: NCCL with nothing set. configuration: the best of NCCL's own settings.\n"
            "sketch: the best schedule and protocol with the parameters that are nearest to\n"
            "NCCL's own (most channels, 512 threads, 4 MB). joint: the best of all. The best has\n"
            "the least upper bound, as in a search; times are medians of the search's samples, so\n"
            "the best of many flatters itself. Intervals are those of two starts (99.7 %), with\n"
            "the deviation of all samples of a key."
        )
        return
    for case in cases(given):
        topology, operation, model = case.topology, case.operation, case.model
        rows = []
        for size_bytes in given.sizes:
            task = model.task(operation, size_bytes)
            default_us = model.time_us(task, configured(case.schedules.default, DEFAULT))
            found = [ablation(case, task, seed) for seed in range(given.seeds)]
            chosen = pd.DataFrame(found, columns=["sketch", "configuration", "joint"])
            ratios = default_us / chosen
            rows.append(
                (
                    format_size(size_bytes),
                    size_bytes * 1e-3 / default_us,
                    size_bytes * 1e-3 / chosen["joint"].median(),
                    *(_ratio(ratios[arm].tolist()) for arm in ratios),
                )
            )
        columns = ["size", "default GB/s", "joint GB/s", "sketch", "configuration", "joint"]
        print(f"\n{topology.name}, {operation}; times the default's speed", flush=True)
        show(pd.DataFrame(rows, columns=columns))
        print(f"printed: {PRINTED[topology.name.split()[-1], operation]}")
    print(
        "\ndefault: the all-to-all sketch with configuration C0. GB/s are size / time\n"
        "not comparable: printed speedups are of measured bandwidths against MSCCL, at sizes that\n"
        "the text does not name; the figures' curves are not printed as numbers"
    )


def ablation(case: Case, task: Task, seed: int) -> tuple[float, float, float]:
    """Return true times in us of what is chosen: by sketch, by configuration, by both."""
    schedules = (case.schedules.default, *case.schedules.sketched)
    plain = [configured(each, DEFAULT) for each in schedules]
    return chosen_us(
        case.model, task, seed, plain, table_iv([case.schedules.default]), table_iv(schedules)
    )


def chosen_us(
    model: Model,
    task: Task,
    seed: int,
    plain: Sequence[Config],
    configurations: Space,
    joint: Space,
) -> tuple[float, float, float]:
    """Return true times in us: of the best of some schedules, and of what two searches choose."""
    measure = Remembered(model.backend(seed), task)
    by_sketch = min(plain, key=lambda config: median(measure(config, REPEATS).samples_us))
    found = (by_sketch, *(searched(space, measure, seed) for space in (configurations, joint)))
    by_sketch_us, configured_us, joint_us = (model.time_us(task, config) for config in found)
    return by_sketch_us, configured_us, joint_us


def across(given: argparse.Namespace) -> None:
    """Print the ablation on the machines of `bench_across_hosts.py`, against stock NCCL."""
    rows = []
    for name in given.machines.split(","):
        topology = MACHINES[name][1]()
        for operation in filter(lambda each: given.operation in each.value, OPERATIONS):
            print(f"synthesizing: {name}, {operation}", file=sys.stderr)
            request = RoundsRequest(operation, topology, whole_machine(topology), given.sizes)
            candidates = candidates_across_hosts(request)
            model = Model(topology, {each.content_hash: each for each in candidates}, given.noise)
            for size_bytes in given.sizes:
                task = model.task(operation, size_bytes)
                fitting = [each for each in candidates if each.promises_for(size_bytes)]
                schedules = executor_space(fitting, size_bytes)
                plain = [each for each in schedules if _is_plain(each, list(schedules))]
                builtins = nccl_space(operation, task.shape)
                joint = replace(builtins, families=(*builtins.families, *schedules.families))
                chosen = [
                    chosen_us(model, task, seed, plain, builtins, joint)
                    for seed in range(given.seeds)
                ]
                stock_us = model.time_us(task, STOCK)
                ratios = [[stock_us / us for us in arm] for arm in zip(*chosen, strict=True)]
                key = (name, operation.value, format_size(size_bytes), stock_us)
                rows.append((*key, *map(_ratio, ratios)))
    columns = ["machine", "operation", "size", "stock us", "sketch", "configuration", "joint"]
    show(pd.DataFrame(rows, columns=columns))
    print(
        "\ntimes the speed of stock NCCL. configuration: one pass of MRACO over NCCL's own\n"
        "settings. sketch: the best candidate across hosts with the parameters that are nearest\n"
        "to NCCL's own. joint: one pass of MRACO over all"
    )


def searched(space: Space, measure: Remembered, seed: int) -> Config:
    """Return what a pass of MRACO chooses."""
    meter = Meter(measure, REPEATS)
    return run_search(Mraco(max_cycles=1), space, meter, seed=seed).ranking[0].config


def recorded_gains(record: Record) -> pd.DataFrame:
    """Return a row for each key of a record; what was not tried is NaN."""
    rows = []
    for task in record.tasks:
        found = {
            config: recorded.samples_us
            for config in record.configs(task)
            if (recorded := record.row(task, config)) is not None and recorded.samples_us
        }
        if STOCK in found:
            meter = _metered(found)
            schedules = [config for config in found if config.is_schedule]
            plain = [config for config in schedules if _is_plain(config, schedules)]
            builtins = [config for config in found if not config.is_schedule]
            ratios = [_best_ratio(meter, arm) for arm in (plain, builtins, list(found))]
            rows.append((task.name, meter.time_us(STOCK), *ratios))
    return pd.DataFrame(rows, columns=["key", "stock us", "sketch", "configuration", "joint"])


def _metered(found: Mapping[Config, tuple[float, ...]]) -> Meter:
    """Return a meter that holds recorded samples, in us."""
    meter = Meter(lambda config, _: Measured(found[config], 0.0), 1)
    for config in found:
        meter.reach(config, 1)
    return meter


def _is_plain(config: Config, schedules: Sequence[Config]) -> bool:
    """Whether a schedule has NCCL's own parameters, with which its search begins."""
    family = (config.algorithm, config.protocol)
    own = [each for each in schedules if (each.algorithm, each.protocol) == family]
    return all(
        getattr(config, axis) == nearest_to_own(axis, {getattr(each, axis) for each in own})
        for axis in AXES
    )


def _best_ratio(meter: Meter, arm: Sequence[Config]) -> str:
    if not arm:
        return ""
    best = min(arm, key=lambda config: (meter.bound_us(config, 1.0), config))
    ratio = meter.time_us(STOCK) / meter.time_us(best)
    error = math.hypot(*(meter.error(meter.count(config)) for config in (STOCK, best)))
    return _interval(ratio, interval_of_two_starts(ratio, error, meter.error(1)))


def _ratio(ratios: Sequence[float]) -> str:
    return _interval(median(ratios), Interval(min(ratios), max(ratios)))


def _interval(ratio: float, around: Interval) -> str:
    return f"{ratio:.2f} ({around.low:.2f} to {around.high:.2f})"


def search(given: argparse.Namespace) -> None:
    """Print the least budget at which strategies find the best configuration."""
    problems = []
    for case in cases(given):
        for size_bytes in given.sizes:
            problem = _problem(case, case.model.task(case.operation, size_bytes))
            problems.append(replace(problem, name=f"{case.topology.name}, {problem.name}"))
    outcomes = search_all(problems, STRATEGIES, range(given.seeds), SHARES, given.jobs)
    rows: list[list[object]] = []
    for problem in problems:
        row: list[object] = [problem.name, problem.grid_s]
        rows.append([*row, *(_least(outcomes, strategy, problem.name) for strategy in STRATEGIES)])
    print("budget for 9 of 10 searches within 1 % of the best, in per cent of the grid's seconds")
    print("(with fewer than 10 seeds: for all of them)\n")
    show(pd.DataFrame(rows, columns=["key", "grid s", *STRATEGIES]))
    rows = [[each, *(_quality(outcomes, each, share) for share in SHARES)] for each in STRATEGIES]
    print("\nsearches within 1 % of the best; median and worst regret in per cent\n")
    show(pd.DataFrame(rows, columns=["strategy", *(f"{share:.1%}" for share in SHARES)]))
    print(
        "\nprinted: MRACO takes up to 90.2 % less time than the grid, at the same quality, nearly\n"
        "linear in the size of the system\n"
        "the space: Table IV's, with 1 channel as well, for the default's schedule and the\n"
        "fastest sketched one. not comparable: which schedules the paper searched, its R and eta"
    )


def _problem(case: Case, task: Task) -> Problem:
    """The default's schedule and the fastest of the others, in Table IV's space."""
    schedules, model = case.schedules, case.model
    others = {each: model.time_us(task, configured(each, DEFAULT)) for each in schedules.sketched}
    fastest = min(others, key=lambda each: others[each])
    space = table_iv([schedules.default, fastest])
    return model_problem(model.backend, task, space, REPEATS)


def _least(outcomes: Sequence[Outcome], strategy: str, key: str) -> str:
    for share in SHARES:
        regrets = [
            each.regret
            for each in outcomes
            if (each.strategy, each.key, each.share) == (strategy, key, share)
        ]
        if sum(regret <= GOOD for regret in regrets) >= MOST * len(regrets):
            return f"{share:.1%}"
    return f"> {SHARES[-1]:.0%}"


def _quality(outcomes: Sequence[Outcome], strategy: str, share: float) -> str:
    regrets = [each.regret for each in outcomes if (each.strategy, each.share) == (strategy, share)]
    good = sum(regret <= GOOD for regret in regrets) / len(regrets)
    return f"{good:.0%}, {100 * median(regrets):.2f} / {100 * max(regrets):.1f}"


def show(frame: pd.DataFrame) -> None:
    """Print a table."""
    print(frame.to_string(index=False, float_format="{:.2f}".format), flush=True)


def main() -> None:
    """Run what was asked for."""
    given = _arguments()
    given.run(given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for run, sizes, seeds in (
        (configurations, "", 0),
        (links, "1M,1G", 0),
        (gains, "1K,1M,32M,1G", 3),
        (across, "1M,16M,256M", 3),
        (search, "1M", 3),
    ):
        description = (run.__doc__ or "").rstrip(".")
        command = commands.add_parser(run.__name__, help=description, description=description)
        command.set_defaults(run=run, cluster="", operation="", noise=0.02, of=OPERATIONS)
        if sizes:
            parsed = [parse_size(size) for size in sizes.split(",")]
            command.add_argument("--sizes", type=_sizes, default=parsed, help=f"default {sizes}")
            command.add_argument("--cluster", default="", help="part of a cluster's name")
            command.add_argument("--operation", default="", help="part of an operation's name")
        if seeds:
            command.add_argument("--seeds", type=int, default=seeds, help=f"default {seeds}")
            command.add_argument("--noise", type=float, default=0.02, help="default 0.02")
        if run is across:
            machines = ",".join(MACHINES)
            command.add_argument("--machines", default=machines, help=f"default {machines}")
        if run is gains:
            command.add_argument("--record", type=Path, help="record of a run with schedules")
        if run is search:
            command.set_defaults(of=(*OPERATIONS, Collective.REDUCE_SCATTER))
            command.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    return [parse_size(size) for size in text.split(",")]


if __name__ == "__main__":
    main()
