"""`tuccl calibrate`, as installed: what it writes, and what it refuses in one line."""

import json
from pathlib import Path

import pytest

from tests.tuccl.conftest import Run
from tuccl.calibration.model_file import read_model_file

HEADER = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"


def output(factor: float = 1.5, sizes: range = range(10, 28)) -> str:
    rows = []
    for size_bytes in (1 << exponent for exponent in sizes):
        time_us = 25.0 + size_bytes / 200e3
        algbw = size_bytes / time_us / 1e3
        rows.append(
            f"{size_bytes} {size_bytes // 4} float sum -1 {time_us:.2f} {algbw:.2f} "
            f"{algbw * factor:.2f} 0 {time_us:.2f} {algbw:.2f} {algbw * factor:.2f} 0\n"
        )
    return HEADER + "".join(rows)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "all_reduce.txt"
    path.write_text(output())
    return path


def test_output_of_nccl_tests_becomes_constants_that_tell_it_better(
    run_tuccl: Run, measured: Path, tmp_path: Path
) -> None:
    done = run_tuccl("calibrate", measured, "--topology", "shipped:h200-4gpu", "-o", "model.json",
                     "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["observations"] == 18
    assert document["operations"] == ["all_reduce"]
    assert document["median_error"] < document["median_error_shipped"]
    model = read_model_file(tmp_path / "model.json")
    assert model.constants.model_dump() == document["constants"]
    again = run_tuccl("calibrate", measured, "--topology", "shipped:h200-4gpu", "-o", "again.json")
    assert "18 times of all_reduce (nccl-tests)" in again.stdout
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("all_reduce.txt", output(1.75), (), "topology's 4 GPUs"),
        ("all_reduce.txt", output(), ("--nodes", "2"), "it has no NIC"),
        ("run.txt", output(), (), "add --op"),
        ("run.txt", output().replace("size ", ""), ("--op", "all_reduce"), "no column 'size'"),
        ("run.txt", output(), ("--op", "sum"), "operation 'sum' is unknown"),
        ("all_reduce.txt", output(sizes=range(20, 24)), (), "4 measured times are too few"),
        ("grid.csv", "op,bytes\n", (), "column"),
        ("grid.csv", "op,bytes\n", ("--op", "all_reduce"), "leave --op away"),
        ("record.parquet", "PAR1", (), "Parquet"),
    ],
)
def test_what_cannot_serve_is_one_line_and_nothing_is_written(
    run_tuccl: Run, tmp_path: Path, name: str, text: str, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / name).write_text(text)
    done = run_tuccl("calibrate", name, "--topology", "shipped:h200-4gpu", "-o", "model.json",
                     *options)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("tuccl: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "model.json").exists()
