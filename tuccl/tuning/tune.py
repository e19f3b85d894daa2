"""Tuning: selects the process profile, and decides for every key whether a call gets an entry.

1. Stock NCCL is timed on every key: the reference of the run, and the basis for its budget. For a
   workload the times also weigh the keys (`tuccl.tuning.run_keys`).
2. Process profiles race over all keys at once (`tuccl.tuning.profile_race`): one table has one
   profile. If jobs can run schedules, every key has a first look at them before: the floor counts
   what a job gets (`tuccl.tuning.profile_visits`), and a short budget leaves nothing for a search.
3. Under the winner each key is searched separately, from the best calls of the race and of a size
   beside it. Built-ins and schedules are searched apart, because a job without the executor
   needs the best built-in even where a schedule is faster. Schedules across hosts call NCCL, so
   they are timed under the profile, too.
4. The finalists of each key are compared with NCCL's own choice under the profile, in turn, and
   their data is checked; so are winners of the sizes beside it that gain more there. Where
   communicators of its shape differ by where their ranks sit, winners are timed there, too, and
   left out if they are slower (`tuccl.tuning.placing.safety`).
5. Where neighbouring sizes have different winners, the border between them is located.
6. Stock NCCL is timed once more. The difference from its first times shows how much starts differ,
   and its times for the table come from both. Entries that are not clear of the difference have to
   be confirmed over several starts of the workers. Where the difference is large all entries have
   to be, and keys may borrow the winner of a neighbouring size (`tuccl.tuning.confirmation`). If
   winners change by that, borders are located once more.
   Where sums must not move, each key that reduces gets a winner whether it is faster or not, and
   its bits are checked in further starts (`tuccl.tuning.kept_sums`).
7. If the profile keeps a key above the floor only by a schedule that won no entry after all, and no
   setting of NCCL that did keeps it there, that key is left to NCCL and everything from the race on
   is done again.

Last the table is timed as a whole, where the backend runs jobs (`tuccl.tuning.whole_table`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lookup_tables.table import Shape
from tuccl.errors import ProfileLostError
from tuccl.search.strategies.strategy import SearchResult
from tuccl.search.strategies.warm import WarmStart
from tuccl.search.trials.config import Task
from tuccl.tuning.profile_race import RaceResult
from tuccl.tuning.results import Tuned, TunedKeys
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.searches import TuningMeans
from tuccl.tuning.stages import FirstLook, KeyTuning, Reserve


def tune(means: TuningMeans, shape: Shape, earlier: WarmStart | None = None) -> TunedKeys:
    """Tune all keys of a run.

    Args:
        means: Settings, spaces and log.
        shape: Shape of the communicator of all GPUs.
        earlier: An earlier table that the result is compared with.

    Raises:
        MeasurementError: The backend cannot go on, or stock NCCL cannot run a key.
    """
    run = KeyTuning(means, keys_of(means.settings, shape), earlier=earlier)
    look = run.first_look()
    while True:
        reserve = run.reserve()
        raced = run.race_profiles(look, reserve, shape)
        builtins = run.search_builtins(raced.winner, raced.calls, reserve)
        tuned = _under_the_winner(run, raced, look, builtins, reserve)
        if not (lost := run.lost(tuned)):
            return run.result(tuned)
        look = look.without(lost)


def tune_again(means: TuningMeans, warm: WarmStart) -> TunedKeys:
    """Tune some keys of an earlier table again, under its process profile.

    Each search begins with what was best before.

    Args:
        means: Settings, spaces and log.
        warm: The keys, and what is known of them.

    Raises:
        ProfileLostError: The profile is under the floor on this machine now, or keeps a key above
            it only by a schedule that won no entry, and no setting does.
        MeasurementError: As for `tune`.
    """
    run = KeyTuning(means, warm.tasks, warm=warm)
    reserve = run.reserve()
    builtins = run.search_builtins(warm.profile, {}, reserve)
    raced = run.hold_profile(warm, builtins)
    tuned = _under_the_winner(run, raced, FirstLook({}, {}), builtins, reserve)
    if lost := run.lost(tuned):
        raise ProfileLostError(f"{lost[0].full_name} is under the floor without its schedule")
    return run.result(tuned)


def _under_the_winner(
    run: KeyTuning,
    raced: RaceResult,
    look: FirstLook,
    builtins: Mapping[Task, SearchResult],
    reserve: Reserve,
) -> Tuned:
    """Search schedules under the profile that was selected, decide and confirm."""
    profile = raced.winner
    seen = look.under(profile)
    looked = {task: [ranked.config for ranked in own.ranking] for task, own in seen.items()}
    schedules = run.search_schedules(profile, looked, reserve)
    found = _of_keys(run.tasks, builtins, schedules)
    reserve = run.settled(reserve)
    decisions = {
        task: run.decide(
            task,
            found[task],
            [raced.calls.get(task, ()), looked.get(task, ())],
            profile,
            reserve.pairs,
        )
        for task in run.tasks
    }
    decisions = run.try_neighbours(decisions, profile, reserve)
    decisions = run.left_out_where_slower(decisions, profile)
    run.end_confirmation()
    before = run.with_kept_sums(decisions, profile)
    located = run.locate(before, profile)
    run.time_stock_again()
    confirmed, starts = run.confirm_over_starts(decisions, raced, reserve, located.seconds)
    confirmed = run.left_out_where_slower(confirmed, profile)
    confirmed = run.checked_over_starts(run.with_kept_sums(confirmed, profile), profile)
    if any(confirmed[task].winner != before[task].winner for task in run.tasks):
        located = run.locate(confirmed, profile)
    # A key whose search the budget left nothing has what the first look tried.
    missed = {
        task: own
        for task, own in seen.items()
        if task not in schedules or not schedules[task].configs_tried
    }
    tried = _of_keys(run.tasks, builtins, {**schedules, **missed})
    return Tuned(raced, tried, confirmed, located.ranges, starts)


def _of_keys(
    tasks: Sequence[Task], *searches: Mapping[Task, SearchResult]
) -> dict[Task, tuple[SearchResult, ...]]:
    """Return the results of each key, of the searches that it had."""
    return {task: tuple(results[task] for results in searches if task in results) for task in tasks}
