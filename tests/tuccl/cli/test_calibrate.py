"""`tuccl calibrate`, as installed: what it writes, and what it refuses in one line."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.tuccl.conftest import Run
from tuccl.cli.calibrate import CalibrateOptions, calibrate
from tuccl.errors import MachineError, TucclError, UsageError
from tuccl.measuring.calibration.model_file import read_model_file

pytestmark = pytest.mark.long

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
    run_inside: Run, measured: Path, tmp_path: Path
) -> None:
    done = run_inside("calibrate", measured, "--topology", "shipped:h200-4gpu", "-o", "model.json",
                     "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["observations"] == 18
    assert document["operations"] == ["all_reduce"]
    assert document["median_error"] < document["median_error_shipped"]
    model = read_model_file(tmp_path / "model.json")
    assert asdict(model.constants) == document["constants"]
    again = run_inside("calibrate", measured, "--topology", "shipped:h200-4gpu", "-o", "again.json")
    assert "18 times of all_reduce (nccl-tests)" in again.stdout
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("all_reduce.txt", output(1.75), ("", 1), "topology's 4 GPUs"),
        ("all_reduce.txt", output(), ("", 2), "it has no NIC"),
        ("run.txt", output(), ("", 1), "add --operation"),
        ("run.txt", output().replace("size ", ""), ("all_reduce", 1), "no column 'size'"),
        ("alltoall.txt", output(0.75), ("", 1), "alltoall runs no algorithm"),
        ("run.txt", output(), ("sum", 1), "operation 'sum' is unknown"),
        ("all_reduce.txt", output(sizes=range(20, 24)), ("", 1), "4 measured times are too few"),
        ("grid.csv", "op,bytes\n", ("", 1), "column"),
        ("GRID.CSV", "op,bytes\n", ("", 1), "column"),
        ("grid.csv", "op,bytes\n", ("all_reduce", 1), "leave --operation away"),
        ("record.parquet", "PAR1", ("", 1), "Parquet"),
    ],
)
def test_what_cannot_serve_is_one_line_and_nothing_is_written(
    tmp_path: Path, name: str, text: str, options: tuple[str, int], message: str
) -> None:
    operation, nodes = options
    path, model = tmp_path / name, tmp_path / "model.json"
    path.write_text(text)
    command = CalibrateOptions(
        topology="shipped:h200-4gpu",
        nodes=nodes,
        measured=path,
        operation=operation or None,
        output=model,
    )
    with pytest.raises((TucclError, MachineError), match=message) as caught:
        calibrate.run(command)
    assert "\n" not in str(caught.value)
    assert not model.exists()


def test_what_was_measured_is_not_replaced_by_what_was_fitted(measured: Path) -> None:
    before = measured.read_bytes()
    for output in (measured, measured.parent / "." / measured.name):
        command = CalibrateOptions(topology="shipped:h200-4gpu", measured=measured, output=output)
        with pytest.raises(UsageError, match="is read by this command"):
            calibrate.run(command)
    assert measured.read_bytes() == before


def test_a_search_on_the_model_takes_constants_and_is_another_run_with_others(
    run_inside: Run, measured: Path, tmp_path: Path
) -> None:
    topology = ("--topology", "shipped:h200-4gpu")
    assert run_inside("calibrate", measured, *topology, "-o", "model.json").returncode == 0
    search = ("tune", *topology, "--operations", "all_gather", "--min-size", "4M", "--max-size",
              "4M", "--json")  # fmt: skip
    shipped = run_inside(*search, "--workspace", "shipped")
    calibrated = run_inside(*search, "--workspace", "calibrated", "--model", "model.json")
    assert (shipped.returncode, calibrated.returncode) == (0, 0), calibrated.stderr
    default = [json.loads(run.stdout)["keys"][0]["stock_us"] for run in (shipped, calibrated)]
    assert default[0] != default[1]
    refused = run_inside(*search, "--backend", "sockets", "--model", "model.json")
    assert refused.returncode == 2
    assert "--model is for --backend simulated" in refused.stderr
    absent = run_inside(*search, "--model", "absent.json")
    assert "cannot read" in absent.stderr
