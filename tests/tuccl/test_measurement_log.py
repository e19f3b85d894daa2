import json
from pathlib import Path

import pytest

from lookup_tables.table import Operation, Shape
from tuccl.backends.protocol import Measured
from tuccl.errors import ConfigurationFailedError, WorkspaceError
from tuccl.measurement_log import MeasurementLog
from tuccl.search.config import STOCK, Config, Task

TASK = Task(Operation.ALL_REDUCE, 1024, Shape(4, 1, 4))
RING = Config("ring", "LL", 4, 256, 0)
BROKEN = Config("pat", "Simple", 1)


class Counting:
    """Sample number n of anything takes n + 1 us; remembers what it was asked for."""

    name = "counting"
    versions = "1"
    restart_s = 0.0

    def __init__(self) -> None:
        self.asked: list[tuple[Config, int, int]] = []

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        assert task == TASK
        self.asked.append((config, first, repeats))
        if config == BROKEN:
            raise ConfigurationFailedError("it hung")
        samples = tuple(float(number + 1) for number in range(first, first + repeats))
        return Measured(samples, 0.5 * repeats)

    def close(self) -> None:
        pass


def test_a_failure_is_recorded_and_not_tried_again(tmp_path: Path) -> None:
    with MeasurementLog(tmp_path / "log", Counting(), "id") as log:
        with pytest.raises(ConfigurationFailedError, match="it hung"):
            log.measure(TASK, BROKEN, 2)
        log.measure(TASK, RING, 1)
    backend = Counting()
    with MeasurementLog(tmp_path / "log", backend, "id") as log:
        with pytest.raises(ConfigurationFailedError, match="it hung"):
            log.measure(TASK, BROKEN, 2)
        assert log.measure(TASK, RING, 1).samples_us == (1.0,)
    assert backend.asked == []


def test_seconds_are_those_of_all_samples_also_after_a_restart(tmp_path: Path) -> None:
    with MeasurementLog(tmp_path / "log", Counting(), "id") as log:
        assert log.measure(TASK, RING, 3).seconds == 1.5
        assert log.measure(TASK, RING, 5).seconds == 2.5
    with MeasurementLog(tmp_path / "log", Counting(), "id") as log:
        assert log.measure(TASK, RING, 5).seconds == 2.5


def test_measures_only_what_is_missing_and_gives_exactly_what_was_asked(tmp_path: Path) -> None:
    backend = Counting()
    with MeasurementLog(tmp_path / "log", backend, "id") as log:
        assert log.measure(TASK, RING, 3).samples_us == (1.0, 2.0, 3.0)
        assert log.measure(TASK, RING, 5).samples_us == (1.0, 2.0, 3.0, 4.0, 5.0)
        assert log.measure(TASK, RING, 2).samples_us == (1.0, 2.0)
    assert backend.asked == [(RING, 0, 3), (RING, 3, 2)]


def test_what_was_measured_is_not_measured_again_after_a_restart(tmp_path: Path) -> None:
    with MeasurementLog(tmp_path / "log", Counting(), "id") as log:
        log.measure(TASK, RING, 3)
        log.measure(TASK, STOCK, 1)
    backend = Counting()
    with MeasurementLog(tmp_path / "log", backend, "id") as log:
        assert log.measure(TASK, RING, 4).samples_us == (1.0, 2.0, 3.0, 4.0)
    assert backend.asked == [(RING, 3, 1)]


def test_a_line_cut_at_any_byte_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with MeasurementLog(path, Counting(), "id") as log:
        log.measure(TASK, RING, 2)
        log.measure(TASK, RING, 4)
    whole = path.read_bytes()
    start_of_last = whole[:-1].rfind(b"\n") + 1
    for end in range(start_of_last, len(whole)):
        path.write_bytes(whole[:end])
        with MeasurementLog(path, Counting(), "id") as log:
            log.measure(TASK, RING, 4)
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no json\n", "not a measurement log"),
        (b"somebody's file without a newline", "not a measurement log"),
        (b'{"format": "tuccl-measurements", "version": 7}\n', "version 7"),
        (b'{"format":"tuccl-measurements","version":2,"identity":"other"}\n', "another machine"),
    ],
)
def test_a_log_of_something_else_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(WorkspaceError, match=said):
        MeasurementLog(path, Counting(), "id")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "record",
    [
        "[]",
        "{}",
        '{"task":"t","config":["ring","LL",1,2,3],"first":5,"samples_us":[1.0]}',
        '{"task":"t","config":["ring","LL"],"first":0,"samples_us":[1.0]}',
        '{"task":"t","config":["ring","LL",1,2,3],"first":0,"samples_us":["x"]}',
    ],
)
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, record: str) -> None:
    path = tmp_path / "log"
    header = {"format": "tuccl-measurements", "version": 1, "identity": "id"}
    path.write_text(f"{json.dumps(header)}\n{record}\n")
    with pytest.raises(WorkspaceError, match="damaged"):
        MeasurementLog(path, Counting(), "id")
