"""The tuned table on standard output: a job's choices here, then schedules that no job here runs.

The rows and the first line below them count what a job runs on this installation. Schedules that no
job here runs have a table of their own, with the reason. A key without an entry runs what NCCL
chooses, but under the table's process profile: that time is shown, because a job gets it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean

from lookup_tables.table import Shape, Table
from tuccl.measuring.records.record import NOT_RECORDED
from tuccl.quantities import count_of, format_seconds, format_size
from tuccl.reports.choice_text import OWN_CHOICE, UNDER_PROFILE, profile_text
from tuccl.reports.job_gains import JobGains, KeyGain, Obstacle
from tuccl.reports.kept_sums import kept_sums_lines
from tuccl.reports.keys import Runner, Verdict, geometric_mean_of
from tuccl.reports.report import (
    BaselineFate,
    Dropped,
    FloorReport,
    KeyReport,
    LossWithoutExecutor,
    ProfileReport,
    Report,
    RetunedReport,
    VariableReport,
    WholeReport,
)
from tuccl.reports.step_gain import step_of
from tuccl.reports.tuning_result import TuningResult
from tuccl.search.trials.shapes import shape_text
from tuccl.views.terminal.display import print_lines
from tuccl.views.terminal.json_output import print_document
from tuccl.views.terminal.step_display import step_line
from tuccl.views.terminal.tables import print_rows

_WITHOUT_MACHINE = ("simulated", "replay")
"""Backends whose measuring time did not pass in reality."""
_FORGONE = 3
"""Greatest number of forgone profiles that are listed."""
_DROPPED = {
    Dropped.EXECUTOR: (
        "The executor is left out",
        "loading it cost other calls more than it gained",
    ),
    Dropped.TABLE: ("The table is left empty", "loading it cost calls more than it gained"),
}
_RUNNERS = {
    Runner.EXECUTOR: ("runs a TuCCL schedule", "run a TuCCL schedule"),
    Runner.PLUGIN: ("runs a tuned NCCL setting", "run a tuned NCCL setting"),
    Runner.PROFILE: (
        "runs NCCL under the process profile",
        "run NCCL under the process profile",
    ),
    Runner.NCCL: ("stays as it is", "stay as they are"),
}
"""What one key, or several, do by the component that decides."""


def print_result(result: TuningResult, as_json: bool) -> None:
    """Print the result of `init`, `tune` and `table`."""
    if as_json:
        from tuccl.reports.table_document import table_document  # noqa: PLC0415 - for JSON

        print_document(table_document(result))
    else:
        print_table(result.table, result.report, result.gains)


def print_table(table: Table, report: Report, gains: JobGains) -> None:
    """Print the tuned table against stock NCCL: a row per tuned key, then the summary."""
    record = ", from a record" if report.recorded_backend else ""
    times = f"{gains.evidence.value}, {report.source} backend{record}"
    names = {shape: name for name, shape in report.shapes.items()}
    executor = Runner.EXECUTOR in gains.runners
    figures = (">size", ">stock", ">job", ">speedup", *([">plugin"] * executor))
    print_rows(
        f"{table.topology_name}: {gains.job} against stock NCCL, in us ({times})",
        (*(["shape"] * bool(names)), "operation", *figures, "~what runs"),
        (
            (
                *_shape_name(gain.decision, names),
                gain.operation.value,
                format_size(gain.size_bytes),
                *_job_cells(gain)[: len(figures) - 1],
                gain.runs,
            )
            for gain in gains.keys
        ),
        group=2 if names else 1,
    )
    print_lines(summary_lines(table, report, gains))


def _shape_name(
    key: KeyReport | ProfileReport | LossWithoutExecutor, names: Mapping[Shape, str]
) -> tuple[str, ...]:
    """Return the name of a key's shape, where a table has several."""
    return (names[key.shape],) if key.shape in names else ()


def _job_cells(gain: KeyGain) -> tuple[str, ...]:
    """Return stock's time, the job's, the speedup, and the time without the executor."""
    stock, job = f"{gain.stock_us:.1f}", f"{gain.table_us:.1f}"
    is_own = gain.runner is Runner.NCCL
    if is_own and not (gain.is_seen and gain.gain.verdict is not Verdict.NOT_TOLD_APART):
        return (stock, "-", "-", "-")
    without = gain.without_executor
    alone = "-" if without.runner is Runner.NCCL else f"{without.time_us:.1f}"
    return (stock, job, f"{gain.speedup:.2f}x", alone)


def _starts_of_profile_lines(gains: JobGains) -> list[str]:
    """Return the line on the starts behind the rows of the profile."""
    rows = [gain.decision for gain in gains.keys if gain.runner is Runner.PROFILE]
    starts = [row.profile_ratio.starts for row in rows if row.profile_ratio]
    if not starts:
        return []
    others = len(rows) - len(starts)
    line = f"{count_of(len(starts), 'row')} of these: means over {max(starts)} starts with and "
    line += "without the profile, in turn"
    return [line + ("; the others: one start of each, at different times" if others else "")]


def summary_lines(table: Table, report: Report, gains: JobGains) -> list[str]:
    """Return lines on the gains over all keys, the process profile, and the cost of tuning."""
    lines = [gains_line(gains), *_shape_lines(report, gains)]
    step = step_of(report, gains)
    if step is not None:
        lines.insert(0, step_line(step, gains.evidence))
    lines += _kept_sums_lines(report)
    lines += whole_lines(report, gains)
    lines += gains.doubts
    lines += [apart_line(obstacle, gains) for obstacle in gains.obstacles]
    lines += _own_choice_lines(UNDER_PROFILE if table.profile else OWN_CHOICE, gains)
    lines += _starts_of_profile_lines(gains)
    lines += [*_left_out_lines(report), *_baseline_lines(report), *placed_entries_lines(table)]
    weighed = ", ".join(f"{name} counts {weight:g}" for name, weight in report.weights.items())
    lines.append(
        f"process profile: {profile_text(table.profile)}" + (f" ({weighed})" if weighed else "")
    )
    lines += _settings_lines(table, gains)
    lines += _variables_lines(report)
    if report.base:
        lines.append(f"stock NCCL here, and each job, has {profile_text(report.base)}")
    floor = floor_lines(report, gains)
    return [
        *lines,
        *floor,
        *_stock_fault_lines(report.stock_faults),
        *starts_lines(report.starts),
        *_longer_lines(report),
        *_cost_lines(report),
    ]


def _kept_sums_lines(report: Report) -> Iterator[str]:
    """Yield lines on sums that do not move, and on what that costs."""
    if not report.sums:
        return
    yield from kept_sums_lines(report.sums)
    keys = [key for key in report.keys if key.operation.reduces]
    mean = geometric_mean(key.gain for key in keys)
    slower = sum(key.is_obliged for key in keys)
    line = f"its {count_of(len(keys), 'key')}: {mean:.3f}x of stock NCCL, whose own sums move"
    yield line + (f"; {slower} not proved faster, and entries all the same" if slower else "")
    if (free := report.free) is not None:
        yield (
            f"that costs {free.ratio:.3f}x of the time of run {free.run}, whose sums may move "
            f"({count_of(free.keys, 'key')}, each run against its own stock NCCL)"
        )
    else:
        yield "what that costs: the same command without --invariant in this workspace shows it"


def whole_lines(report: Report, gains: JobGains) -> list[str]:
    """Return lines on the table as a whole against stock NCCL."""
    whole = report.whole
    if whole is None:
        return []
    lines = []
    if whole.dropped is not None:
        what, costs = _DROPPED[whole.dropped]
        why = f"jobs do not run with it: {whole.dropped_why}" if whole.dropped_why else costs
        lines = [f"{what}: {why}."]
    if whole.rounds:
        return [*lines, *_seen_lines(whole, report, gains)]
    if whole.dropped is Dropped.TABLE:
        return lines
    why = "the budget did not pay for it"
    if whole.failed:
        why = "the record has no such job" if whole.failed == NOT_RECORDED else whole.failed
    return [*lines, f"Not held as a whole against stock NCCL: {why}."]


def _seen_lines(whole: WholeReport, report: Report, gains: JobGains) -> Iterator[str]:
    """Yield lines on the times of jobs with the whole table, and on keys that are slower there."""
    seen = sum(key.is_seen for key in gains.keys)
    if not seen:
        if not gains.obstacles:
            yield "Held as a whole against stock NCCL: jobs differ too much by themselves to tell."
        return
    which = "These" if seen == len(gains.keys) else f"Of {seen} of {len(gains.keys)} keys these"
    alone = ""
    if Runner.EXECUTOR in gains.runners:
        alone = " What they take without the executor is as the starts before showed it."
    yield (
        f"{which} are times with the whole table loaded, in turn with stock NCCL: "
        f"{count_of(whole.rounds, 'round')} of new processes of each.{alone}"
    )
    names = {shape: name for name, shape in report.shapes.items()}
    slower = sorted(gains.slower, key=lambda key: key.speedup)
    shown = [
        f"{_key(own.decision, names)} {own.speedup:.3f}x "
        f"({own.gain.low:.3f} to {own.gain.high:.3f})"
        for own in slower[:_FORGONE]
    ]
    if len(slower) > len(shown):
        shown.append(f"and {len(slower) - len(shown)} more")
    if shown:
        yield f"Slower there than with stock NCCL: {', '.join(shown)}."
    yield from _beside_lines(gains, names)
    yield from _window_lines(report, gains)


def _window_lines(report: Report, gains: JobGains) -> Iterator[str]:
    """Yield a line on calls on registered buffers."""
    seen = (key.decision.whole for key in gains.keys)
    ratios = [key.in_windows for key in seen if key is not None and key.in_windows is not None]
    if ratios:
        serving = sum(ratio >= 1.0 for ratio in ratios)
        others = "others, but for sums that do not move," if report.sums else "others"
        yield (
            f"On registered buffers (ncclCommWindowRegister) {serving} of {len(ratios)} schedules "
            f"are no slower than NCCL, {geometric_mean(ratios):.3f}x in the mean of all; the "
            f"{others} leave such calls to NCCL."
        )


def _beside_lines(gains: JobGains, names: Mapping[Shape, str]) -> Iterator[str]:
    """Yield a line on calls that were timed beside computation, too."""
    timed = [
        (key.decision.whole.beside.ratio, key.decision)
        for key in gains.keys
        if key.decision.whole is not None and key.decision.whole.beside is not None
    ]
    if timed:
        least, key = min(timed, key=lambda each: each[0])
        mean = geometric_mean(ratio for ratio, _ in timed)
        yield (
            f"{count_of(len(timed), 'call')} of 16M and more beside computation of twice their "
            f"time: both end {mean:.3f} times as fast as with stock NCCL (geometric mean), "
            f"at worst {least:.3f} ({_key(key, names)})."
        )


def _own_choice_lines(runs: str, gains: JobGains) -> list[str]:
    """Return a line on the keys that NCCL decides: those without an entry, and the others."""
    own = [gain for gain in gains.keys if gain.runner in {Runner.PROFILE, Runner.NCCL}]
    if not own:
        return []
    without = [gain for gain in own if gain.entry is None]
    left_out = sum(bool(gain.decision.left_out) for gain in without)
    why = []
    if unbeaten := len(without) - left_out:
        count = f"{count_of(unbeaten, 'key')} {'have' if unbeaten > 1 else 'has'}"
        why.append(f"no setting was faster beyond the noise, so {count} no entry")
    if left_out:
        why.append(f"what won at {count_of(left_out, 'key')} is left out")
    if held := len(own) - len(without):
        whose = (
            "the entry of 1 key is a schedule"
            if held == 1
            else (f"the entries of {held} keys are schedules")
        )
        why.append(f"{whose} that no job here runs")
    return [f"{runs}: {'; '.join(why)}"]


def _left_out_lines(report: Report) -> list[str]:
    """Return a line on keys whose winner is no entry, since it is slower in some jobs."""
    keys = [key for key in report.keys if key.left_out]
    if not keys:
        return []
    return [
        f"left out at {count_of(len(keys), 'key')}: "
        f"{report.readable(keys[0].left_out[0])}"
        + (f", and {len(keys) - 1} more (`tuccl explain` says where)" if len(keys) > 1 else "")
    ]


def _baseline_lines(report: Report) -> list[str]:
    """Return a line on the choices of a tuner's file."""
    chosen = [key.baseline for key in report.keys if key.baseline]
    if not chosen:
        return []
    won = sum(any(c.fate is BaselineFate.WON for c in choices) for choices in chosen)
    missing = sum(any(c.fate is BaselineFate.NOT_HERE for c in choices) for choices in chosen)
    lacking = f"; NCCL does not have {missing} of them here" if missing else ""
    line = (
        f"{chosen[0][0].file} has settings for {count_of(len(chosen), 'key')}, {won} of which won"
    )
    return [f"{line}{lacking} (`tuccl explain` says why)"]


def placed_entries_lines(table: Table) -> list[str]:
    """Return a line on entries of communicators that the plugin tells apart."""
    kinds = [
        f"{len(own.entries)} for those like {own.example} "
        f"({geometric_mean(entry.default_time_us / entry.time_us for entry in own.entries):.3f}x)"
        for own in table.placements
        if own.entries
    ]
    if not kinds:
        return []
    shown = f"{', '.join(kinds)} (`tuccl explain` shows them)"
    return [f"entries by where ranks sit, which the plugin recognizes by NCCL's estimates: {shown}"]


def gains_line(gains: JobGains) -> str:
    """Return the headline: a job's gain here, in the geometric mean over all keys."""
    runners = ", ".join(
        f"{count} {_RUNNERS[runner][count > 1]}" for runner, count in gains.runners.items()
    )
    alone = ""
    if Runner.EXECUTOR in gains.runners:
        alone = f", {gains.speedup_without_executor:.3f} without the executor"
    return (
        f"{gains.job.capitalize()} {gains.evidence.gets} {gains.speedup:.3f} times as fast as with "
        f"stock NCCL (geometric mean of {count_of(len(gains.keys), 'key')}{alone}): {runners}."
    )


def _shape_lines(report: Report, gains: JobGains) -> list[str]:
    """Return a line on the gain of each shape, where there are several."""
    frame, lines = gains.frame, []
    for name, shape in report.shapes.items():
        own = frame[(frame["ranks"] == shape.ranks) & (frame["nodes"] == shape.nodes)]
        if 0 < len(own) < len(frame):
            keys, speedup = count_of(len(own), "key"), geometric_mean_of(own["gain"])
            lines.append(f"{name}, {shape_text(shape)}: {speedup:.3f}x over {keys}")
    return lines


def apart_line(obstacle: Obstacle, gains: JobGains) -> str:
    """Return a line on the gain of schedules that no job here runs, and why none does."""
    frame = gains.frame[gains.frame["obstacle"] == obstacle]
    speedups = (frame["stock_us"] / frame["apart_us"]).groupby(frame["operation"], sort=False)
    ranges = ", ".join(
        f"{operation} {found.min():.2f}x to {found.max():.2f}x" for operation, found in speedups
    )
    return (
        f"Not included, because no job here runs them: schedules ({gains.evidence.value}) would "
        f"make it {gains.speedup_with_all_schedules:.3f} ({ranges}); {obstacle.sentence}"
    )


def floor_lines(report: Report, gains: JobGains) -> list[str]:
    """Return lines on the key that the profile slows most, and on faster profiles not chosen."""
    floor, names = report.floor, {shape: name for name, shape in report.shapes.items()}
    if floor is None:
        return []
    tuned = {key.shape for key in report.keys}
    for judged in (floor.chosen, *floor.forgone):
        if judged is not None and judged.shape not in tuned:
            names[judged.shape] = f"{shape_text(judged.shape)}, which is not tuned,"
    lines = []
    if floor.chosen is not None:
        which = "the process profile"
        if not floor.chosen.holds:
            lines.append(f"No process profile keeps every key above --floor {floor.least:g}.")
            which = "the safest one"
        if floor.chosen.starts > 1:
            which += ", of those started in turn with stock NCCL"
        lines.append(f"The slowest key under {which}: {_bounds(floor.chosen, names)}")
        lines += _single_starts(gains, floor.chosen.ratio, names)
    if floor.without_executor is not None:
        lines.append(_without_executor(floor.without_executor, names))
    lines += _untuned_lines(floor)
    average = "weighted average" if report.weights else "average"
    lines += [
        f"Not used: {profile_text(profile.profile)} is {profile.speedup:.3f}x faster on {average}, "
        f"but {_why_forgone(profile, floor.least, names)}."
        for profile in floor.forgone[:_FORGONE]
    ]
    more = len(floor.forgone) - _FORGONE
    return [*lines, f"and {more} more: see report.json"] if more > 0 else lines


def _why_forgone(profile: ProfileReport, least: float, names: Mapping[Shape, str]) -> str:
    """Say why a profile that is faster on average was not chosen."""
    if profile.wrong:
        return f"its data are wrong: {profile.wrong}"
    if (beside := profile.beside) is not None:
        return (
            "calls of 16 MB and more and a computation beside them, of twice their time, end "
            f"{beside.ratio:.3f} times as fast as with stock NCCL "
            f"({beside.low:.3f} to {beside.high:.3f})"
        )
    if profile.starts == 1 and profile.ratio >= least:
        return "--budget did not pay for the starts that decide on it"
    under = not profile.holds and profile.ratio < least
    drops = f"is at {profile.ratio:.3f}x" if under else f"may drop to {profile.low:.3f}x"
    return f"{_key(profile, names)} {drops} ({_seen(profile)}), --floor is {least:g}"


def _settings_lines(table: Table, gains: JobGains) -> Iterator[str]:
    """Yield a line on what the executor sets on communicators, if jobs here have it."""
    names = ", ".join(dict.fromkeys(own.name for own in table.settings))
    shapes = ", ".join(dict.fromkeys(shape_text(own.shape) for own in table.settings))
    if names and any(key.runner is Runner.EXECUTOR for key in gains.keys):
        yield f"of it the executor sets {names} on communicators of {shapes} alone"


def _variables_lines(report: Report) -> list[str]:
    """Return lines on further variables: those in fresh starts, the best other, and the untried."""
    in_turn = [each for each in report.variables if each.starts > 1]
    once = [each for each in report.variables if each.starts == 1]
    lines = [
        f"{profile_text(each.value)} {_what_of(each)} "
        f"{each.gain:.3f}x over all keys, {each.low or 0.0:.3f}x at least ({each.starts} starts "
        "with and without it)"
        for each in in_turn
    ]
    if once:
        best = max(once, key=lambda each: each.gain)
        also = f"{count_of(len(once), 'other value')}" if in_turn else count_of(len(once), "value")
        lines.append(
            f"{also} of NCCL's variables tried in one start, the best {profile_text(best.value)} "
            f"at {best.gain:.3f}x: see report.json"
        )
    if report.untried and report.budget_s is not None:
        values = ", ".join(profile_text(value) for value in report.untried)
        longer = _longer(report, report.untried_s)
        lines.append(
            f"not tried, because --budget {report.budget_s:g}s is too short: {values}; "
            f"{longer} would be likely to try them"
        )
    return lines


def _what_of(variable: VariableReport) -> str:
    if variable.taken:
        return "gains"
    return "is not set, though it gains" if (variable.low or 0.0) > 1.0 else "is not set: it gains"


def _single_starts(gains: JobGains, least: float, names: Mapping[Shape, str]) -> list[str]:
    """Return a line on a slower key that was not started in turn, if there is one."""
    own = (gain for gain in gains.keys if gain.runner is Runner.PROFILE)
    single = [gain for gain in own if gain.decision.profile_ratio is None and gain.speedup < least]
    if not single:
        return []
    worst = min(single, key=lambda gain: gain.speedup)
    low, high = worst.gain.low, worst.gain.high
    seen = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    found = f"{_key(worst.decision, names)} at {worst.speedup:.3f}x{seen}"
    return [f"Lower in single starts at different times, which differ by themselves: {found}"]


def _bounds(profile: ProfileReport, names: Mapping[Shape, str]) -> str:
    """Return `reduce_scatter 4K at 0.974x (0.970 to 0.978, 3 starts of each)`."""
    by = " by a schedule" if profile.schedule else ""
    return f"{_key(profile, names)}{by} at {profile.ratio:.3f}x ({_seen(profile)})"


def _without_executor(loss: LossWithoutExecutor, names: Mapping[Shape, str]) -> str:
    """Return a line on what a job pays for the profile where it lacks the executor."""
    more = 100.0 * (1.0 / loss.ratio - 1.0)
    return (
        f"Without the executor, {_key(loss, names)} takes {more:.1f} % longer under this profile "
        f"({loss.ratio:.3f}x, {_seen(loss)})"
    )


def _untuned_lines(floor: FloorReport) -> Iterator[str]:
    """Yield a line on what the profile does to communicators that were not tuned."""
    if not floor.untuned:
        return
    worst = min(floor.untuned, key=lambda key: key.ratio)
    shapes = dict.fromkeys(shape_text(key.shape) for key in floor.untuned)
    yield (
        f"Communicators that are not tuned have the profile's variables of processes, too "
        f"({', '.join(shapes)}): their slowest call is {worst.operation} "
        f"{format_size(worst.size_bytes)} of {shape_text(worst.shape)} at {worst.ratio:.3f}x "
        f"({worst.low:.3f} to {worst.high:.3f})"
    )


def _key(
    judged: KeyReport | ProfileReport | LossWithoutExecutor, names: Mapping[Shape, str]
) -> str:
    return " ".join([*_shape_name(judged, names), judged.operation, format_size(judged.size_bytes)])


def _seen(judged: ProfileReport | LossWithoutExecutor) -> str:
    """Return `0.970 to 0.978, 3 starts of each`."""
    seen = "one start" if judged.starts == 1 else f"{judged.starts} starts of each"
    return f"{judged.low:.3f} to {judged.high:.3f}, {seen}"


def _stock_fault_lines(faults: Sequence[str]) -> Iterator[str]:
    """Yield a line if stock NCCL's own data are wrong."""
    if faults:
        more = f" (and {count_of(len(faults) - 1, 'further reduction')})" if len(faults) > 1 else ""
        yield (
            f"Stock NCCL's own choice is wrong here: {faults[0]}{more}. Jobs have that wherever "
            "the table has no entry: use another release of NCCL, or set the variable that mends "
            "it, for PAT NCCL_PAT_ENABLE=0, in the jobs and here."
        )


def starts_lines(starts: int | None) -> list[str]:
    """Return a line on the restarts that confirmed entries, where starts of workers differ."""
    if starts is None:
        return []
    line = "Stock NCCL varies between restarts on this machine."
    if starts:
        return [f"{line} Entries were confirmed over up to {count_of(starts, 'restart')}."]
    return [f"{line} No further restarts were possible: only gains larger than that were kept."]


def _longer(report: Report, more_s: float) -> str:
    """Return the option for a budget that is longer by these seconds."""
    whole_s = max(report.budget_s or 0.0, report.measuring_s) + more_s
    return f"--budget {10 * math.ceil(whole_s / 10.0)}s"


def _longer_lines(report: Report) -> list[str]:
    """Return a line on what a longer budget would be likely to bring."""
    longer = report.longer_budget
    if report.budget_s is None or longer is None:
        return []
    keys = f"{count_of(longer.keys, 'key')} {'show gains' if longer.keys > 1 else 'shows a gain'}"
    budget = _longer(report, longer.seconds)
    gain = f"{longer.gain:.3f} times faster in the mean over all keys if they hold"
    return [f"{keys} not proved yet: {budget} would be likely to decide, {gain}"]


def _cost_lines(report: Report) -> list[str]:
    if not report.measuring_s:
        return []
    took = "would take" if report.backend in _WITHOUT_MACHINE else "took"
    line = f"measuring {took} {format_seconds(report.measuring_s)} of the machine"
    if not report.graphs:
        line += ", calls one by one"
    if report.in_place:
        line += ", in place"
    if report.computations:
        line += ", beside computation"
    line = ", ".join([line, *report.laboratory.conditions()])
    line += "".join(f", {option} {limit}" for option, limit in report.limits.items())
    if report.budget_s is None:
        return [line]
    line += f", --budget {format_seconds(report.budget_s)}"
    if report.measuring_s > report.budget_s:
        line += (
            ": stock NCCL, a first look at each key, the confirmation and borders between entries "
            "are never left out"
        )
    return [line]


def print_retuned(report: Report) -> None:
    """Print what a job gains or loses by the new table against the one before."""
    if report.retuned is not None:
        print_lines(map(report.readable, _retuned_lines(report.retuned)))


def _retuned_lines(retuned: RetunedReport) -> Iterator[str]:
    total = count_of(retuned.kept + retuned.measured, "key")
    which = f"{retuned.kept} kept, {retuned.measured} measured"
    if retuned.gain is None:
        yield f"against the old table: not measured, the budget was spent ({total}: {which})"
    else:
        yield (
            f"against the old table, on this machine now: {retuned.gain:.3f}x, geometric mean over "
            f"{total} ({which})"
        )
    if retuned.keys:
        worst = min(retuned.keys, key=lambda key: key.ratio)
        best = max(retuned.keys, key=lambda key: key.ratio)
        for name, key in (("least", worst), ("most", best)):
            how = "as before" if key.now == key.before else f"instead of {key.before}"
            yield (
                f"{name} at {key.operation} {format_size(key.size_bytes)}, "
                f"{shape_text(key.shape)}: {key.ratio:.3f}x, {key.now} {how}"
            )
    before = ""
    if retuned.samples_before is not None:
        before = f", the run before took {retuned.samples_before}"
    yield f"{count_of(retuned.samples, 'sample')} were taken{before}"
