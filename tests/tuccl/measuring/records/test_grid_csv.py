from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from probes.files.read import read_topology
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.tuccl.measuring.records.small_record import machine
from tuccl.errors import InputFileError
from tuccl.measuring.records.grid_csv import CUT_SHORT, read_grid_csv, topology_beside
from tuccl.search.trials.config import STOCK, Config, Task

HEADER = "op,bytes,algorithm,protocol,nchannels,nthreads,buffsize,min_nchannels,t1,t2,t3"
LINES = (
    "allreduce,4096,default,,0,512,4194304,32,10.0,11.0,12.0",
    "allreduce,4096,ring,LL,2,512,4194304,32,9.0,9.5,9.25",
    "allreduce,4096,tree,Simple,1,512,4194304,32,30.0",
    "allreduce,4096,ring,Simple,1,512,4194304,32",
    "reducescatter,2097152,ring,LL128,24,0,4194304,32,20,20,20",
)
TASK = Task(Collective.ALL_REDUCE, 4096, Shape(4, 1, 4))
GRID = SHARED_DATA / "replay" / "h200x4_nvlink_nccl2.28.9.csv"


def written(path: Path, *lines: str, header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def test_a_grid_is_read_with_the_stock_times_beside_it(tmp_path: Path) -> None:
    grid = written(tmp_path / "g.csv", *LINES)
    written(tmp_path / "g_default.csv", "allreduce,4096,10.5,10.6", header="op,bytes,t1,t2")
    record = read_grid_csv(grid, machine())
    assert len(record.rows) == 6
    assert (record.provenance, record.shape) == (Provenance("nccl", details="g"), Shape(4, 1, 4))
    ring = record.row(TASK, Config("ring", "LL", 2, 512, 4 << 20, 32))
    assert ring is not None
    assert ring.samples_us == (9.0, 9.5, 9.25)
    assert ring.seconds == pytest.approx(27.75e-6 * 20)
    stock = record.row(TASK, STOCK)
    assert stock is not None
    assert stock.samples_us == (10.5, 10.6)


def test_a_point_that_was_cut_short_has_failed_only_where_it_has_no_time(tmp_path: Path) -> None:
    record = read_grid_csv(written(tmp_path / "g.csv", *LINES), machine())
    some = record.row(TASK, Config("tree", "Simple", 1, 512, 4 << 20, 32))
    none = record.row(TASK, Config("ring", "Simple", 1, 512, 4 << 20, 32))
    assert some is not None
    assert none is not None
    assert (some.samples_us, some.failed) == ((30.0,), "")
    assert (none.samples_us, none.failed) == ((), CUT_SHORT)
    # One launch of 20 calls, each four times the 11 us of the default of that environment.
    assert none.seconds == pytest.approx(4 * 11.0e-6 * 20)


@pytest.mark.parametrize(
    "line",
    [
        "allreduce,4096,ring,LL,2,512,4194304,32,nan",
        "allreduce,4096,ring,LL,2,512,4194304,32,-9.2",
        "allreduce,4096,ring,LL,2,512,4194304,32,inf",
        "allreduce,4096,ring,LL,2,512,4194304,32,fast",
        "allreduce,4096,ring,LL,two,512,4194304,32,1",
        "allreduce,4096,ring,LL,2,-1,4194304,32,1",
        "allreduce,0,ring,LL,2,1,4194304,32,1",
        "allreduce,4096,spiral,LL,2,1,4194304,32,1",
        "allreduce,4096,ring,LL256,2,1,4194304,32,1",
        "allshuffle,4096,ring,LL,2,1,4194304,32,1",
        "allreduce,4096,default,LL,2,1,4194304,32,1",
        "allreduce,4096,default,,0,1,4194304,32",
        "allreduce,4096,ring,LL,2,1,4194304,32,1,2,3,4",
        "allreduce,4096,ring",
        "allreduce,4096,ring,LL,2,1,4194304,32,1,,2",
        LINES[1],
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "g.csv", *LINES, line)
    with pytest.raises(InputFileError) as caught:
        read_grid_csv(path, machine())
    text = str(caught.value)
    assert f"{path}: line 7: " in text
    assert "\n" not in text


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    bad = "allreduce,4096,ring,LL,2,512,4194304,32,nan"
    path = written(tmp_path / "g.csv", bad, LINES[0], bad, LINES[1], *[bad] * 9)
    with pytest.raises(InputFileError, match=r"line 2: .*; bad too: 4, 6, 7, .* and 2 more;"):
        read_grid_csv(path, machine())


@pytest.mark.parametrize("missing", ["op", "bytes", "protocol", "buffsize", "t1"])
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    header = ",".join(name for name in HEADER.split(",") if name != missing)
    path = written(tmp_path / "g.csv", header=header)
    with pytest.raises(InputFileError, match=f"column {missing} is missing"):
        read_grid_csv(path, machine())


def test_a_file_that_is_no_grid(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="No such file"):
        read_grid_csv(tmp_path / "nowhere.csv", machine())
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputFileError, match="not UTF-8"):
        read_grid_csv(tmp_path / "b.csv", machine())
    with pytest.raises(InputFileError, match="no measurement in it"):
        read_grid_csv(written(tmp_path / "e.csv"), machine())
    with pytest.raises(InputFileError, match="column 'note' is unknown"):
        read_grid_csv(written(tmp_path / "x.csv", header=HEADER + ",note"), machine())


def test_the_topology_lies_beside_the_grid(tmp_path: Path) -> None:
    grid = tmp_path / "h200x4_nvlink_2.csv"
    with pytest.raises(InputFileError, match="--topology"):
        topology_beside(grid)
    near, nearer = tmp_path / "h200x4_topo.xml", tmp_path / "h200x4_nvlink_topo.xml"
    near.write_text("")
    assert topology_beside(grid) == near
    nearer.write_text("")
    assert topology_beside(grid) == nearer


@pytest.mark.long
@requires_shared_data
def test_the_real_grid_has_27_keys_and_58_seconds_of_measuring() -> None:
    record = read_grid_csv(GRID, read_topology(topology_beside(GRID)))
    assert len(record.tasks) == 27
    assert sum(not row.config.is_default for row in record.rows) == 18_180 - 540
    assert sum(row.seconds for row in record.rows if not row.failed) == pytest.approx(58, abs=0.5)
    assert all(record.row(task, STOCK) for task in record.tasks)
    assert sum(row.failed == CUT_SHORT for row in record.rows) == 4257


def test_a_field_beyond_what_csv_takes_is_refused_by_line(tmp_path: Path) -> None:
    grid = written(tmp_path / "g.csv", LINES[0], f"allreduce,{'1' * 200_000},ring")
    with pytest.raises(InputFileError, match=r"g\.csv: line 3: "):
        read_grid_csv(grid, machine())


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    grid = written(tmp_path / "g.csv", *LINES, header=HEADER.replace("t3", "t2"))
    with pytest.raises(InputFileError, match="column 't2' is there twice; remove it"):
        read_grid_csv(grid, machine())
