"""Compare all search strategies on a measured record, by their cost.

    python scripts/bench/bench_search.py              # 27 keys, joint space
    python scripts/bench/bench_search.py --keys 8 --seeds 4 --strategies mraco,coordinate

A search is run to the largest budget; at every smaller one it is forked, so that each figure is
that of a search with exactly this budget, its final choice included (no strategy knows its
budget). A budget is a share of the seconds that measuring the whole grid of a key once takes. The
truth is the median of a configuration's samples in the record; a sample costs its time times the
calls of a launch; restarts are free here. Regret: how much slower the choice is than the best.

Shares come with their standard error over keys (the seeds of a key are no independent machines).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from regret_report import Outcome, table  # noqa: E402
from search_problems import (  # noqa: E402
    MODELLED,
    Problem,
    mirrored,
    model_problems,
    noisier,
    record_problems,
)

from tuccl.errors import BudgetSpentError  # noqa: E402
from tuccl.search.strategies.final_choice import RESERVE, chosen, confirm_rivals  # noqa: E402
from tuccl.search.strategies.meter import Meter  # noqa: E402
from tuccl.search.strategies.strategies import make_strategy  # noqa: E402
from tuccl.search.trials.config import Config  # noqa: E402

RECORD = ROOT.parent / "shared/data/replay/h200x4_nvlink_nccl2.28.9.csv"
STRATEGIES = (
    "mraco,tpe,tpe@1,optuna-hyperband,coordinate,coordinate@1,algorithm-1,random,random@1,grid"
)
SHARES: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.1)


class ForkingMeter(Meter):
    """Ends a search at every budget, and lets it go on to the next."""

    def __init__(self, problem: Problem, seed: int, shares: Sequence[float]) -> None:
        """Start with the smallest budget."""
        super().__init__(problem.measure_of(seed), problem.max_repeats)
        self._problem, self._seed = problem, seed
        self._waiting = sorted(shares)
        self.ends: list[tuple[float, Meter]] = []
        self._next()

    def affords(self, config: Config, repeats: int) -> bool:
        """Return as `Meter` does at the largest budget."""
        while not super().affords(config, repeats):
            if not self._waiting:
                return False
            self.end()
        return True

    def end(self) -> None:
        """Record the choice of a search that ends at the next budget."""
        share = self._waiting.pop(0)
        fork = Meter(self._problem.measure_of(self._seed), self.max_repeats)
        for config in self.configs:
            fork.reach(config, self.count(config))
        for config in self.failures:
            fork.reach(config, 1)
        fork.limit_s = share * self._problem.grid_s
        confirm_rivals(fork)
        self.ends.append((share, fork))
        self._next()

    def end_all(self) -> None:
        """Record the choice at every budget that was not reached."""
        while self._waiting:
            self.end()

    def _next(self) -> None:
        if self._waiting:
            self.limit_s = (1.0 - RESERVE) * self._waiting[0] * self._problem.grid_s


def cold(strategy: str, problem: Problem, seed: int, shares: Sequence[float]) -> list[Outcome]:
    """Outcomes of one search at each budget."""
    meter = ForkingMeter(problem, seed, shares)
    with suppress(BudgetSpentError):
        make_strategy(strategy).explore(problem.space, meter, (), seed)
    meter.end_all()
    return [_outcome(strategy, problem, seed, share, chosen(end), end) for share, end in meter.ends]


def _outcome(
    strategy: str, problem: Problem, seed: int, share: float, choice: Config | None, meter: Meter
) -> Outcome:
    return Outcome(
        strategy=strategy,
        key=problem.name,
        seed=seed,
        share=share,
        regret=problem.regret(choice),
        spent=meter.spent_s / problem.grid_s,
        tried=meter.tried,
    )


_Job = tuple[str, str, int, tuple[float, ...]]
_PROBLEMS: dict[str, Problem] = {}
"""Problems by name, in a global variable that the processes inherit."""


def _run(job: _Job) -> list[Outcome]:
    strategy, name, seed, shares = job
    return cold(strategy, _PROBLEMS[name], seed, shares)


def _run_all(jobs: Sequence[_Job], processes: int) -> list[Outcome]:
    """Run all jobs over processes; return results in order, with progress on standard error."""
    outcomes: list[Outcome] = []
    started = time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        results: Iterable[list[Outcome]] = pool.imap(_run, jobs)
        for done, found in enumerate(results, 1):
            outcomes += found
            if done % max(1, len(jobs) // 20) == 0:
                seconds = time.monotonic() - started
                print(f"{done} of {len(jobs)} searches, {seconds:.0f} s", file=sys.stderr)
    return outcomes


def main() -> None:
    """Run and tabulate."""
    given = _arguments()
    strategies = given.strategies.split(",")
    problems = _problems(given)
    problems = problems[:: max(1, len(problems) // given.keys)] if given.keys else problems
    shares = tuple(float(share) / 100 for share in given.shares.split(",") if share) or SHARES
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    outcomes = search_all(problems, strategies, seeds, shares, given.jobs)
    print(table(outcomes, strategies, shares, given.within / 100))


def _problems(given: argparse.Namespace) -> list[Problem]:
    if given.machine:
        return model_problems(MODELLED[given.machine], given.noise)
    problems = record_problems(given.record)
    if given.mirrored:
        problems = [mirrored(each) for each in problems]
    return [noisier(each, given.noise) for each in problems] if given.noise else problems


def search_all(
    problems: Sequence[Problem],
    strategies: Sequence[str],
    seeds: Sequence[int],
    shares: tuple[float, ...],
    processes: int,
) -> list[Outcome]:
    """Outcomes of every strategy on every problem with every seed, at every budget."""
    _PROBLEMS.update({problem.name: problem for problem in problems})
    jobs = [
        (strategy, problem.name, seed, shares)
        for seed in seeds
        for strategy in strategies
        for problem in problems
    ]
    return _run_all(jobs, processes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add: Callable[..., object] = parser.add_argument
    add("--record", type=Path, default=RECORD, help="a grid as CSV")
    add("--machine", choices=tuple(MODELLED), help="a machine in the model, in place of the record")
    add(
        "--noise",
        type=float,
        default=0.0,
        help="spread of samples, in place of the record's; 0.1 over TCP",
    )
    add("--mirrored", action="store_true", help="turn every axis of the record round")
    add("--within", type=float, default=1.0, help="regret of what counts as found, in per cent")
    add("--strategies", default=STRATEGIES)
    add("--shares", default="", help="budgets in per cent of the grid's seconds")
    add("--seeds", type=int, default=20)
    add("--first-seed", type=int, default=0)
    add("--keys", type=int, default=0, help="about so many keys, evenly spread; 0: all")
    add("--jobs", type=int, default=multiprocessing.cpu_count())
    return parser.parse_args()


if __name__ == "__main__":
    main()
