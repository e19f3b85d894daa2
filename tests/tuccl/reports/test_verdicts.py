"""Logs of the guard's verdicts: what they say together, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.reports.verdict_logs import NAME, two_keys, verdict, write_log
from tuccl.errors import InputFileError, UsageError
from tuccl.reports.verdicts import last_changes, read_verdicts, runs_words


def test_verdicts_of_a_key_stand_together_by_time(tmp_path: Path) -> None:
    write_log(tmp_path, verdict(9, ran=0, runs=1), verdict(2))
    later = [verdict(5, communicator="0" * 16), verdict(7, ran=0, runs=1, communicator="1" * 16)]
    write_log(tmp_path, *later, name=NAME.replace(".jsonl", ".old.jsonl"))
    write_log(tmp_path, name="tuccl-verdicts-other.txt")
    found = read_verdicts(tmp_path)
    assert [path.name for path in found.files] == [NAME, NAME.replace(".jsonl", ".old.jsonl")]
    (key,) = found.keys
    assert (key.operation, key.size_bytes, key.shape) == (
        Collective.ALL_REDUCE, 65536, Shape(8, 2, 4),
    )  # fmt: skip
    minutes = [each.call // 100 for each in key.verdicts]
    assert minutes == [2, 5, 7, 9]
    # Of three communicators two are NCCL's now.
    assert key.runs == {"nccl": 2, "table": 1}
    assert runs_words(key) == "nccl on 2, table on 1"
    assert key.changes == 2
    assert [each.call // 100 for _, each in last_changes(found, 1)] == [9]
    assert (key.last_median_us("table"), key.last_median_us("ring")) == (30.0, None)


def test_a_last_line_without_its_end_is_dropped(tmp_path: Path) -> None:
    path = write_log(tmp_path, verdict(1), verdict(2))
    path.write_bytes(path.read_bytes()[:-9])
    assert read_verdicts(path).verdicts == 1
    path.write_bytes(b"")
    assert read_verdicts(path).verdicts == 0


WRONG: dict[str, tuple[Any, str]] = {
    "version": (
        verdict(1, version=2),
        (
            "version 2 of verdicts, and this release reads 1: use the release of TuCCL that the "
            "job ran with"
        ),
    ),
    "no version": ({"time_ms": 1}, "no verdict of the guard: the line is damaged"),
    "no object": ([1], "the line is damaged"),
    "nested": ("[" * 5000 + "]" * 5000, "the line is damaged"),
    "long": (verdict(1, host="x" * 10_000), "the line is damaged"),
    "operation": (verdict(1, operation="sum"), "operation: "),
    "place": (verdict(1, runs=2), "no places among the choices"),
    "shape": (verdict(1, nodes=9), "ranks"),
    "name": (verdict(1, choices=[{"name": "\x1b[31m", "us": 1.0}]), "choices.0.name"),
    "time": (verdict(1, time_ms=1 << 60), "time_ms"),
    "infinite": (verdict(1, choices=[{"name": "table", "us": float("inf")}]), "choices"),
    "unknown": (verdict(1, more=1), "more"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_verdict_is_refused_in_one_line(tmp_path: Path, wrong: str) -> None:
    content, said = WRONG[wrong]
    text = content if isinstance(content, str) else json.dumps(content)
    path = tmp_path / NAME
    path.write_text(json.dumps(verdict(1)) + "\n" + text + "\n")
    with pytest.raises(InputFileError) as error:
        read_verdicts(path)
    assert f"{path}:2: " in str(error.value)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_places_without_a_log_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TUCCL_GUARD_LOG"):
        read_verdicts(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        read_verdicts(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a file"):
        read_verdicts(tmp_path / "pipe")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(20 << 20)
    with pytest.raises(InputFileError, match="more than 16 MiB"):
        read_verdicts(large)
    (tmp_path / "text").write_bytes(b"a text")
    with pytest.raises(InputFileError, match="no log of verdicts"):
        read_verdicts(tmp_path / "text")


@given(data=st.data())
def test_damage_is_refused_or_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = two_keys(tmp_path_factory.getbasetemp())
    text = bytearray(path.read_bytes()[:2000])
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(text)
    try:
        found = read_verdicts(path)
    except InputFileError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either is right
    else:
        assert found.verdicts <= 6
