"""Events of a run: they tell all that is measured, and change nothing."""

from collections import Counter
from pathlib import Path

from tests.tuccl.silent_progress import silent
from tests.tuccl.tuning.test_tune import SETTINGS, SHAPE, SIZES, SPACES, Machine, tuned
from tuccl.search.trials import events
from tuccl.search.trials.best_so_far import KeySoFar
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.tuning.results import TunedKeys
from tuccl.tuning.searches import TuningMeans
from tuccl.tuning.tune import tune
from tuccl.workspace.measurement_log import MeasurementLog


def watched(folder: Path, machine: Machine) -> tuple[TunedKeys, list[events.Event]]:
    told: list[events.Event] = []
    folder.mkdir(exist_ok=True)
    with MeasurementLog(folder / "log", machine, "id") as log:
        return tune(TuningMeans(SETTINGS, SPACES, log, silent, told.append), SHAPE), told


def test_events_tell_what_was_measured_spent_and_decided(tmp_path: Path) -> None:
    result, told = watched(tmp_path / "watched", Machine())
    assert result == tuned(tmp_path / "unwatched", Machine())
    taken = [event for event in told if isinstance(event, events.SamplesTaken)]
    assert [event.spent_s for event in taken] == sorted(event.spent_s for event in taken)
    assert taken[-1].spent_s == result.spent_s
    keys: dict[Task, KeySoFar] = {}
    for event in taken:
        keys.setdefault(event.task, KeySoFar()).note(event.config, event.samples_us)
    for key in result.keys:
        assert key.decision.builtin is not None
        assert keys[key.task].times_us[STOCK] == key.stock_us
        assert keys[key.task].best == key.decision.builtin.config
    decided = {event.task: event for event in told if isinstance(event, events.KeyDecided)}
    assert all(event.gain is None for event in decided.values()), "256 threads won"
    assert {task: event.winner for task, event in decided.items()} == {
        key.task: key.decision.winner for key in result.keys
    }
    starts = [event.profile for event in told if isinstance(event, events.WorkersRestarted)]
    assert starts[-1] in {result.profile, STOCK.profile}
    assert len(starts) >= len(result.race.visits) - 1


def test_each_measurement_is_announced_and_then_has_its_samples(tmp_path: Path) -> None:
    _, told = watched(tmp_path, Machine())
    begun: events.MeasuringBegins | None = None
    for event in told:
        if isinstance(event, events.MeasuringBegins):
            assert begun is None
            begun = event
        elif isinstance(event, events.SamplesTaken):
            assert begun is not None
            assert (event.task, event.config) == (begun.task, begun.config)
            assert len(event.samples_us) == begun.samples
            begun = None
    assert begun is None


def test_a_failure_is_told_once_and_a_run_that_continues_tells_the_same(tmp_path: Path) -> None:
    hangs = Config("ring", "LL", 8)
    first, told = watched(tmp_path, Machine(frozenset({hangs})))
    failed = Counter(
        event.config for event in told if isinstance(event, events.ConfigurationFailed)
    )
    assert set(failed) >= {hangs}
    assert max(failed.values()) <= len(SIZES), "once for each key"
    again, told_again = watched(tmp_path, Machine())
    assert again == first
    assert told_again == told
