"""Tables, records and benches as pandas frames, imported when one is made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tuccl
from tests.tuccl.measuring.records.small_record import small_record
from tuccl.measuring.records.record_file import write_record


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuccl.TuningResult:
    return tuccl.tune(
        "shipped:h200-4gpu",
        tuccl.RunOptions(operations="all_gather", min_size="64K", max_size="4M", step=8),
        workspace=tmp_path_factory.mktemp("frames") / "w",
    )


def test_a_table_has_a_row_for_each_key_or_entry(
    result: tuccl.TuningResult, tmp_path: Path
) -> None:
    frame = result.frame
    assert list(frame["size_bytes"]) == [key.size_bytes for key in result.keys]
    assert list(frame["gain"]) == [key.gain.ratio for key in result.keys if key.gain is not None]
    assert (frame["low"] <= frame["gain"]).all()
    assert set(frame["backend"].dropna()) == {"simulated"}
    tuccl.ship(result, tmp_path / "shipped")
    shipped = tuccl.read_table(tmp_path / "shipped").frame
    assert list(shipped["runs"]) == [entry.runs for entry in result.entries]
    bundle = tuccl.read_table(result.run.bundle).frame
    by_schedule = bundle["runner"] == "executor"
    assert bundle.loc[by_schedule, "table_us"].isna().all(), "a bundle keeps no time of these"


def test_a_record_has_a_row_for_each_configuration(tmp_path: Path) -> None:
    record = small_record()
    write_record(tmp_path / "r.parquet", record)
    frame = tuccl.read_record(tmp_path / "r.parquet").frame
    assert len(frame) == len(record.rows)
    measured = frame[frame["failed"] == ""]
    assert measured["median_us"].notna().all()
    assert set(frame["operation"]) == {row.task.operation.value for row in record.rows}


def test_what_is_no_bench_is_refused_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for text in ("{", json.dumps({"schema_version": 12}), json.dumps({"schema_version": 13})):
        other.write_text(text)
        with pytest.raises(tuccl.UsageError, match="tuccl bench --json") as error:
            tuccl.read_bench(other)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "module",
    ["tuccl.cli.app", "tuccl.crew.worker", "tuccl.workspace.measurement_log"],
)
def test_what_makes_no_frame_imports_no_pandas(module: str) -> None:
    code = f"import sys, {module}; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
