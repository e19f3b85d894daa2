from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import Shape
from probes.files.read import read_topology
from probes.nccl_xml.export import topology_to_nccl_xml
from tests.tuccl.measuring.records.small_record import machine, small_record
from tests.tuccl.measuring.records.test_grid_csv import LINES, written
from tuccl.errors import ConfigurationFailedError, InputFileError, MeasurementError
from tuccl.measuring.records.reading import read_records
from tuccl.measuring.records.record import record_of
from tuccl.measuring.records.record_file import write_record
from tuccl.measuring.records.recorded_run import RecordedRun
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.shapes import NamedShape, ShapeName
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Answer, Contents
from tuccl.workspace.measurement_log import MeasurementLog, read_log

OTHER = machine("a100-8gpu-8nic")
SHAPE = Shape(4, 1, 4)


def test_parquet_says_which_machine_it_is_of(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_record(path, small_record())
    assert read_records(path) == read_records(path, machine()) == small_record()
    with pytest.raises(InputFileError, match=r"recorded on h200-4gpu .*not on a100") as caught:
        read_records(path, OTHER)
    assert machine().fingerprint() in str(caught.value)
    assert OTHER.fingerprint() in str(caught.value)


def test_a_grid_needs_its_topology_beside_it_or_named(tmp_path: Path) -> None:
    path = written(tmp_path / "h200x4_grid.csv", *LINES)
    assert read_records(path, machine()).topology == machine()
    with pytest.raises(InputFileError, match="name the machine with --topology"):
        read_records(path)
    beside = tmp_path / "h200x4_topo.xml"
    beside.write_text(topology_to_nccl_xml(machine()))
    known = read_topology(beside)
    assert read_records(path).topology == known
    assert read_records(path, known).fingerprint == known.fingerprint()
    with pytest.raises(InputFileError, match="not on a100"):
        read_records(path, OTHER)


def test_a_file_without_an_ending_is_taken_for_parquet(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("op,bytes\n")
    with pytest.raises(InputFileError, match="not a readable Parquet file"):
        read_records(tmp_path / "r")


class Engine:
    """Backend that fails configurations without channels; all others take 2 us."""

    name = "nccl"
    provenance = Provenance("nccl", NcclVersion(2, 29, 1), details="driver 580.2")
    restart_s = 0.0
    timing = Timing((), 3, graph=False)

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        if not config.nchannels and not config.is_default:
            raise ConfigurationFailedError(f"{task.name}: no channels", seconds=6.0)
        return Measured(tuple(2.0 + number for number in range(first, first + repeats)), 0.25)

    def restart(self) -> None:
        """All starts are alike."""

    def check(self, task: Task, config: Config) -> None:
        raise ConfigurationFailedError(f"{task.name} {config.describe()}: 3 bytes are wrong")


def test_a_record_holds_all_that_was_measured(tmp_path: Path) -> None:
    task = Task(Collective.REDUCE_SCATTER, 4096, SHAPE)
    ring, broken = Config("ring", "LL", 4, 256), Config("ring", "LL")
    with MeasurementLog(tmp_path / "log", Engine(), "id") as log:
        log.measure(task, STOCK, 2)
        log.measure(task, ring, 1)
        log.measure(task, ring, 3)
        for attempt in (lambda: log.check(task, ring), lambda: log.measure(task, broken, 1)):
            with pytest.raises(ConfigurationFailedError):
                attempt()
    record = record_of(read_log(tmp_path / "log", "id"), machine(), SHAPE)
    assert record.provenance == Engine.provenance
    assert record.timing == Timing((), 3, graph=False)
    found = {row.config: row for row in record.rows}
    assert found[STOCK].samples_us == (2.0, 3.0)
    assert found[ring].samples_us == (2.0, 3.0, 4.0)
    assert found[ring].seconds == 0.5
    assert "3 bytes are wrong" in found[ring].failed
    assert (found[broken].samples_us, found[broken].seconds) == ((), 6.0)
    write_record(tmp_path / "r.parquet", record)
    assert read_records(tmp_path / "r.parquet") == replace(record, topology=machine())


ALLOWED = CostTable.parse("ring/Simple=40.0 nvls/Simple=?")


class Elsewhere(Engine):
    """Knows NCCL's cost tables, by which placements are told apart."""

    def cost_table(self, task: Task) -> CostTable | None:
        return None if task.placement == Placement() else ALLOWED


def test_a_record_tells_shapes_placements_requests_and_estimates(tmp_path: Path) -> None:
    whole, pairs = Shape(4, 1, 4), Shape(2, 1, 2)
    of_run = RecordedRun(
        shapes=(NamedShape(ShapeName.WHOLE, whole), NamedShape(ShapeName.PAIRS, pairs))
    )
    anywhere = Task(Collective.ALL_GATHER, 4096, pairs)
    across = replace(anywhere, placement=Placement(2, (0, 1)))
    tasks = [replace(anywhere, shape=whole), anywhere, across]
    ring = Config("ring", "LL", 4, 256)
    with MeasurementLog(tmp_path / "log", Elsewhere(), "id") as log:
        for task in tasks:
            log.measure(task, ring, 1)
            log.measure(task, ring, 3)
        assert log.cost_table(across) == ALLOWED
        assert log.cost_table(anywhere) is None
        with pytest.raises(ConfigurationFailedError):
            log.check(across, ring)
    record = record_of(read_log(tmp_path / "log", "id"), machine(), whole, "id", of_run)
    assert [row.task for row in record.rows] == [anywhere, across, replace(anywhere, shape=whole)]
    first, second, _ = record.rows
    assert first.answers == (Answer(1, 1, 0.25, 0.0), Answer(3, 3, 0.25, 0.0))
    assert (first.failed, second.failed_check, second.failed_s) == ("", True, 0.0)
    assert record.of_run.cost_tables == ((across, ALLOWED), (anywhere, None))
    assert [task.shape for task in record.tasks] == [pairs, whole]
    write_record(tmp_path / "r.parquet", record)
    assert read_records(tmp_path / "r.parquet") == record


def test_there_is_no_record_of_nothing() -> None:
    with pytest.raises(MeasurementError, match="holds no measurement"):
        record_of(Contents(), machine(), SHAPE)
