"""The evidence of an entry on how its winner was confirmed."""

import math
from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Confirmation, Estimator, JobGain, NoStarts, Reference
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import NcclProtocol, ScheduleConfig, Setting, Shape
from tests.lookup_tables.tables import make_entry
from tuccl.reports.ratios import MeasuredGain
from tuccl.reports.report import LossWithoutExecutor
from tuccl.search.statistics.intervals import Interval
from tuccl.search.strategies.strategy import Ranked, SearchResult, Stop
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.tuning.decision import Comparison, Decision
from tuccl.tuning.guaranteed_minimum import KeyRatio, Verdict
from tuccl.tuning.pipeline.results import (
    as_seen,
    confirmation_of,
    floor_report,
    runners_up_of,
    settings_of_shapes,
    unproved_gain,
)
from tuccl.tuning.profile_race import RaceResult
from tuccl.tuning.profile_visits import Visit
from tuccl.tuning.results import KeyResult, SeenKey

RING = Config("ring", "LL", 4)
MEASURED = Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0")
COMPARED = Comparison(
    config=RING,
    reference=STOCK,
    time_us=10.0,
    reference_us=11.07,
    ratio=1.107,
    interval=Interval(1.087, 1.13),
    samples=72,
    spread=0.01,
    estimator=Estimator.MEAN_OVER_STARTS,
    starts=3,
)


def searched(operation: Collective, *configs: Config) -> KeyResult:
    """A key for which a ring won, and whose search ranked these after 10, 11, ... us."""
    ranking = tuple(Ranked(config, 10.0 + i, 5) for i, config in enumerate(configs))
    return KeyResult(
        task=Task(operation, 4096, Shape(8, 1, 8)),
        searches=(SearchResult(ranking, len(configs), 9, 1.0, Stop.CONVERGED),),
        decision=Decision(COMPARED, None, 12.0, ()),
        stock_us=12.0,
        range_bytes=(4000, 5000),
    )


def test_settings_that_came_next_are_runners_up() -> None:
    others = [Config("tree", "LL", channels) for channels in range(1, 10)]
    schedule = Config("schedule:5a5a", "LL", 4, 512, 65536)
    keys = [
        searched(Collective.ALL_REDUCE, others[0], RING, schedule, STOCK, *others[1:]),
        searched(Collective.ALLTOALL, others[0]),
        searched(Collective.ALL_GATHER, RING),
    ]
    (found,) = runners_up_of(keys, "ab" * 16, invariant=False)
    assert (found.key.operation, found.key.min_bytes, found.key.max_bytes) == (
        Collective.ALL_REDUCE,
        4000,
        5000,
    )
    # Seven of them, the fastest first; not the winner, and not NCCL's own choice.
    assert [setting.nchannels for setting in found.settings] == [1, 2, 3, 4, 5, 6, 7]
    assert found.schedules == (ScheduleConfig("5a5a", NcclProtocol.LL, 4, 512, 65536),)
    assert runners_up_of(keys, "ab" * 16, invariant=True) == ()


def test_runners_up_are_of_several_algorithms_and_protocols() -> None:
    trees = [Config("tree", "LL", channels) for channels in range(1, 10)]
    slow = [Config("nvls", "Simple", 16), Config("ring", "LL128", 8), Config("ring", "LL128", 4)]
    (found,) = runners_up_of(
        [searched(Collective.ALL_REDUCE, *trees, *slow)], "ab" * 16, invariant=False
    )
    assert [(each.algorithm, each.protocol, each.nchannels) for each in found.settings] == [
        *(("tree", "LL", channels) for channels in range(1, 6)),
        ("nvls", "Simple", 16),
        ("ring", "LL128", 8),
    ]


def test_two_different_schedules_are_runners_up_of_any_operation() -> None:
    ranking = [
        Config(f"schedule:{name}", protocol, channels, 512, 65536)
        for name, protocol, channels in (
            ("5a5a", "LL", 4), ("5a5a", "LL", 8), ("5a5a", "LL128", 4), ("6b6b", "LL", 4),
        )
    ]  # fmt: skip
    key = searched(Collective.ALLTOALL, *ranking)
    (found,) = runners_up_of([key], "ab" * 16, invariant=False)
    assert [(own.protocol, own.nchannels) for own in found.schedules] == [("LL", 4), ("LL128", 4)]
    won = replace(
        key, decision=replace(key.decision, schedule=replace(COMPARED, config=ranking[0]))
    )
    (found,) = runners_up_of([won], "ab" * 16, invariant=False)
    # The same schedule on other channels is another choice.
    assert [(own.protocol, own.nchannels) for own in found.schedules] == [("LL", 8), ("LL128", 4)]


def test_an_entry_has_its_estimator_interval_and_starts() -> None:
    assert confirmation_of(COMPARED, MEASURED) == Confirmation(
        Reference.STOCK, Estimator.MEAN_OVER_STARTS, 1.107, 1.087, 1.13, 0.99, 3
    )


@pytest.mark.parametrize(
    ("config", "reference"),
    [
        (STOCK, Reference.STOCK),
        (ProcessProfile(min_nchannels=32).default, Reference.PROFILE),
        (RING, Reference.BUILTIN),
    ],
)
def test_an_entry_names_its_reference(config: Config, reference: Reference) -> None:
    assert confirmation_of(replace(COMPARED, reference=config), MEASURED).reference is reference


@pytest.mark.parametrize(
    ("provenance", "starts"),
    [
        (MEASURED, 3),
        (Provenance("sockets"), 3),
        (Provenance("simulated"), NoStarts.MODELLED),
        (replace(MEASURED, replayed=True), NoStarts.RECORDED),
        (Provenance("simulated", replayed=True), NoStarts.MODELLED),
    ],
)
def test_without_workers_an_entry_says_why_there_were_no_starts(
    provenance: Provenance, starts: int | NoStarts
) -> None:
    assert confirmation_of(COMPARED, provenance).starts == starts


@pytest.mark.parametrize(("ratio", "serves"), [(1.4, True), (1.0, True), (0.97, False), (0, False)])
def test_an_entry_has_what_jobs_with_the_whole_table_gained(ratio: float, serves: bool) -> None:
    """On registered buffers, too, if the schedule was timed there; 0: it was not."""
    gain = MeasuredGain(1.25, 1.2, 1.3, 1.35)
    in_windows = MeasuredGain(ratio, ratio, ratio, ratio) if ratio else None
    schedule = ScheduleConfig("5a5a", NcclProtocol.LL, 8, 512, 65536)
    entry = make_entry(Collective.ALL_REDUCE, 1024, 4095, None, schedule=schedule)
    seen = as_seen(entry, SeenKey(60.0, 48.0, gain, 3, in_windows=in_windows))
    assert seen.in_job == JobGain(60.0, 48.0, 1.2, 1.3, 3)
    assert seen.in_job.ratio == 1.25
    assert seen.schedule == replace(schedule, in_windows=serves)
    assert as_seen(entry, None) == entry


def test_the_report_names_the_worst_key_as_jobs_get_it_and_without_the_executor() -> None:
    profile = ProcessProfile(min_nchannels=64)
    small, large = (Task(Collective.ALL_REDUCE, size, Shape(2, 1, 2)) for size in (1024, 1 << 30))
    worst = KeyRatio(small, 1.8, 1.7, 1.9, schedule=Config("schedule:0a", "LL", 4, 512))
    by_nccl = KeyRatio(small, 0.987, 0.984, 0.99), KeyRatio(large, 0.995, 0.99, 1.0)
    verdict = Verdict(profile, worst, holds=True, starts=3, without_executor=by_nccl)
    race = RaceResult(profile, (Visit(profile, {}, 0.1, 0.0, 1.1),), {}, False, verdict)
    report = floor_report(0.99, race)
    assert report.chosen is not None
    assert (report.chosen.size_bytes, report.chosen.schedule) == (1024, "0a")
    assert report.without_executor == LossWithoutExecutor(
        operation=Collective.ALL_REDUCE,
        size_bytes=1024,
        shape=Shape(2, 1, 2),
        ratio=0.987,
        low=0.984,
        high=0.99,
        starts=3,
    )
    lower = floor_report(0.98, race)
    assert lower.without_executor is None
    nccl = replace(verdict, worst=by_nccl[1])
    chosen = floor_report(0.99, replace(race, verdict=nccl)).chosen
    assert chosen is not None
    assert chosen.schedule == ""


KEY = KeyResult(
    Task(Collective.ALL_REDUCE, 1024, Shape(2, 1, 2)),
    (),
    Decision(COMPARED, None, 11.07, ()),
    11.07,
    (1, 1024),
    sample_s=0.01,
)
SCHEDULE = replace(
    COMPARED,
    config=Config("schedule:0a", "LL", 4),
    reference=RING,
    time_us=8.0,
    reference_us=10.0,
    ratio=1.25,
    interval=Interval(1.25 / 1.5, 1.25 * 1.5),
    starts=1,
)


def test_a_gain_that_was_seen_and_not_proved_says_what_its_proof_would_have_taken() -> None:
    """The bound of one start is ln 1.5 below ln 1.25: 1.817 times as far as it may be."""
    seen = unproved_gain(
        replace(KEY, decision=replace(KEY.decision, rejected=(SCHEDULE,))), MEASURED
    )
    assert seen is not None
    assert seen.gain == pytest.approx(11.07 / 8.0)
    assert seen.starts_needed == math.ceil(1.8171**2) == 4
    assert seen.further_starts == 4, "the start that found it is none of them"
    # Three calls, 24 samples and two for warming up each, of 10 ms; 50 ms allow six.
    assert seen.further_s == pytest.approx(4 * 3 * (2 + 6) * (0.01 + 0.0006))
    assert (seen.comparison.ratio, seen.comparison.starts) == (1.25, 1)


def test_a_gain_that_more_starts_than_are_made_would_prove_is_told_without_a_price() -> None:
    hardly = replace(SCHEDULE, ratio=1.02, time_us=9.8, interval=Interval(0.9, 1.1), starts=3)
    seen = unproved_gain(replace(KEY, decision=replace(KEY.decision, rejected=(hardly,))), MEASURED)
    assert seen is not None
    # 3 (ln(1.02 / 0.9) / ln 1.02)^2.
    assert (seen.starts_needed, seen.further_starts, seen.further_s) == (120, 0, 0.0)


def test_what_is_slower_than_the_winner_is_no_unproved_gain() -> None:
    slower = replace(SCHEDULE, reference=STOCK, time_us=10.5, ratio=1.05)
    for rejected in ((), (slower,)):
        key = replace(KEY, decision=replace(KEY.decision, rejected=rejected))
        assert unproved_gain(key, MEASURED) is None


COLLNET = "NCCL_COLLNET_ENABLE"


@pytest.mark.parametrize(
    ("nccl", "names"),
    [
        (None, [COLLNET, "NCCL_MIN_CTAS", "NCCL_NCHANNELS_PER_NET_PEER"]),
        (NcclVersion(2, 28, 3), [COLLNET, "NCCL_MIN_CTAS", "NCCL_NCHANNELS_PER_NET_PEER"]),
        (NcclVersion(2, 27, 7), [COLLNET, "NCCL_MIN_CTAS"]),
        (NcclVersion(2, 26, 6), ["NCCL_MIN_CTAS"]),
    ],
)
def test_communicators_of_measured_shapes_have_what_nccl_can_set_on_them(
    nccl: NcclVersion | None, names: list[str]
) -> None:
    profile = ProcessProfile(
        nthreads=256,
        min_nchannels=32,
        settings=((COLLNET, "1"), ("NCCL_NCHANNELS_PER_NET_PEER", "4")),
    )
    shapes = [Shape(4, 2, 2), Shape(2, 1, 2), Shape(1, 1, 1)]
    found = settings_of_shapes(profile, shapes, nccl)
    assert found == tuple(Setting(shape, name) for shape in shapes[1::-1] for name in names)
    assert settings_of_shapes(STOCK.profile, shapes, nccl) == ()
