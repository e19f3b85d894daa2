"""Tuning: selects the process profile, and decides for every key whether a call gets an entry.

1. Stock NCCL is timed on every key: the reference of the run, and the basis for its budget. For a
   workload the times also weigh the keys (`tuccl.tuning.run_keys`).
2. Process profiles race over all keys at once (`tuccl.tuning.profile_race`): one table has one
   profile. Where there is a floor and jobs can run schedules, the searches of schedules begin
   before, since the floor counts what a job gets (`tuccl.tuning.served_keys`).
3. Under the winner each key is searched separately, from the best calls of the race and of a size
   beside it. Built-ins and schedules are searched apart, because a job without the executor
   needs the best built-in even where a schedule is faster. Schedules across hosts call NCCL, so
   they are timed under the profile, too.
4. The finalists of each key are compared with NCCL's own choice under the profile, in turn, and
   their data is checked. Where communicators of its shape differ by where their ranks sit, winners
   are timed there, too, and left out if they are slower (`tuccl.tuning.placing.safety`).
5. Where neighbouring sizes have different winners, the border between them is located.
6. Stock NCCL is timed once more. The difference from its first times shows how much starts differ,
   and its times for the table come from both. Entries that are not clear of the difference have to
   be confirmed over several starts of the workers. Where the difference is large all entries have
   to be, and keys may borrow the winner of a neighbouring size (`tuccl.tuning.confirmation`). If
   winners change by that, borders are located once more.
7. If the profile keeps a key above the floor only by a schedule that won no entry after all, that
   key is left to NCCL and everything from the race on is done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lookup_tables.table import Shape
from tuccl.errors import ProfileLostError
from tuccl.search.strategies.strategy import SearchResult
from tuccl.search.strategies.warm import WarmStart
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.events import Progress, Watch, unwatched
from tuccl.search.trials.space import with_profile
from tuccl.tuning.guaranteed_minimum import KeyRatio
from tuccl.tuning.profile_race import RaceResult
from tuccl.tuning.run.results import SearchSpaces, Tuned, TuningResult
from tuccl.tuning.run.stages import Run
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.measurement_log import MeasurementLog

_SCHEDULES_SHARE = 0.6
"""Share of the seconds for searches that the search of NCCL's settings leaves to that of schedules,
which has the larger space and wins most keys."""


def tune(
    settings: RunSettings,
    shape: Shape,
    spaces: SearchSpaces,
    log: MeasurementLog,
    progress: Progress,
    *,
    seconds_pass: bool = False,
    watch: Watch = unwatched,
    earlier: WarmStart | None = None,
) -> TuningResult:
    """Tune all keys of a run.

    Args:
        settings: Operations, sizes, strategy, seed, budget.
        shape: Shape of the communicator of all GPUs.
        spaces: Spaces of the backend.
        log: Measures, and stores the samples.
        progress: Receives the progress after each key.
        seconds_pass: Whether measurements take the seconds that they report; a model's do not.
        watch: Receives the events of the run.
        earlier: An earlier table that the result is compared with.

    Raises:
        MeasurementError: when the backend cannot go on, or stock NCCL cannot run a key.
    """
    run = Run(
        settings,
        keys_of(settings, shape),
        spaces,
        log,
        progress,
        watch,
        seconds_pass=seconds_pass,
        earlier=earlier,
    )
    stock_us = run.stock.begin()
    run.weigh(stock_us)
    served = run.served_by_schedules(stock_us)
    while True:
        tuned = _from_the_race_on(run, spaces, stock_us, served)
        lost = [task for task in tuned.raced.by_schedule if not tuned.confirmed[task].schedule]
        if not lost:
            break
        served = {task: key for task, key in served.items() if task not in lost}
    return run.result(tuned)


def tune_again(
    settings: RunSettings,
    warm: WarmStart,
    spaces: SearchSpaces,
    log: MeasurementLog,
    progress: Progress,
    *,
    seconds_pass: bool = False,
    watch: Watch = unwatched,
) -> TuningResult:
    """Tune some keys of an earlier table again, under its process profile.

    Each search begins with what was best before. Arguments are those of `tune`.

    Raises:
        ProfileLostError: the profile is under the floor on this machine now, or keeps a key above
            it only by a schedule that won no entry.
        MeasurementError: as for `tune`.
    """
    run = Run(
        settings, warm.tasks, spaces, log, progress, watch, seconds_pass=seconds_pass, warm=warm
    )
    stock_us = run.stock.begin()
    run.weigh(stock_us)
    run.plan()
    builtins = _search_builtins(run, spaces, warm.profile, {})
    raced = run.hold_profile(stock_us, warm, builtins)
    tuned = _under_the_winner(run, spaces, raced, builtins)
    lost = [task for task in raced.by_schedule if not tuned.confirmed[task].schedule]
    if lost:
        raise ProfileLostError(f"{lost[0].full_name} is under the floor without its schedule")
    return run.result(tuned)


def _from_the_race_on(
    run: Run,
    spaces: SearchSpaces,
    stock_us: Mapping[Task, float],
    served: Mapping[Task, KeyRatio],
) -> Tuned:
    """Race profiles, search under the winner, decide and confirm.

    Args:
        run: The run.
        spaces: Spaces of the backend.
        stock_us: Stock NCCL's time by key.
        served: Ratios of the schedules that serve keys.
    """
    raced = run.race_profiles(stock_us, served)
    builtins = _search_builtins(run, spaces, raced.winner, raced.calls)
    return _under_the_winner(run, spaces, raced, builtins)


def _search_builtins(
    run: Run,
    spaces: SearchSpaces,
    profile: ProcessProfile,
    calls: Mapping[Task, Sequence[Config]],
) -> dict[Task, SearchResult]:
    """Search NCCL's settings under a profile, from these calls."""
    return run.search(
        "one profile",
        lambda task: with_profile(spaces.builtins(task), profile),
        calls,
        left_over=_SCHEDULES_SHARE if spaces.jobs_run_schedules else 0.0,
    )


def _under_the_winner(
    run: Run,
    spaces: SearchSpaces,
    raced: RaceResult,
    builtins: Mapping[Task, SearchResult],
) -> Tuned:
    """Search schedules under the profile that was selected, decide and confirm."""
    profile = raced.winner
    looked = run.looked_at(profile)
    schedules = run.search(
        "schedules' parameters", lambda task: with_profile(spaces.schedules(task), profile), looked
    )
    found = {
        task: tuple(results[task] for results in (builtins, schedules) if task in results)
        for task in run.tasks
    }
    decisions = {
        task: run.decide(
            task, found[task], [raced.calls.get(task, ()), looked.get(task, ())], profile
        )
        for task in run.tasks
    }
    decisions = run.left_out_where_slower(decisions, profile)
    run.end_confirmation()
    ranges = run.locate(decisions, profile)
    run.stock.again()
    confirmed, starts = run.confirm_over_starts(decisions, raced)
    confirmed = run.left_out_where_slower(confirmed, profile)
    if any(confirmed[task].winner != decisions[task].winner for task in run.tasks):
        ranges = run.locate(confirmed, profile)
    return Tuned(raced, found, confirmed, ranges, starts)
