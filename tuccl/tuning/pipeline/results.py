"""Builds the table, and the report that explains it, from the outcome of a tuning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from math import isfinite
from typing import Any

from lookup_tables.collective import ASKED_ABOUT
from lookup_tables.confirmation import Confirmation, JobGain, NoStarts, Reference
from lookup_tables.lookup import MOST_RUNNERS_UP, check_table, key_order
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import (
    COMMUNICATOR_VARIABLES,
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    RunnersUp,
    ScheduleConfig,
    SeenPlacement,
    Setting,
    Shape,
    StoredSchedule,
    SumOrder,
    Table,
    TimedSiblings,
    schedules_of,
)
from probes.topology.graph import Topology
from tuccl.measuring.records.recorded_run import RecordedSchedule
from tuccl.models.figures import communicator_shape
from tuccl.reports.decision_sentence import decision_sentence
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.ratios import MeasuredGain
from tuccl.reports.report import (
    REPORT_VERSION,
    BaselineFate,
    BaselineReport,
    BesideComputation,
    ComparisonReport,
    FloorReport,
    KeyReport,
    LossWithoutExecutor,
    ProfileRatio,
    ProfileReport,
    Report,
    ScheduleReport,
    UnprovedGain,
    UntunedKey,
    VariableReport,
    WholeKey,
    WholeReport,
)
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.kept_sums import kept_order
from tuccl.search.statistics.distributions import student_quantile
from tuccl.search.statistics.intervals import values_needed
from tuccl.search.statistics.moderation import MeanError
from tuccl.search.trials.baseline import Choice, TunerRow
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.shapes import shape_text
from tuccl.search.trials.timing import Timing
from tuccl.tuning.confirmation import FEWEST_STARTS, MOST_STARTS, seconds_of_key
from tuccl.tuning.decision import CONFIDENCE, MIN_GAIN, Comparison
from tuccl.tuning.guaranteed_minimum import KeyRatio, Verdict, loss_without_executor
from tuccl.tuning.profile_race import RaceResult
from tuccl.tuning.results import KeyResult, PlacedResult, SeenKey, TunedKeys, WholeTable
from tuccl.tuning.settings import RunSettings

_MOST_SCHEDULES = 2
"""Schedules of a key that jobs try: each takes memory of every communicator that learns."""
_START_BOUND = 0.975
Tried = Candidate | RecordedSchedule
"""A schedule that was searched."""


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """Time and provenance of a table."""

    tuned_at: str
    """ISO 8601, UTC."""
    provenance: Provenance


def build_table(
    topology: Topology,
    fingerprint: str,
    tuning: TunedKeys,
    candidates: Sequence[Tried],
    origin: RunOrigin,
    *,
    invariant: bool = False,
) -> Table:
    """Build the table of a run.

    Args:
        topology: The machine.
        fingerprint: Its fingerprint.
        tuning: The outcome of its tuning.
        candidates: The schedules that were tried.
        origin: Origin of the times.
        invariant: Whether its sums do not move.

    Raises:
        TableError: when the outcome breaks a rule of the format.
    """
    entries = [
        as_seen(entry, None if tuning.whole is None else tuning.whole.keys.get(key.task))
        for key in tuning.keys
        if (entry := _entry(key, fingerprint, origin)) is not None
    ]
    if invariant:
        entries = [_keeping_sums(entry) for entry in entries]
    runners_up = runners_up_of(tuning.keys, fingerprint, invariant=invariant)
    used = schedules_of(entries, runners_up)
    schedules = {
        candidate.content_hash: StoredSchedule(
            candidate.content_hash,
            candidate.name,
            candidate.msccl_xml,
            candidate.program,
        )
        for candidate in candidates
        if candidate.content_hash in used
    }
    table = Table(
        topology_name=topology.name,
        fingerprint=fingerprint,
        gpu_models=topology.gpu_models,
        entries=tuple(sorted(entries, key=lambda entry: key_order(entry.key))),
        profile=tuning.profile.environment,
        schedules=tuple(schedules[name] for name in sorted(schedules)),
        placements=_placements(tuning.placed, communicator_shape(topology), fingerprint, origin),
        sums=_sums(entries) if invariant else (),
        runners_up=runners_up,
        settings=settings_of_shapes(
            tuning.profile,
            {key.task.shape for key in tuning.keys} | {own.shape for own in tuning.placed},
            origin.provenance.nccl_version,
        ),
    )
    check_table(table)
    return table


def as_seen(entry: Entry, seen: SeenKey | None) -> Entry:
    """Return an entry with what jobs with the whole table got by it."""
    if seen is None:
        return entry
    in_job = JobGain(seen.stock_us, seen.table_us, seen.gain.low, seen.gain.high, seen.rounds)
    schedule = entry.schedule
    if schedule is not None:
        schedule = replace(schedule, in_windows=seen.serves_windows)
    return replace(entry, in_job=in_job, schedule=schedule)


def _keeping_sums(entry: Entry) -> Entry:
    """Return an entry that leaves no call to NCCL, on registered buffers either, if it adds."""
    schedule = entry.schedule
    if schedule is None or not entry.key.operation.reduces:
        return entry
    return replace(entry, schedule=replace(schedule, in_windows=True))


def settings_of_shapes(
    profile: ProcessProfile, shapes: Iterable[Shape], nccl: NcclVersion | None
) -> tuple[Setting, ...]:
    """Return the variables of a profile that communicators of these shapes can have.

    Args:
        profile: The profile of the table.
        shapes: Shapes that were measured.
        nccl: The NCCL that was measured; None: none was.
    """
    names = [
        name
        for name in profile.environment
        if name in COMMUNICATOR_VARIABLES
        and (nccl is None or nccl[:2] >= COMMUNICATOR_VARIABLES[name])
    ]
    return tuple(
        sorted(Setting(shape, name) for shape in shapes if shape.ranks > 1 for name in names)
    )


def _sums(entries: Sequence[Entry]) -> tuple[SumOrder, ...]:
    """Return the orders in which the entries add."""
    reducing = {(e.key.shape, e.key.operation) for e in entries if e.key.operation.reduces}
    return tuple(
        SumOrder(shape, operation, kept_order(shape) or "")
        for shape, operation in sorted(reducing, key=lambda own: (own[0], own[1].value))
    )


def _placements(
    placed: Sequence[PlacedResult], whole: Shape, fingerprint: str, origin: RunOrigin
) -> tuple[SeenPlacement, ...]:
    """Return the communicators with entries of their own; none of a shape without such entries."""
    with_entries = {each.shape for each in placed if each.has_entries}
    found = []
    for shape, of_shape in groupby(
        sorted(placed, key=lambda each: each.shape), key=lambda each: each.shape
    ):
        for number, own in enumerate(of_shape if shape in with_entries else ()):
            entries = [
                replace(entry, key=replace(entry.key, fingerprint=fingerprint))
                for entry in own.kept
            ]
            entries += [entry for key in own.keys if (entry := _entry(key, fingerprint, origin))]
            found.append(
                SeenPlacement(
                    shape,
                    number,
                    " and ".join(own.seen.example),
                    own.seen.lines,
                    tuple(sorted(entries, key=lambda entry: key_order(entry.key))),
                    TimedSiblings(whole, own.seen.placement.stride, own.seen.placement.siblings),
                )
            )
    return tuple(found)


def _entry(result: KeyResult, fingerprint: str, origin: RunOrigin) -> Entry | None:
    decision = result.decision
    winner = decision.schedule or decision.builtin
    if winner is None:
        return None
    task = result.task
    builtin = decision.builtin
    return Entry(
        key=Key(task.operation, *result.range_bytes, task.shape, fingerprint),
        tuned_bytes=task.size_bytes,
        builtin=_builtin_config(builtin.config) if builtin else None,
        schedule=_schedule_config(winner.config) if winner.config.is_schedule else None,
        time_us=winner.time_us,
        builtin_time_us=builtin.time_us if builtin else None,
        default_time_us=result.stock_us,
        samples=winner.samples,
        spread=winner.spread,
        tuned_at=origin.tuned_at,
        provenance=origin.provenance,
        confirmation=confirmation_of(winner, origin.provenance),
    )


def runners_up_of(
    keys: Iterable[KeyResult], fingerprint: str, *, invariant: bool
) -> tuple[RunnersUp, ...]:
    """Return what came next in the searches: a job that learns tries it."""
    found = []
    for result in keys:
        task = result.task
        if invariant and task.operation.reduces:
            continue
        ranked = sorted(
            (ranked for search in result.searches for ranked in search.ranking),
            key=lambda own: own.time_us,
        )
        configs = [own.config for own in ranked if not own.config.is_default]
        decision = result.decision
        settings = dict.fromkeys(
            _builtin_config(own)
            for own in configs
            if not own.is_schedule and task.operation in ASKED_ABOUT
        )
        if decision.builtin is not None:
            settings.pop(_builtin_config(decision.builtin.config), None)
        schedules = {_schedule_config(own): None for own in configs if own.is_schedule}
        if decision.schedule is not None:
            schedules.pop(_schedule_config(decision.schedule.config), None)
        key = Key(task.operation, *result.range_bytes, task.shape, fingerprint)
        if settings or schedules:
            found.append(RunnersUp(key, _most_promising(settings), _most_different(schedules)))
    return tuple(sorted(found, key=lambda own: key_order(own.key)))


def _most_different(schedules: Iterable[ScheduleConfig]) -> tuple[ScheduleConfig, ...]:
    """Return the fastest of each schedule and protocol, of the first few."""
    kinds: dict[tuple[str, NcclProtocol], ScheduleConfig] = {}
    for each in schedules:
        kinds.setdefault((each.schedule, each.protocol), each)
    return tuple(islice(kinds.values(), _MOST_SCHEDULES))


def _most_promising(settings: Iterable[BuiltinConfig]) -> tuple[BuiltinConfig, ...]:
    """Return the fastest of each algorithm and protocol, and what is fastest beside them.

    Neighbours of the winner are alike; a job whose network or computation is another one may need
    another algorithm.
    """
    kinds: dict[tuple[NcclAlgorithm, NcclProtocol], BuiltinConfig] = {}
    ranked = tuple(settings)
    for each in ranked:
        kinds.setdefault((each.algorithm, each.protocol), each)
    firsts = [*kinds.values()]
    chosen = [*firsts, *(each for each in ranked if each not in firsts)][:MOST_RUNNERS_UP]
    return tuple(each for each in ranked if each in chosen)


def confirmation_of(winner: Comparison, provenance: Provenance) -> Confirmation:
    """The evidence that an entry's winner is faster."""
    return Confirmation(
        reference=_reference(winner.reference),
        estimator=winner.estimator,
        ratio=winner.ratio,
        low=winner.interval.low,
        high=winner.interval.high,
        confidence=CONFIDENCE,
        starts=_starts(winner, provenance),
    )


def _reference(config: Config) -> Reference:
    if not config.is_default:
        return Reference.BUILTIN
    return Reference.STOCK if config == STOCK else Reference.PROFILE


def _starts(compared: Comparison, provenance: Provenance) -> int | NoStarts:
    """Number of starts of the workers, or why there were none."""
    if provenance.is_modelled:
        return NoStarts.MODELLED
    return NoStarts.RECORDED if provenance.replayed else compared.starts


def _builtin_config(config: Config) -> BuiltinConfig:
    return BuiltinConfig(config.builtin, config.nccl_protocol, config.nchannels, config.chunk_bytes)


def _schedule_config(config: Config) -> ScheduleConfig:
    return ScheduleConfig(
        config.schedule,
        config.nccl_protocol,
        config.nchannels,
        config.nthreads,
        config.buffer_bytes,
    )


def build_report(
    table: Table,
    tuning: TunedKeys,
    candidates: Sequence[Tried],
    settings: RunSettings,
    timing: Timing,
    provenance: Provenance,
) -> Report:
    """Build the report: the decision for every key of a table, and its reasons."""
    evidence = evidence_of(table, provenance.backend)
    in_turn = _profile_ratios(tuning.race.verdict)
    seen = {} if tuning.whole is None else tuning.whole.keys
    by_hash = {candidate.content_hash: candidate for candidate in candidates}
    added = dict(settings.added)
    return Report(
        version=REPORT_VERSION,
        backend=settings.backend,
        profile=tuning.profile.environment,
        variables=[
            VariableReport(
                value=dict(each.value),
                gain=each.gain,
                low=each.low,
                starts=each.starts,
                taken=each.taken,
            )
            for each in tuning.race.turned
        ],
        untried=[dict(value) for value in tuning.race.untried],
        untried_s=tuning.race.lacking_s,
        base=None if settings.base is None else dict(settings.base),
        schedules={
            content_hash: _schedule_report(candidate)
            for content_hash, candidate in sorted(by_hash.items())
        },
        keys=[
            _key_report(
                key,
                evidence,
                provenance,
                timing,
                in_turn.get(key.task),
                seen.get(key.task),
                added.get(key.task, ""),
            )
            for key in tuning.keys
        ],
        measuring_s=tuning.spent_s,
        budget_s=settings.budget_s,
        limits=settings.options.limits,
        graphs=timing.graph,
        in_place=timing.in_place,
        computations=timing.computations,
        stock_faults=[
            f"{shape_text(task.shape)}: {fault}" for task, fault in tuning.stock_faults.items()
        ],
        starts=tuning.starts,
        start_s=tuning.start_s,
        start_error=_start_error(tuning.between_starts),
        floor=None if settings.floor is None else floor_report(settings.floor, tuning.race),
        weights=_weights(settings),
        shapes={named.name: named.shape for named in settings.shapes},
        workload=settings.workload,
        laboratory=settings.laboratory,
        whole=None if tuning.whole is None else _whole_report(tuning.whole),
        sums=list(table.sums),
    )


def _whole_report(whole: WholeTable) -> WholeReport:
    return WholeReport(
        rounds=whole.rounds,
        dropped=whole.dropped,
        dropped_why=whole.dropped_why,
        failed=whole.failed,
        seconds=whole.seconds,
    )


def _whole_key(key: SeenKey | None) -> WholeKey | None:
    if key is None:
        return None
    gain = key.gain
    return WholeKey(
        stock_us=key.stock_us,
        table_us=key.table_us,
        ratio=gain.ratio,
        low=gain.low,
        high=gain.high,
        rounds=key.rounds,
        beside=_beside_report(key.beside),
        in_windows=None if key.in_windows is None else key.in_windows.ratio,
    )


def _beside_report(gain: MeasuredGain | None) -> BesideComputation | None:
    if gain is None:
        return None
    return BesideComputation(ratio=gain.ratio, low=gain.low, high=gain.high)


def _start_error(between: MeanError) -> float:
    """Distance that a ratio of two starts exceeds, to either side, with a probability of 2.5 %."""
    return student_quantile(_START_BOUND, between.degrees) * between.error


def _weights(settings: RunSettings) -> dict[str, float]:
    """Weights of operations and shapes by name, those of 1 left out."""
    of_operations = {operation.value: weight for operation, weight in settings.weights}
    named = [each for each in settings.shapes if each.weight != 1.0]
    return of_operations | {each.name: each.weight for each in named}


def floor_report(least: float, race: RaceResult) -> FloorReport:
    """The effect of the floor: the worst key of the chosen profile and of better ones."""
    forgone = [_profile_report(verdict, race) for verdict in race.forgone]
    return FloorReport(
        least=least,
        chosen=None if race.verdict is None else _profile_report(race.verdict, race),
        forgone=[report for report in forgone if report is not None],
        without_executor=None if race.verdict is None else _executor_report(race.verdict, least),
        untuned=[
            UntunedKey(**_figures_of(key))
            for key in (() if race.verdict is None else race.verdict.untuned)
        ],
    )


def _figures_of(key: KeyRatio) -> dict[str, Any]:
    return {
        "operation": key.task.operation,
        "size_bytes": key.task.size_bytes,
        "shape": key.task.shape,
        "ratio": key.ratio,
        "low": key.low,
        "high": key.high,
    }


def _executor_report(verdict: Verdict, least: float) -> LossWithoutExecutor | None:
    key = loss_without_executor(verdict, least)
    if key is None:
        return None
    return LossWithoutExecutor(**_figures_of(key), starts=verdict.starts)


def _profile_ratios(verdict: Verdict | None) -> dict[Task, ProfileRatio]:
    """Ratios of NCCL's own choice under the table's profile, by key, from starts in turn."""
    if verdict is None:
        return {}
    return {
        key.task: ProfileRatio(ratio=key.ratio, low=key.low, high=key.high, starts=verdict.starts)
        for key in verdict.own_choice
    }


def _profile_report(verdict: Verdict, race: RaceResult) -> ProfileReport | None:
    worst = verdict.worst
    if worst is None:
        return None
    return ProfileReport(
        profile=verdict.profile.environment,
        speedup=race.speedup(verdict.profile),
        **_figures_of(worst),
        starts=verdict.starts,
        holds=verdict.holds,
        schedule="" if worst.schedule is None else worst.schedule.schedule,
        wrong=verdict.wrong,
        beside=_beside_report(verdict.beside),
    )


def _schedule_report(candidate: Tried) -> ScheduleReport:
    if isinstance(candidate, RecordedSchedule):
        return ScheduleReport(
            name=candidate.name,
            sketch=candidate.sketch,
            sketch_why=candidate.sketch_why,
            origin=candidate.origin,
            of_bound={str(size_bytes): share for size_bytes, share in candidate.of_bound},
            operation=candidate.operation.value,
            own=candidate.own,
        )
    return ScheduleReport(
        name=candidate.name,
        sketch=candidate.sketch.name,
        sketch_why=candidate.sketch.why,
        origin=candidate.origin,
        of_bound={
            str(promise.size_bytes): round(promise.ratio, 4) for promise in candidate.promises
        },
        operation=candidate.collective.value,
        own=candidate.own,
    )


def _key_report(
    key: KeyResult,
    evidence: Evidence,
    provenance: Provenance,
    timing: Timing,
    in_turn: ProfileRatio | None,
    seen: SeenKey | None,
    added: str,
) -> KeyReport:
    decision = key.decision
    builtin = _comparison_report(decision.builtin, provenance) if decision.builtin else None
    schedule = _comparison_report(decision.schedule, provenance) if decision.schedule else None
    rejected = [_comparison_report(comparison, provenance) for comparison in decision.rejected]
    left_out = [slower.sentence for slower in decision.left_out]
    return KeyReport(
        operation=key.task.operation,
        size_bytes=key.task.size_bytes,
        shape=key.task.shape,
        min_bytes=key.range_bytes[0],
        max_bytes=key.range_bytes[1],
        stock_us=key.stock_us,
        profile_default_us=decision.profile_default_us,
        builtin=builtin,
        schedule=schedule,
        rejected=rejected,
        configs_tried=sum(found.configs_tried for found in key.searches),
        repeats_measured=sum(found.repeats_measured for found in key.searches),
        converged=all(found.converged for found in key.searches),
        why=decision_sentence(
            *(schedule or builtin, rejected, evidence, left_out), is_obliged=decision.is_obliged
        ),
        added=added,
        left_out=left_out,
        is_obliged=decision.is_obliged,
        computation_us=timing.computation_us(key.task),
        unproved=unproved_gain(key, provenance),
        baseline=baseline_reports(key, provenance),
        profile_ratio=in_turn,
        whole=_whole_key(seen),
    )


def unproved_gain(key: KeyResult, provenance: Provenance) -> UnprovedGain | None:
    """Return the call that gained most, more than what won, and was not proved."""
    decision = key.decision
    won = max(map(decision.gain_of, decision.proved), default=1.0)
    seen = [
        comparison
        for comparison in decision.rejected
        if comparison.ratio > 1.0 and decision.gain_of(comparison) >= MIN_GAIN * won
    ]
    if not seen:
        return None
    best = max(seen, key=lambda comparison: (decision.gain_of(comparison), comparison.config))
    needed = values_needed(best.ratio, best.interval, best.starts)
    had = best.starts if best.starts > 1 else 0  # The start that found it is not one of them.
    further = 0 if needed is None else max(FEWEST_STARTS, needed) - had
    if needed is None or not 0 < further <= MOST_STARTS - had:
        further = 0
    return UnprovedGain(
        config=best.config.describe(),
        gain=decision.gain_of(best),
        comparison=_comparison_report(best, provenance),
        starts_needed=needed,
        further_starts=further,
        further_s=further * seconds_of_key(key.sample_s, 2 + best.config.is_schedule),
    )


def baseline_reports(key: KeyResult, provenance: Provenance) -> list[BaselineReport]:
    """Return what became of the choices of a tuner's file for a key."""
    tuners = key.tuners
    if tuners is None:
        return []
    if not tuners.choices:
        row = tuners.rows[0]
        return [_baseline_report(tuners.file, row, BaselineFate.NOT_HERE)]
    return [_fate(tuners.file, choice, key, provenance) for choice in tuners.choices]


def _fate(file: str, choice: Choice, key: KeyResult, provenance: Provenance) -> BaselineReport:
    """Return what became of one of them, by the decision, else by the searches."""
    report = partial(_baseline_report, file, choice.row)
    config, decision = choice.config, key.decision
    if config is None:
        return report(
            BaselineFate.UNTRIED, why="--max-channels or the record has no such number of channels"
        )
    failures = {failed: why for found in key.searches for failed, why in found.failures}
    if config in failures:
        return report(BaselineFate.FAILED, why=failures[config])
    builtins = [
        ranked
        for found in key.searches
        for ranked in found.ranking
        if not (ranked.config.is_schedule or ranked.config.is_default)
    ]
    times_us = {ranked.config: ranked.time_us for ranked in builtins}
    # Where the budget left a search nothing, the decision has timed it.
    for each in (*decision.outdone, *decision.rejected, *decision.proved):
        if not each.config.is_schedule:
            times_us.setdefault(each.config, each.time_us)
    own_us = times_us.get(config)
    timed = {
        "time_us": own_us,
        "best_us": min(times_us.values(), default=None),
        "config": config.describe(),
    }
    if decision.builtin is not None and decision.builtin.config == config:
        return report(BaselineFate.WON, **timed)
    compared = next((each for each in decision.rejected if each.config == config), None)
    if compared is not None:
        comparison = _comparison_report(compared, provenance)
        return report(BaselineFate.COMPARED, **timed, comparison=comparison)
    if own_us is None:
        return report(BaselineFate.UNTRIED, why="the budget was spent")
    return report(BaselineFate.BEHIND, **timed)


def _baseline_report(
    file: str, row: TunerRow, fate: BaselineFate, **members: Any
) -> BaselineReport:
    asked = Config(row.algorithm.value, row.protocol.value, row.nchannels).describe()
    return BaselineReport(
        **{"file": file, "line": row.line, "config": asked, "fate": fate, **members}
    )


def _comparison_report(comparison: Comparison, provenance: Provenance) -> ComparisonReport:
    high = comparison.interval.high
    return ComparisonReport(
        config=comparison.config.describe(),
        time_us=comparison.time_us,
        reference_us=comparison.reference_us,
        ratio=comparison.ratio,
        lower_bound=comparison.lower_bound,
        samples=comparison.samples,
        spread=comparison.spread,
        upper_bound=high if isfinite(high) else None,
        confidence=CONFIDENCE,
        reference=_reference(comparison.reference),
        estimator=comparison.estimator,
        starts=_starts(comparison, provenance),
        stalls=comparison.stalls,
    )
