"""The gain of a step of a workload, by hand."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Reference
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.reports.job_gains import JobGains, job_gains
from tuccl.reports.report import ProfileRatio
from tuccl.reports.step_gain import StepGain, step_gain
from tuccl.search.trials.config import Task
from tuccl.workloads.step_calls import KeyCalls, LeftOut, SizeCalls, StepCalls, Why

SIZES = (1024, 2048, 4096, 8192)
BOTH, SCHEDULE, BUILTIN, NEITHER = SIZES
TREE = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL)
TO_95 = 1.959964 / 2.326348


def gains(
    profile: Mapping[str, str] | None = None,
    *,
    has_executor: bool = True,
    reference: Reference = Reference.STOCK,
    in_turn: ProfileRatio | None = None,
    start_error: float = 0.0,
) -> JobGains:
    """Stock NCCL takes 16 us, a schedule 4 or 2 us, a built-in 8 us, the profile alone 12.8 us."""
    table, report = tuned(FOUR_GPUS, profile=profile)
    keys = []
    for key in report.keys:
        compared = {
            name: None if found is None else found.model_copy(update={"reference": reference})
            for name, found in (("builtin", key.builtin), ("schedule", key.schedule))
        }
        changed = {"shape": FOUR_GPUS, "profile_ratio": in_turn, **compared}
        keys.append(key.model_copy(update=changed))
    changed_report = report.model_copy(update={"keys": keys, "start_error": start_error})
    return job_gains(table, changed_report, has_executor=has_executor)


def step(
    found: JobGains, *calls: tuple[int, float], left_out: tuple[LeftOut, ...] = ()
) -> StepGain:
    """The gain of a step with so many calls of each size; every size is a key."""
    counts = dict(calls)
    keys = tuple(
        KeyCalls(Task(Collective.ALL_REDUCE, size, FOUR_GPUS), (SizeCalls(size, counts[size]),))
        for size in SIZES
        if size in counts
    )
    return step_gain(StepCalls(keys, left_out, "digest", 1.0), found)


def test_a_steps_time_is_the_sum_of_its_calls() -> None:
    found = step(gains(), (BOTH, 1.0), (SCHEDULE, 2.0), (BUILTIN, 3.0), (NEITHER, 4.0))
    assert found.stock_us == pytest.approx(160.0)
    assert found.table_us == pytest.approx(4.0 + 2 * 2.0 + 3 * 8.0 + 4 * 16.0)
    assert found.gain == pytest.approx(160.0 / 96.0)
    assert [key.size_bytes for key in found.keys] == [NEITHER, BUILTIN, SCHEDULE, BOTH]
    assert [key.stock_us for key in found.keys] == pytest.approx([64.0, 48.0, 32.0, 16.0])
    assert [key.table_us for key in found.keys] == pytest.approx([64.0, 24.0, 4.0, 4.0])


def test_without_the_executor_its_calls_are_those_of_the_plugin() -> None:
    found = step(gains(has_executor=False), (BOTH, 1.0), (SCHEDULE, 1.0))
    assert found.table_us == pytest.approx(8.0 + 16.0)


def test_a_key_without_an_entry_and_a_profile_is_certain() -> None:
    found = step(gains(), (NEITHER, 3.0))
    assert (found.low, found.gain, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_the_interval_of_one_key_is_that_of_its_comparison() -> None:
    found = step(gains(), (BUILTIN, 3.0))
    # Against stock NCCL: 2.0 with bounds of 1.5 and 2.2, each of 99 %.
    assert found.low == pytest.approx(2.0 * (1.5 / 2.0) ** TO_95, rel=1e-5)
    assert found.high == pytest.approx(2.0 * (2.2 / 2.0) ** TO_95, rel=1e-5)


def test_intervals_of_independent_keys_add_as_squares() -> None:
    lone, together = step(gains(), (BUILTIN, 3.0)), step(gains(), (BUILTIN, 3.0), (NEITHER, 4.0))
    longer_us = lone.stock_us / lone.low - lone.table_us
    assert together.stock_us / together.low == pytest.approx(together.table_us + longer_us)
    both = step(gains(), (BUILTIN, 3.0), (BOTH, 2.0))
    other_us = 2.0 * 4.0 * ((1.5 / 4.0) ** -TO_95 - 1.0)
    assert both.stock_us / both.low == pytest.approx(
        both.table_us + math.hypot(longer_us, other_us), rel=1e-5
    )


def test_a_comparison_under_the_profile_has_the_profiles_error_too() -> None:
    in_turn = ProfileRatio(ratio=1.25, low=1.2, high=1.3, starts=3)
    under = gains({"NCCL_BUFFSIZE": "1"}, reference=Reference.PROFILE, in_turn=in_turn)
    found = step(under, (BUILTIN, 1.0))
    width = math.hypot(TO_95 * math.log(2.0 / 1.5), math.log(1.25 / 1.2))
    assert found.low == pytest.approx(2.0 * math.exp(-width), rel=1e-5)
    alone = step(under, (NEITHER, 1.0))
    assert (alone.low, alone.gain, alone.high) == pytest.approx((1.2, 1.25, 1.3))
    # Without starts in turn, those of two starts differ, by more on an unsteady machine.
    unsteady = step(gains({"NCCL_BUFFSIZE": "1"}, start_error=0.1), (NEITHER, 1.0))
    assert unsteady.low == pytest.approx(1.25 * math.exp(-0.1), rel=1e-5)
    apart = step(gains({"NCCL_BUFFSIZE": "1"}), (NEITHER, 1.0))
    assert apart.low == pytest.approx(1.25 * math.exp(-0.015), rel=1e-5)


def test_a_schedule_that_was_held_against_a_builtin_has_the_errors_of_both() -> None:
    chained = step(gains(reference=Reference.BUILTIN), (BOTH, 1.0))
    schedule, builtin = math.log(4.0 / 1.5), math.log(2.0 / 1.5)
    width = TO_95 * math.hypot(schedule, builtin)
    assert chained.low == pytest.approx(4.0 * math.exp(-width), rel=1e-5)


def test_sizes_of_a_key_gain_what_the_entry_that_serves_them_gains() -> None:
    task = Task(Collective.ALL_REDUCE, BUILTIN, FOUR_GPUS)
    key = KeyCalls(task, (SizeCalls(3000, 1.0), SizeCalls(5000, 1.0)))
    found = step_gain(StepCalls((key,), (), "digest", None), gains())
    # 3000 bytes are served by the entry of 2048 (2 us), 5000 by that of 4096 (8 us).
    assert found.table_us == pytest.approx(2.0 + 8.0)


def between(profile: Mapping[str, str] | None = None, **known: Any) -> JobGains:
    """Gains where calls of 2801 to 3199 bytes are left to NCCL, between the keys of 2K and 4K."""
    found = gains(profile, **known)
    first, *keys, last = found.keys
    ends = ({"max_bytes": 2800}, {"min_bytes": 3200})
    for at, end in enumerate(ends):
        entry, decision = keys[at].entry, keys[at].decision.model_copy(update=end)
        assert entry is not None
        within = replace(entry.key, min_bytes=decision.min_bytes, max_bytes=decision.max_bytes)
        keys[at] = replace(keys[at], decision=decision, entry=replace(entry, key=within))
    return replace(found, keys=(first, *keys, last))


def step_between(found: JobGains) -> StepGain:
    """A step of calls of 2048 and 2900 bytes, of one key, and of 3000 and 4096, of the next."""
    keys = tuple(
        KeyCalls(
            Task(Collective.ALL_REDUCE, size, FOUR_GPUS),
            (SizeCalls(low, 1.0, 16.0), SizeCalls(high, 1.0, 16.0)),
        )
        for size, low, high in ((SCHEDULE, SCHEDULE, 2900), (BUILTIN, 3000, BUILTIN))
    )
    return step_gain(StepCalls(keys, (), "digest", None), found)


def test_calls_between_two_entries_gain_nothing() -> None:
    found = step_between(between())
    assert [key.table_us for key in found.keys] == pytest.approx([2.0 + 16.0, 16.0 + 8.0])
    assert found.gain == pytest.approx(64.0 / 42.0)
    assert found.saved_us == pytest.approx(14.0 + 8.0)
    # Those calls are certain: only the others' bounds, of 1.5 and 99 % each, are away from them.
    longer_us = math.hypot(2.0 * ((1.5 / 4.0) ** -TO_95 - 1.0), 8.0 * ((1.5 / 2.0) ** -TO_95 - 1.0))
    assert found.low == pytest.approx(64.0 / (42.0 + longer_us), rel=1e-5)


def test_calls_between_two_entries_have_the_gain_of_the_profile() -> None:
    in_turn = ProfileRatio(ratio=1.25, low=1.2, high=1.3, starts=3)
    found = step_between(between({"NCCL_BUFFSIZE": "1"}, in_turn=in_turn))
    assert found.table_us == pytest.approx(2.0 + 12.8 + 12.8 + 8.0)
    assert found.gain == pytest.approx(64.0 / 35.6)


def test_sizes_that_a_job_learned_gain_what_their_entries_do() -> None:
    """A tree takes 5 us at 3000 bytes, NCCL 10 us; it serves the sizes beyond them, too."""
    table, report = tuned(FOUR_GPUS)
    both, schedule, ring = table.entries
    keys = (replace(schedule.key, max_bytes=2999), replace(schedule.key, min_bytes=3000))
    learned = replace(
        schedule, key=keys[1], tuned_bytes=3000, builtin=TREE, schedule=None, time_us=5.0,
        builtin_time_us=5.0, default_time_us=10.0, confirmation=None,
    )  # fmt: skip
    table = replace(table, entries=(both, replace(schedule, key=keys[0]), learned, ring))
    found = step_between(job_gains(table, report, has_executor=True))
    assert [key.table_us for key in found.keys] == pytest.approx([2.0 + 2.0, 8.0 + 8.0])
    # Nothing bounds the tree's time of 8 us; each other one is at most 1.1 times as short.
    shorter = 1.0 - 1.1**-TO_95
    shorter_us = math.hypot(8.0, 4.0 * shorter, 8.0 * shorter)
    assert found.low == 0.0
    assert found.high == pytest.approx(64.0 / (20.0 - shorter_us), rel=1e-5)


def test_beside_computation_a_call_saves_its_share_of_the_longer_of_both_in_the_job() -> None:
    """Half of the time is saved; in the job calls took 10 us, beside 40 us of computation."""
    calls = SizeCalls(SCHEDULE, 2.0, 100.0, 10.0, 40.0)
    assert calls.saved_us(200.0, 100.0) == pytest.approx(2 * 5.0)
    assert calls.saved_us(200.0, 100.0, beside_computation=True) == pytest.approx(2 * 20.0)
    waited_for = SizeCalls(SCHEDULE, 2.0, 4.0, 10.0, 40.0)
    assert waited_for.saved_us(200.0, 100.0, beside_computation=True) == pytest.approx(2 * 4.0)
    both = SizeCalls(SCHEDULE, 2.0, 4.0, 10.0, 40.0, 7.0)
    assert both.saved_us(200.0, 100.0, beside_computation=True) == pytest.approx(2 * 11.0)
    assert both.saved_us(200.0, 100.0) == pytest.approx(2 * 4.0)


def test_a_step_saves_no_more_than_it_waits_for() -> None:
    """The schedule saves 14 us a call, the built-in 8 us, and a call without entry nothing."""

    def saved(*exposed_us: float | None) -> float | None:
        keys = tuple(
            KeyCalls(Task(Collective.ALL_REDUCE, size, FOUR_GPUS), (SizeCalls(size, 2.0, time_us),))
            for size, time_us in zip((SCHEDULE, BUILTIN, NEITHER), exposed_us, strict=True)
        )
        return step_gain(StepCalls(keys, (), "digest", 1.0), gains()).saved_us

    assert saved(16.0, 16.0, 16.0) == pytest.approx(2 * 14.0 + 2 * 8.0)
    assert saved(3.0, 16.0, 0.0) == pytest.approx(2 * 3.0 + 2 * 8.0)
    assert saved(0.0, None, 0.0) == pytest.approx(2 * 8.0)
    assert saved(None, None, None) is None


def test_calls_that_took_less_time_in_the_job_save_the_same_share_of_it() -> None:
    """Alone four calls take 40 us with stock NCCL and 10 us with the table."""

    def saved_us(in_job_us: float | None, exposed_us: float = 10.0) -> float:
        return SizeCalls(4096, 4.0, exposed_us, in_job_us).saved_us(40.0, 10.0)

    assert saved_us(None) == saved_us(10.0) == saved_us(25.0) == pytest.approx(30.0)
    assert saved_us(6.0) == pytest.approx(0.75 * 4 * 6.0)
    assert saved_us(6.0, 2.0) == pytest.approx(4 * 2.0)
    # A slower table costs what it costs alone.
    assert SizeCalls(4096, 4.0, 10.0, 6.0).saved_us(10.0, 40.0) == pytest.approx(-30.0)


def test_calls_of_one_size_have_the_mean_of_their_times() -> None:
    both = SizeCalls(4096, 3.0, 10.0, 12.0).with_more(SizeCalls(4096, 1.0, 2.0, 4.0))
    assert both == SizeCalls(4096, 4.0, 8.0, 10.0)
    assert both.with_more(SizeCalls(4096, 1.0)) == SizeCalls(4096, 5.0)


def test_the_document_has_the_shares_of_what_is_left_out() -> None:
    left_out = (
        LeftOut("send", Why.OPERATION, "no table has this operation", 1.0, 1024.0),
        LeftOut("all_reduce of 3 ranks", Why.COMMUNICATOR, "none here", 2.0, 2048.0),
    )
    found = step(gains(), (BOTH, 1.0), left_out=left_out)
    assert (found.untuned_share, found.left_out_share) == (0.25, 0.5)
    assert found.confidence == 0.95
    assert [each.calls for each in found.left_out] == ["send", "all_reduce of 3 ranks"]
