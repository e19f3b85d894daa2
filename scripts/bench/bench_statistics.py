"""Measure how often the rules on noise are mistaken, and how often they find gains.

Entries: keys of three communicator shapes, of no gain and of gains of 3, 10 and 100 %, each with
two finalists that gain alike, go through the decision in one start and the confirmation over
restarts, as in `tuccl init`, within a budget.
Profiles: one of 8 keys gets the named share of stock NCCL's speed, the others all of it; the
profile is judged by one visit, and by starts in turn with stock NCCL.

Runs: whole runs of `tuccl init`, from stock NCCL's times to the table, over the same keys, whose
neighbours mostly gain alike; a schedule gains 100 %, a setting of NCCL 10 % at the same sizes.

    bench_statistics.py [--seeds 400] [--first-seed 0] [--part entries|profiles|runs]
                        [--budgets 60,120]

Every figure is a share with its standard error. Exit code 1: more than 1 % of the keys that gain
nothing got an entry.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from noisy_machine import (  # noqa: E402
    BIMODAL,
    CROWDED,
    DRIFT,
    HANGING,
    LANES,
    NODE,
    NVSWITCH,
    RAIL,
    STALLING,
    TCP,
    UNEVEN,
    WHOLE,
    Noise,
    NoisyMachine,
    time_with_stalls,
)

from lookup_tables.collective import Collective  # noqa: E402
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task  # noqa: E402
from tuccl.search.trials.shapes import NamedShape, ShapeName  # noqa: E402
from tuccl.search.trials.space import SPELLED_OUT, Family, Space  # noqa: E402
from tuccl.tuning.confirmation import held_against_starts  # noqa: E402
from tuccl.tuning.decision import Decision, decide  # noqa: E402
from tuccl.tuning.guaranteed_minimum import Finalist, Floor, Rounds, compare_in_turn  # noqa: E402
from tuccl.tuning.profile_verdicts import Verdicts  # noqa: E402
from tuccl.tuning.profile_visits import Visitor  # noqa: E402
from tuccl.tuning.results import SearchSpaces  # noqa: E402
from tuccl.tuning.searches import TuningMeans  # noqa: E402
from tuccl.tuning.settings import RunSettings  # noqa: E402
from tuccl.tuning.spending import Spending  # noqa: E402
from tuccl.tuning.stock_times import StockTimes  # noqa: E402
from tuccl.tuning.tune import tune  # noqa: E402
from tuccl.workspace.measurement_log import MeasurementLog  # noqa: E402

NOISES = (NVSWITCH, TCP, BIMODAL, DRIFT, UNEVEN, HANGING, STALLING)
SIZES = tuple(1 << bits for bits in range(10, 26, 2))
TASKS = tuple(
    Task(Collective.ALL_REDUCE, size, shape) for shape in (NODE, RAIL, WHOLE) for size in SIZES
)
GAINS = (1.0, 1.03, 1.0, 1.10, 1.0, 2.0, 1.03, 1.10) * 3
"""True gain of each key; keys with and without gain alternate, as sizes do."""
BUDGETS_S = (60.0, 120.0, 240.0)
"""Of a table's decisions and starts: what 3 % of it, half of it, and all of it pay for."""
FINALISTS = (Config("tree", "LL", 4), Config("ring", "LL", 2))
PROFILE = ProcessProfile(buffer_bytes=1 << 20)
WORST = (1.0, 0.995, 0.985, 0.97)
FLOOR = 0.99
_AXES = ((256, 0), (1 << 20, 0), (0, 32))
SPACES = SearchSpaces(
    lambda _: Space(
        "settings",
        (
            Family("default", "", (0,), *_AXES),
            *(Family("ring", protocol, (1, 2, 4, 8, 16), *_AXES) for protocol in ("LL", "Simple")),
        ),
    ),
    lambda _: Space(
        "schedules",
        tuple(
            Family(f"schedule:{name}", "LL", (1, 2, 4, 8, 16), (128, 256, 512), (1 << 20, 4 << 20))
            for name in "ab"
        ),
    ),
    jobs_run_schedules=True,
)
"""The spaces of whole runs."""
KEYS = TASKS[16:]
MOST_MISTAKEN = 0.01


@dataclass(frozen=True)
class Share:
    """A count and its whole, as a share."""

    count: int
    whole: int

    @property
    def value(self) -> float:
        """Share between 0 and 1; 0 for an empty whole."""
        return self.count / self.whole if self.whole else 0.0

    def __str__(self) -> str:
        """Per cent with the standard error."""
        error = math.sqrt(self.value * (1.0 - self.value) / max(1, self.whole))
        return f"{self.value:.2%} ± {error:.2%}"


@dataclass(frozen=True)
class EntryRates:
    """Outcomes of keys by their true gain."""

    entered: dict[float, Share]
    mistaken: Share
    """Share of entries that gain nothing."""
    starts: float
    """Starts of the workers per table."""


@dataclass(frozen=True)
class ProfileRates:
    """Outcomes of profiles whose worst keys have the same speedup."""

    ruled_out: Share
    """Share ruled out by one visit."""
    cleared: Share
    """Share cleared by one visit."""
    held: Share
    """Share that held after starts in turn with stock NCCL."""
    proved: Share
    """Share of the same profiles that were clear of the floor."""
    starts: float
    """Rounds of starts."""


def sample_s(task: Task) -> float:
    """Seconds of a sample: a launch of several calls, of which large ones take longer."""
    return 0.004 * math.pow(1.4, math.log(task.size_bytes / SIZES[0], SIZES[1] / SIZES[0]))


def entry_rates(noise: Noise, seeds: Sequence[int], budget_s: float = math.inf) -> EntryRates:
    """Rates over tables, one per seed."""
    gain_of = dict(zip(TASKS, GAINS, strict=True))
    entered, tried = Counter[float](), Counter[float]()
    starts = 0
    for seed in seeds:
        machine = NoisyMachine(
            noise,
            TASKS,
            lambda task, config: gain_of[task] if config in FINALISTS else 1.0,
            seed,
            sample_s,
        )
        decisions = decided(machine, budget_s)
        starts += machine.starts
        for index, (task, shown) in enumerate(gain_of.items()):
            # A job that waits for a call's stalls loses by it.
            gain = 1.0 if index in noise.stalling else shown
            tried[gain] += 1
            entered[gain] += decisions[task].has_entry
    return EntryRates(
        {gain: Share(entered[gain], tried[gain]) for gain in sorted(tried)},
        Share(entered[1.0], entered.total()),
        starts / len(seeds),
    )


def decided(machine: NoisyMachine, budget_s: float) -> dict[Task, Decision]:
    """Decide as `tuccl.tuning.tune` does when stock NCCL's profile has won the race."""
    spending = Spending(cast(MeasurementLog, machine), budget_s)
    stock = StockTimes(TASKS, spending, lambda *_, **__: None)
    stock.begin()
    spending.measure(TASKS[0], SPELLED_OUT.default, 1)  # Another start, as after the race.
    decisions = {
        task: decide(
            builtins=FINALISTS,
            schedules=(),
            profile_default=STOCK,
            measure=partial(samples_us, spending, task),
            taken=partial(spending.asked, task),
        )
        for task in TASKS
    }
    spending.measure(TASKS[0], SPELLED_OUT.default, 2)
    stock.again()
    confirmed, _ = held_against_starts(decisions, STOCK, spending, stock, lambda _: None)
    return confirmed


def samples_us(spending: Spending, task: Task, config: Config, repeats: int) -> tuple[float, ...]:
    """All samples of a call so far."""
    return spending.measure(task, config, repeats).samples_us


class Machine:
    """The calls of a run, and how fast they are: the keys of a shape gain alike in pairs."""

    kinds = (1.0, 1.03, 1.10, 2.0)

    def __init__(self, noise: Noise, seed: int) -> None:
        """Rotate the kinds of keys by the seed."""
        self.gain = {
            task: self.kinds[(SIZES.index(task.size_bytes) // 2 + seed) % len(self.kinds)]
            for task in TASKS
        }
        self.noisy = NoisyMachine(noise, TASKS, self.speed, seed, sample_s)

    def speed(self, task: Task, config: Config) -> float:
        """Speed of a call over stock NCCL's choice; all profiles are alike."""
        if config.is_default:
            return 1.0
        gain = self.gain[self.noisy.key_of(task)]
        off = abs(math.log2(config.nchannels / 4.0))
        if config.is_schedule:
            best = 2.0 if gain == max(self.kinds) else 0.9
            off += (config.nthreads != 512) + (config.buffer_bytes != 4 << 20)
            other = 0.95 if self.noisy.noise.stalling_schedule else 0.7
            return best * math.pow(0.93, off) * (1.0 if config.schedule == "a" else other)
        best = min(gain, 1.10) if gain > 1.0 else 0.97
        return best * math.pow(0.95, off) * (1.0 if config.protocol == "LL" else 0.85)


def run_rates(noise: Noise, seeds: Sequence[int], budget_s: float) -> tuple[EntryRates, str]:
    """Rates over whole runs, and the mean gain with the seconds that they took."""
    entered, tried = Counter[float](), Counter[float]()
    mistaken, logs, spent_s = 0, 0.0, 0.0
    settings = RunSettings(
        (Collective.ALL_REDUCE,),
        SIZES,
        budget_s=budget_s,
        shapes=tuple(
            NamedShape(name, shape)
            for name, shape in zip(
                (ShapeName.NODE, ShapeName.RAIL, ShapeName.WHOLE), (NODE, RAIL, WHOLE), strict=True
            )
        ),
    )
    starts = 0
    for seed in seeds:
        machine = Machine(noise, seed)
        log = cast(MeasurementLog, machine.noisy)
        means = TuningMeans(settings, SPACES, log, lambda *_, **__: None)
        result = tune(means, WHOLE)
        starts += machine.noisy.starts
        spent_s += result.spent_s
        for key in result.keys:
            winner, gain = key.decision.winner, machine.gain[key.task]
            speed = 1.0
            if winner is not None:
                speed = machine.speed(key.task, winner) / time_with_stalls(noise, winner)
            tried[gain] += 1
            # Half of the gain, at least, is found.
            entered[gain] += winner is not None if gain == 1.0 else speed >= math.sqrt(gain)
            mistaken += winner is not None and speed <= 1.0
            logs += math.log(speed)
    keys = tried.total()
    rates = EntryRates(
        {gain: Share(entered[gain], tried[gain]) for gain in sorted(tried)},
        Share(mistaken, max(1, entered.total())),
        starts / len(seeds),
    )
    return rates, f"{math.exp(logs / keys):.3f} | {spent_s / len(seeds):.0f} s"


def profile_rates(noise: Noise, worst: float, seeds: Sequence[int]) -> ProfileRates:
    """Rates of one profile per seed, by a visit and by starts in turn with stock NCCL."""
    count: Counter[str] = Counter()
    rounds = 0
    for seed in seeds:
        machine = NoisyMachine(
            noise,
            TASKS,
            lambda task, call: worst if task == KEYS[3] and call.profile == PROFILE else 1.0,
            seed,
        )
        spending = Spending(cast(MeasurementLog, machine))
        visited(spending, count)
        calls = {task: (PROFILE.default, PROFILE.applied_to(FINALISTS[0])) for task in KEYS}
        found = compare_in_turn(
            Rounds([Finalist(PROFILE, calls)], spending.fresh), FLOOR, lambda _: True
        )
        count["held"] += found[PROFILE].holds
        count["proved"] += found[PROFILE].proved
        rounds += found[PROFILE].starts
    ruled_out, cleared, held, proved = (
        Share(count[name], len(seeds)) for name in ("ruled out", "cleared", "held", "proved")
    )
    return ProfileRates(ruled_out, cleared, held, proved, rounds / len(seeds))


def visited(spending: Spending, count: Counter[str]) -> None:
    """Count the verdicts of one visit."""
    stock = StockTimes(KEYS, spending, lambda *_, **__: None)
    families = tuple(
        Family(call.algorithm, call.protocol, (call.nchannels,), (0,), (0,)) for call in FINALISTS
    )
    spaces = {task: Space("two calls", families) for task in KEYS}
    visitor = Visitor(spaces, spending.measure, stock.begin(), {})
    visit = visitor.visit(PROFILE)
    verdicts = Verdicts(Floor(FLOOR, spending.fresh), {PROFILE: visit})
    count["ruled out"] += not verdicts.on(visit).holds
    count["cleared"] += verdicts.needs_no_starts(visit)


def entry_rows(seeds: Sequence[int], budgets_s: Sequence[float]) -> Iterator[tuple[str, bool]]:
    """Lines of the table of entries, each with whether it meets the limit."""
    yield "| noise | budget | no gain | 3 % | 10 % | 100 % | entries of no gain | starts |", True
    yield "|---|---|---|---|---|---|---|---|", True
    for noise in NOISES:
        for budget_s in budgets_s:
            rates = entry_rates(noise, seeds, budget_s)
            cells = " | ".join(str(rates.entered[gain]) for gain in sorted(set(GAINS)))
            line = f"| {noise.name} | {budget_s:.0f} s | {cells} "
            line += f"| {rates.mistaken} | {rates.starts:.1f} |"
            yield line, rates.entered[1.0].value <= MOST_MISTAKEN


def run_rows(seeds: Sequence[int], budgets_s: Sequence[float]) -> Iterator[tuple[str, bool]]:
    """Lines of the table of whole runs."""
    head = "| noise | budget | no gain | 3 % | 10 % | 100 % | entries of no gain | mean gain "
    yield head + "| spent | starts |", True
    yield "|---|---|---|---|---|---|---|---|---|---|", True
    for noise in (*NOISES[:4], CROWDED, LANES):
        for budget_s in budgets_s:
            rates, mean = run_rates(noise, seeds, budget_s)
            cells = " | ".join(str(rates.entered[gain]) for gain in sorted(rates.entered))
            line = f"| {noise.name} | {budget_s:.0f} s | {cells} | {rates.mistaken} | {mean} "
            yield f"{line}| {rates.starts:.1f} |", True


def profile_rows(seeds: Sequence[int]) -> Iterator[tuple[str, bool]]:
    """Lines of the table of profiles."""
    yield "| noise | worst key | visit: under | visit: clear | holds | proved | rounds |", True
    yield "|---|---|---|---|---|---|---|", True
    for noise in NOISES:
        for worst in WORST:
            profile = profile_rates(noise, worst, seeds)
            cells = " | ".join(
                str(share)
                for share in (profile.ruled_out, profile.cleared, profile.held, profile.proved)
            )
            yield f"| {noise.name} | {worst:.3f} | {cells} | {profile.starts:.1f} |", True


def main(say: Callable[[str], None] = print) -> int:
    """Print the tables; return 1 if a line misses the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=400, help="tables, and profiles of each kind")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--part", choices=("entries", "profiles", "runs"), help="one table alone")
    parser.add_argument("--budgets", default=",".join(f"{s:.0f}" for s in BUDGETS_S))
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    budgets_s = [float(budget_s) for budget_s in given.budgets.split(",")]
    parts = {
        "entries": entry_rows(seeds, budgets_s),
        "profiles": profile_rows(seeds),
        "runs": run_rows(seeds[:40], budgets_s),
    }
    kept = True
    for name, part in parts.items():
        for line, keeps in part if given.part in (None, name) else ():
            say(line)
            kept = kept and keeps
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
