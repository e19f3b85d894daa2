import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError, MeasurementError, WorkspaceError
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_file import Sums
from tuccl.workspace.measurement_lines import Source, header_line
from tuccl.workspace.measurement_log import MeasurementLog, read_log

TASK = Task(Collective.ALL_REDUCE, 1024, Shape(4, 1, 4))
RING = Config("ring", "LL", 4, 256, 0)
BROKEN = Config("pat", "Simple", 1)


class Counting:
    """Sample number n of anything takes n + 1 us; remembers what it was asked for."""

    name = "counting"
    provenance = Provenance("counting")
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

    def restart(self) -> None:
        """All starts are alike."""

    def check(self, task: Task, config: Config) -> None:
        """There is no data."""


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
    "content",
    [
        b"no json\n",
        b"somebody's file without a newline",
        b'{"format": "tuccl-measurements", "version": 7}\n',
        Sums().sealed(header_line("other")),
    ],
)
def test_a_log_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(WorkspaceError):
        MeasurementLog(path, Counting(), "id")
    assert path.read_bytes() == content


def logged(path: Path, *records: str) -> Path:
    """A log whose lines have the right sums, whatever they say."""
    sums = Sums()
    lines = [header_line("id"), *(record.encode() for record in records)]
    path.write_bytes(b"".join(map(sums.sealed, lines)))
    return path


def line(**changes: object) -> str:
    good: dict[str, object] = {
        "task": ["all_reduce", 1024, 4, 1, 4, ""],
        "config": ["ring", "LL", 1, 2, 3, 4, 0],
        "first": 0,
        "samples_us": [1.0],
        "seconds": 0.5,
    }
    return json.dumps(good | changes)


@pytest.mark.parametrize(
    "record",
    [
        "{}",
        '{"task":' + "[" * 100_000 + "}",
        line(first=5),
        line(config=["ring", "LL"]),
        line(config=["ring", "LL", 1, 2, 3, 4, 5, 6]),
        line(samples_us=["x"]),
        line(samples_us=[float("nan")]),
        line(samples_us=[-1.0]),
        line(seconds=-1.0),
        line(seconds=None),
        '{"provenance": {}, "timing": {}}',
        line(failed="hung", seconds=float("inf")),
        line(seconds=10**400),
        line(config=["ring", "LL", 1, 2, 3, float("inf"), 0]),
        line(first=5).replace("5", "5" * 5000),
        '{"estimate": ["all_reduce", 1024, 4, 1, 4, ""], "us": NaN}',
        line(task=["all_reduce", 1024, 4, 5, 4, ""]),
    ],
)
def test_a_damaged_line_is_named_and_what_stands_before_it_is_used(
    tmp_path: Path, record: str
) -> None:
    tree = line(config=["tree", "LL", 1, 2, 3, 4, 0])
    path = logged(tmp_path / "log", tree, record, line(), line(first=1))
    content = path.read_bytes()
    told: list[str] = []
    (kept,) = read_log(path, "id", told.append).all
    assert kept.config.algorithm == "tree"
    assert path.read_bytes() == content
    backend = Counting()
    with MeasurementLog(path, backend, "id", told.append) as log:
        assert log.contents.all == (kept,)
        assert log.measure(TASK, kept.config, 1).samples_us == (1.0,)
        assert backend.asked == []
    begin = f"note: {path} is damaged in line 3 ("
    assert [message.startswith(begin) for message in told] == [True, True]
    assert told[0].endswith("): 3 lines from there on are not used")
    assert told[1].endswith(
        "): 3 lines from there on are dropped and measured again where needed; "
        f"the file as it was is {path}.damaged-1"
    )
    assert (tmp_path / "log.damaged-1").read_bytes() == content
    assert content.startswith(path.read_bytes())


def whole_log(path: Path) -> bytes:
    with MeasurementLog(path, Counting(), "id") as log:
        log.measure(TASK, RING, 2)
        log.measure(TASK, STOCK, 1)
        with pytest.raises(ConfigurationFailedError):
            log.measure(TASK, BROKEN, 1)
        log.measure(TASK, RING, 3)
    return path.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_any_byte_that_changed_is_found(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "log"
    whole = whole_log(path)
    lines = whole.splitlines(keepends=True)
    kept = [read_log(path, "id").all]
    for number in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:number]))
        kept.append(read_log(path, "id").all)
    for place in range(len(whole)):
        number = whole[:place].count(b"\n") + 1
        path.write_bytes(changed(whole, place, mask))
        told: list[str] = []
        try:
            found = read_log(path, "id", told.append)
        except WorkspaceError as error:
            assert number == 1
            told.append(str(error))
        else:
            assert found.all == kept[number - 1]  # All of them, where the first can be restored.
        assert len(told) == 1, f"byte {place}"
        assert f"line {number} " in told[0] or "not a measurement log" in told[0]


def changed(whole: bytes, place: int, mask: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :]


@pytest.mark.long
@given(data=st.data())
def test_a_search_on_a_log_with_a_changed_byte_ends_with_the_same_log(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        whole = whole_log(path)
        place = data.draw(st.integers(whole.index(b"\n") + 1, len(whole) - 1), label="place")
        damaged = changed(whole, place, data.draw(st.integers(1, 255), label="mask"))
        path.write_bytes(damaged)
        assert whole_log(path) == whole
        assert Path(f"{path}.damaged-1").read_bytes() == damaged


@pytest.mark.parametrize("edit", ["one is missing", "two change places", "one stands twice"])
def test_a_line_that_stands_elsewhere_is_found(tmp_path: Path, edit: str) -> None:
    path = tmp_path / "log"
    header, source, ring, stock, *more = whole_log(path).splitlines(keepends=True)
    middle = {
        "one is missing": [stock],
        "two change places": [stock, ring],
        "one stands twice": [ring, ring, stock],
    }[edit]
    path.write_bytes(b"".join([header, source, *middle, *more]))
    told: list[str] = []
    read_log(path, "id", told.append)
    assert "is damaged in line" in told[0]


def test_a_damaged_first_line_is_restored_where_the_second_begins_with_its_sum(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    whole = whole_log(path)
    path.write_bytes(whole.replace(b'"id"', b'"jd"', 1))
    told: list[str] = []
    with MeasurementLog(path, Counting(), "id", told.append) as log:
        assert log.measure(TASK, RING, 3).samples_us == (1.0, 2.0, 3.0)
    assert path.read_bytes() == whole
    assert "log is damaged in line 1 (its sum is wrong), which could be restored" in told[0]
    path.write_bytes(whole.replace(b'"id"', b'"jd"', 1))
    with pytest.raises(WorkspaceError, match=r"is damaged in line 1 .*move it away"):
        read_log(path, "another")


def test_a_line_that_is_no_measurement_is_dropped_whatever_its_sum(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with MeasurementLog(path, Counting(), "id") as log:
        log.measure(TASK, RING, 1)
        log._write(b'{"task":["all_reduce",1024,4,1,4,""]}')
    told: list[str] = []
    with MeasurementLog(path, Counting(), "id", told.append) as log:
        log.measure(TASK, RING, 2)
    assert "in line 4 ('config')" in told[0]
    assert read_log(path, "id", told.append).known(TASK, RING).samples_us == (1.0, 2.0)
    assert len(told) == 1


class Steps(Counting):
    """Costs one second per request, whatever is asked for; fails from the fourth sample on."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        super().measure(task, config, first, repeats)
        if first >= 3:
            raise ConfigurationFailedError("it crashed", seconds=4.0)
        return Measured((1.0,) * repeats, 1.0)


def test_each_request_is_answered_as_it_was_the_first_time(tmp_path: Path) -> None:
    def answers(log: MeasurementLog) -> list[object]:
        found: list[object] = [log.measure(TASK, RING, count) for count in (1, 3)]
        try:
            log.measure(TASK, RING, 9)
        except ConfigurationFailedError as error:
            found.append((str(error), error.seconds))
        return found

    with MeasurementLog(tmp_path / "log", Steps(), "id") as log:
        first_time = answers(log)
    assert first_time == [Measured((1.0,), 1.0), Measured((1.0,) * 3, 2.0), ("it crashed", 4.0)]
    backend = Steps()
    with MeasurementLog(tmp_path / "log", backend, "id") as log:
        assert answers(log) == first_time
        (recorded,) = log.contents.all
    assert backend.asked == []
    assert (recorded.task, recorded.config, recorded.samples_us) == (TASK, RING, (1.0,) * 3)
    assert (recorded.failed, recorded.seconds) == ("it crashed", 6.0)


class Modelled(Counting):
    """Counts a restart of 100 s where the profile changes, as a model does."""

    def __init__(self) -> None:
        super().__init__()
        self.running: ProcessProfile | None = None

    def resume(self, running: ProcessProfile) -> None:
        self.running = running

    def restart(self) -> None:
        self.running = None

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        cost = 0.0 if config.profile == self.running else 100.0
        self.running = config.profile
        super().measure(task, config, first, repeats)
        return Measured((1.0,) * repeats, cost + repeats)


def test_a_stop_changes_no_cost_where_restarts_are_modelled(tmp_path: Path) -> None:
    steps = [(RING, 1), (STOCK, 1), (RING, 2), (Config("tree", "LL", 2, 256, 0), 1)]
    with MeasurementLog(tmp_path / "whole", Modelled(), "id") as log:
        whole = [log.measure(TASK, *step) for step in steps]
    stopped = []
    for end in range(1, len(steps) + 1):
        with MeasurementLog(tmp_path / "stopped", Modelled(), "id") as log:
            stopped = [log.measure(TASK, *step) for step in steps[:end]]
    assert [measured.seconds for measured in whole] == [101.0, 101.0, 202.0, 1.0]
    assert stopped == whole


def test_a_new_start_is_paid_for_once_whenever_a_search_stops(tmp_path: Path) -> None:
    def steps(log: MeasurementLog, end: int) -> list[Measured]:
        found = [log.measure(TASK, STOCK, 1)]
        for start in range(1, end):
            log.restart()
            found += [log.measure(TASK, STOCK, 2 * start), log.measure(TASK, STOCK, 2 * start + 1)]
        return found

    with MeasurementLog(tmp_path / "whole", Modelled(), "id") as log:
        whole = steps(log, 3)
    for end in (1, 2, 3):
        with MeasurementLog(tmp_path / "stopped", Modelled(), "id") as log:
            stopped = steps(log, end)
    assert [measured.seconds for measured in whole] == [101.0, 202.0, 203.0, 304.0, 305.0]
    assert stopped == whole


def test_a_new_start_waits_for_a_call_that_needs_a_process_profile(tmp_path: Path) -> None:
    backend = Modelled()
    inside = Config("schedule:a", "LL", 2)
    with MeasurementLog(tmp_path / "log", backend, "id") as log:
        log.measure(TASK, STOCK, 1)
        log.restart()
        assert log.measure(TASK, inside, 1).seconds == 1.0
        assert log.measure(TASK, STOCK, 2).seconds == 202.0


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        ((1.0, float("nan")), 0.1),
        ((1.0, 0.0), 0.1),
        ((1.0, 2.0), float("inf")),
        ((1.0, 1.0, 1.0), 0.1),
        ((), 0.1),
    ],
)
def test_a_wrong_figure_is_never_recorded(
    tmp_path: Path, samples: tuple[float, ...], seconds: float
) -> None:
    class Wrong(Counting):
        def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
            super().measure(task, config, first, repeats)
            return Measured(samples, seconds)

    with MeasurementLog(tmp_path / "log", Wrong(), "id") as log:
        with pytest.raises(MeasurementError, match="counting backend"):
            log.measure(TASK, RING, 2)
        assert log.contents.all == ()
    assert (tmp_path / "log").read_bytes().count(b"\n") == 1


def test_the_log_says_what_measured_and_refuses_to_go_on_with_something_else(
    tmp_path: Path,
) -> None:
    with MeasurementLog(tmp_path / "log", Counting(), "id") as log:
        log.measure(TASK, RING, 2)
        assert log.contents.source == Source(Provenance("counting"), Timing())
    newer = Counting()
    newer.provenance = Provenance("counting", NcclVersion(2, 30, 1), "0.2.0")
    before = (tmp_path / "log").read_bytes()
    with MeasurementLog(tmp_path / "log", newer, "id") as log:
        assert log.measure(TASK, RING, 2).samples_us == (1.0, 2.0)
        with pytest.raises(
            WorkspaceError, match=r"measured by counting \(counting\), this is .* \(tuccl 0.2.0 "
        ):
            log.measure(TASK, RING, 3)
    assert (tmp_path / "log").read_bytes() == before
    assert read_log(tmp_path / "log", "id").source == Source(Provenance("counting"), Timing())


def test_a_log_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert read_log(tmp_path / "log", "id").all == ()
    assert not (tmp_path / "log").exists()


class Slow(Counting):
    """Gives one sample at a time, however many are asked for."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        super().measure(task, config, first, 1)
        self.asked[-1] = (config, first, repeats)
        return Measured((float(first + 1),), 1.0)


def test_a_configuration_that_is_not_worth_more_samples_is_not_asked_again(tmp_path: Path) -> None:
    steps = (2, 9, 9, 3, 27)
    given = [
        Measured((1.0,), 1.0),
        *[Measured((1.0, 2.0), 2.0)] * 3,
        Measured((1.0, 2.0, 3.0), 3.0),
    ]
    for asked in ([(RING, 0, 2), (RING, 1, 8), (RING, 2, 25)], []):
        backend = Slow()
        with MeasurementLog(tmp_path / "log", backend, "id") as log:
            assert [log.measure(TASK, RING, count) for count in steps] == given
        assert backend.asked == asked


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([RING, STOCK, BROKEN, Config("tree", "LL", 2, 256, 0)]), st.integers(1, 6)
    ),
    max_size=12,
)


@pytest.mark.long
@given(requests=REQUESTS, data=st.data())
def test_killed_at_any_byte_a_search_is_answered_as_if_it_had_never_stopped(
    requests: list[tuple[Config, int]], data: st.DataObject
) -> None:
    def answers(path: Path) -> list[object]:
        found: list[object] = []
        with MeasurementLog(path, Modelled(), "id") as log:
            for config, repeats in requests:
                try:
                    found.append(log.measure(TASK, config, repeats))
                except ConfigurationFailedError as error:
                    found.append((str(error), error.seconds))
        return found

    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        first_time = answers(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole)), label="killed at")])
        assert answers(path) == first_time
        assert path.read_bytes() == whole


def test_further_variables_of_a_profile_are_kept(tmp_path: Path) -> None:
    under = ProcessProfile(settings=(("NCCL_A", "0"), ("NCCL_B", "2"))).applied_to(RING)
    with MeasurementLog(tmp_path / "log", Counting(), "id") as log:
        log.measure(TASK, under, 2)
        log.measure(TASK, RING, 1)
    again = read_log(tmp_path / "log", "id")
    assert again.known(TASK, under).samples_us == (1.0, 2.0)
    assert again.profiles == [under.profile, RING.profile]


ALLOWED = CostTable.parse("tree/Simple=12.5 nvls/Simple=?")


class Estimates(Counting):
    """Knows the cost table of one operation."""

    def cost_table(self, task: Task) -> CostTable | None:
        self.asked.append((STOCK, task.size_bytes, 0))
        return ALLOWED if task.operation is Collective.ALL_REDUCE else None


def test_an_estimate_is_asked_for_once_and_a_log_without_any_knows_none(tmp_path: Path) -> None:
    backend, gather = Estimates(), Task(Collective.ALL_GATHER, 1024, Shape(4, 1, 4))
    for _ in range(2):
        with MeasurementLog(tmp_path / "log", backend, "id") as log:
            for _ in range(2):
                assert log.cost_table(TASK) == ALLOWED
                assert log.cost_table(gather) is None
    assert len(backend.asked) == 4, "once when the log was begun, and once when it was opened again"
    assert read_log(tmp_path / "log", "id").cost_tables == {TASK: ALLOWED, gather: None}
    with MeasurementLog(tmp_path / "plain", Counting(), "id") as log:
        assert log.cost_table(TASK) is None


def test_a_run_does_not_go_on_where_nccl_allows_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MeasurementLog(tmp_path / "log", Estimates(), "id") as log:
        log.cost_table(TASK)
    other_times = CostTable.parse("nvls/Simple=3.0 tree/Simple=4.0")
    monkeypatch.setattr(f"{__name__}.ALLOWED", other_times)
    with MeasurementLog(tmp_path / "log", Estimates(), "id"):
        pass
    monkeypatch.setattr(f"{__name__}.ALLOWED", CostTable.parse("tree/Simple=12.5"))
    with pytest.raises(WorkspaceError) as caught:
        MeasurementLog(tmp_path / "log", Estimates(), "id")
    assert "allowed tree Simple, nvls Simple for all_reduce when this run began" in str(
        caught.value
    )
    assert "allows tree Simple now: use another --workspace" in str(caught.value)


def test_the_log_tells_a_failed_check_from_a_failed_measurement(tmp_path: Path) -> None:
    class Wrong(Counting):
        def check(self, task: Task, config: Config) -> None:
            raise ConfigurationFailedError(f"{task.name} {config.protocol}: wrong", seconds=0.5)

    with MeasurementLog(tmp_path / "log", Wrong(), "id") as log:
        log.measure(TASK, RING, 1)
        for attempt in (lambda: log.check(TASK, RING), lambda: log.measure(TASK, BROKEN, 1)):
            with pytest.raises(ConfigurationFailedError):
                attempt()
    contents = read_log(tmp_path / "log", "id")
    checked, hung = (contents.known(TASK, config) for config in (RING, BROKEN))
    assert (checked.failed_check, checked.failed_s) == (True, 0.5)
    assert (hung.failed_check, hung.failed) == (False, "it hung")
