"""Keys of an earlier table tuned again, under its process profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuccl.silent_progress import silent
from tests.tuccl.tuning.test_tune import (
    SETTINGS,
    SHAPE,
    SPACES,
    WITH_EXECUTOR,
    Executor,
    Machine,
    SmallBuffers,
    tuned,
    winners,
)
from tuccl.errors import ProfileLostError
from tuccl.search.strategies.warm import WarmStart
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.tuning.results import SearchSpaces, TunedKeys
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.searches import TuningMeans
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.tune import tune, tune_again
from tuccl.workspace.measurement_log import MeasurementLog

THREADS = ProcessProfile(nthreads=256)
SMALL_BUFFER = ProcessProfile(buffer_bytes=1 << 20)
SMALL, MIDDLE, LARGE = keys_of(SETTINGS, SHAPE)
LL, SIMPLE = (THREADS.applied_to(Config("ring", *c)) for c in (("LL", 4), ("Simple", 8)))


def again(
    folder: Path,
    machine: Machine,
    warm: WarmStart,
    settings: RunSettings = SETTINGS,
    spaces: SearchSpaces = SPACES,
) -> TunedKeys:
    with MeasurementLog(folder / "again", machine, "id") as log:
        return tune_again(TuningMeans(settings, spaces, log, silent), warm)


def warm(
    *tasks: Task,
    profile: ProcessProfile = THREADS,
    contenders: Mapping[Task, tuple[Config, ...]] | None = None,
    before: Mapping[Task, tuple[Config, ...]] | None = None,
) -> WarmStart:
    return WarmStart(profile, tasks, contenders or {}, before or {})


def test_only_the_named_keys_are_measured_and_with_fewer_samples(tmp_path: Path) -> None:
    first, second = Machine(), Machine()
    whole = tuned(tmp_path, first)
    start = warm(
        MIDDLE, LARGE, contenders={MIDDLE: (SIMPLE, LL), LARGE: (SIMPLE,)},
        before={MIDDLE: (SIMPLE,), LARGE: (LL,)},
    )  # fmt: skip
    result = again(tmp_path, second, start)
    assert [key.task for key in result.keys] == [MIDDLE, LARGE]
    assert winners(result) == winners(whole)[1:]
    assert result.profile == THREADS
    assert set(second.profiles) <= {THREADS, STOCK.profile, ProcessProfile(nthreads=512)}
    same, gained = result.against
    assert (same.before, same.now, same.ratio) == (SIMPLE, SIMPLE, 1.0)
    assert (gained.before, gained.now) == (LL, SIMPLE)
    assert gained.ratio == pytest.approx(1.2 / 0.7, rel=0.01)
    third = Machine()
    assert again(tmp_path, third, start) == result
    assert third.measured == 0


def test_keys_of_which_nothing_is_known_are_looked_at_from_below_and_in_every_family(
    tmp_path: Path,
) -> None:
    (tmp_path / "small").mkdir()
    result = again(tmp_path / "small", Machine(), warm(SMALL))
    assert winners(result) == [("LL", 4)]
    # A job had NCCL's own choice under the profile.
    assert [key.before for key in result.against] == [THREADS.default]
    result = again(tmp_path, Machine(), warm(MIDDLE, LARGE, contenders={MIDDLE: (SIMPLE,)}))
    assert winners(result) == [("Simple", 8), ("Simple", 8)]


def test_an_earlier_choice_that_cannot_run_now_gives_way_to_the_next(tmp_path: Path) -> None:
    broken = Machine(frozenset({STOCK.profile.applied_to(SIMPLE)}))
    start = warm(LARGE, contenders={LARGE: (SIMPLE,)}, before={LARGE: (SIMPLE, LL)})
    (key,) = again(tmp_path, broken, start).against
    assert (key.before, key.now) == (LL, THREADS.default)
    assert key.ratio > 1.1


def test_a_spent_budget_leaves_the_comparison_out(tmp_path: Path) -> None:
    start = warm(LARGE, contenders={LARGE: (SIMPLE,)})
    settings = replace(SETTINGS, budget_s=3.02, floor=None)
    assert again(tmp_path, Machine(), start, settings).against == ()


def test_a_tuning_from_the_beginning_keeps_seconds_for_the_comparison(tmp_path: Path) -> None:
    """Its searches take whatever the budget leaves them."""
    earlier = warm(SMALL, MIDDLE, LARGE, before={LARGE: (LL,)})
    settings = replace(SETTINGS, budget_s=30.0)
    with MeasurementLog(tmp_path / "log", Machine(), "id") as log:
        result = tune(TuningMeans(settings, SPACES, log, silent), SHAPE, earlier=earlier)
    assert [key.task for key in result.against] == [SMALL, MIDDLE, LARGE]
    assert result.against[2].ratio == pytest.approx(1.2 / 0.7, rel=0.01)
    assert result.spent_s <= 30.0


@pytest.mark.parametrize(("floor", "holds"), [(None, True), (0.98, True), (0.99, False)])
def test_a_profile_that_is_under_the_floor_now_is_lost(
    tmp_path: Path, floor: float | None, holds: bool
) -> None:
    start = warm(SMALL, MIDDLE, LARGE, profile=SMALL_BUFFER)
    settings = replace(SETTINGS, floor=floor)
    if holds:
        assert again(tmp_path, SmallBuffers(), start, settings).profile == SMALL_BUFFER
    else:
        with pytest.raises(ProfileLostError, match="NCCL_BUFFSIZE"):
            again(tmp_path, SmallBuffers(), start, settings)


@pytest.mark.parametrize("slows", [False, True])
def test_a_schedule_may_keep_the_profile_above_the_floor_where_it_wins_its_entry(
    tmp_path: Path, slows: bool
) -> None:
    schedule = Config("schedule:0a", "LL", 4, 256)
    start = warm(
        SMALL, MIDDLE, LARGE, profile=SMALL_BUFFER, contenders={SMALL: (schedule,)},
        before={SMALL: (schedule,)},
    )  # fmt: skip
    machine = Executor(slows=slows)
    machine.checks = 1
    if slows:
        with pytest.raises(ProfileLostError, match="without its schedule"):
            again(tmp_path, machine, start, spaces=WITH_EXECUTOR)
        return
    result = again(tmp_path, machine, start, spaces=WITH_EXECUTOR)
    assert result.race.by_schedule == {SMALL}
    assert result.keys[0].decision.schedule is not None
    assert result.against[0].ratio == pytest.approx(1.0)
