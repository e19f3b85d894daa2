"""What the executor counts and writes of itself: figures for Prometheus, lines, verdicts."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.runtime.builds import EXECUTOR, STAND_INS, compile_native
from tests.runtime.test_executor import play, session
from tuccl.reports.verdicts import VerdictKind, read_verdicts

__all__ = ["session"]

pytestmark = pytest.mark.long

ALL_GATHER, ALL_REDUCE = 2, 4
STAYS, LEFT_OUT, TAKEN_BACK, NO_TIMES, APART, LEARNED = range(6)
Samples = dict[tuple[str, str], float]
"""By name and labels, but for those of the process."""


def samples_of(text: str) -> Samples:
    """Return what the official parser finds; each family has its help and type."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith(".")
        assert family.type in {"counter", "gauge"}
        assert all(sample.labels["process"] for sample in family.samples)
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            labels = " ".join(
                value for name, value in sample.labels.items() if name not in {"process", "rank"}
            )
            assert (sample.name, labels) not in found
            found[sample.name, labels] = sample.value
    return found


def played(session: Path, scenario: str, folder: Path, **environment: str) -> Samples:
    play(session, scenario, folder, **environment)
    (path,) = folder.glob("*.prom")
    return samples_of(path.read_text())


def test_calls_are_counted_by_what_ran_them(session: Path, tmp_path: Path) -> None:
    found = played(session, "metrics", tmp_path, RANK="5")
    counted = {labels: number for (name, labels), number in found.items() if "calls" in name}
    # Of each of three ranks of the process.
    assert counted == {
        "all_reduce schedule": 3 * 6,
        "all_reduce nccl": 3 * 4,
        "all_gather schedule": 3 * 2,
        "all_gather nccl": 3 * 1,
    }
    assert found["tuccl_bytes_total", "all_reduce schedule"] == 3 * 6 * 64 * 4
    assert found["tuccl_bytes_total", "all_reduce nccl"] == 3 * (3 * 100_000 + 64) * 4
    assert found["tuccl_communicators_total", "served"] == 3
    assert found["tuccl_process_running", ""] == 0
    assert abs(found["tuccl_written_timestamp_seconds", ""] - time.time()) < 60
    assert not any("guard" in name for name, _ in found)
    (path,) = tmp_path.iterdir()  # No partial file is left, and the child's end wrote none.
    assert re.fullmatch(r"tuccl-\d+-[0-9a-f]{8}\.prom", path.name)
    assert path.stat().st_mode & 0o7777 == 0o644
    assert 'rank="5"' in path.read_text()


def test_communicators_are_counted_by_what_became_of_them(session: Path, tmp_path: Path) -> None:
    found = played(session, "metrics_of_communicators", tmp_path)
    outcomes = {labels: n for (name, labels), n in found.items() if "communicators" in name and n}
    assert outcomes == {
        "nothing_in_table": 3, "served": 2, "no_table": 2, "one_rank": 1, "refused": 2,
    }  # fmt: skip


def test_the_guard_is_counted(session: Path, tmp_path: Path) -> None:
    found = played(session, "guard_leaves_slow_entries_out", tmp_path, TUCCL_METRICS=str(tmp_path))
    # Two sizes on each of three ranks.
    assert found["tuccl_guard_trials_total", ""] == 6
    assert found["tuccl_guard_conclusions_total", "left_out"] == 3
    assert found["tuccl_guard_conclusions_total", "stays"] == 3
    assert found["tuccl_guard_sizes_left_out", ""] == 0  # The communicator has ended.
    # What was left to NCCL would have taken 4.5 ms longer.
    assert found["tuccl_guard_saved_seconds", "table"] > 3 * 4e-3


def test_nothing_is_written_where_nothing_is_wanted(session: Path, tmp_path: Path) -> None:
    play(session, "collectives", tmp_path, TUCCL_METRICS="")
    out = play(session, "collectives", tmp_path, TUCCL_METRICS=str(tmp_path / "none"))
    assert out.count("is not a folder: nothing is counted") == 1
    assert list(tmp_path.glob("*.prom")) == []


def test_a_folder_that_cannot_be_written_is_a_line_and_stops_no_job(
    session: Path, tmp_path: Path
) -> None:
    out = play(session, "collectives", tmp_path, TUCCL_METRICS="/proc/self")
    assert out.count("no figures are written into TUCCL_METRICS=/proc/") == 1


def left(folder: Path, name: str, *, minutes: float = 10) -> Path:
    path = folder / name
    path.write_text("left\n")
    os.utime(path, (time.time() - 60 * minutes,) * 2)
    return path


def test_what_dead_processes_left_is_removed_after_five_minutes(
    session: Path, tmp_path: Path
) -> None:
    gone = [left(tmp_path, "tuccl-7-00000001.prom"), left(tmp_path, ".tuccl-7-00000001.partial")]
    kept = [
        left(tmp_path, "tuccl-7-00000002.prom", minutes=4),
        left(tmp_path, "other.prom"),
        left(tmp_path, "tuccl-notes.txt"),
        left(tmp_path, "tuccl-watch.prom"),
        left(tmp_path, "tuccl-7-0000000g.prom"),
    ]
    os.link(left(tmp_path, "tuccl-7-00000003.prom"), tmp_path / "linked")
    (tmp_path / "tuccl-7-00000004.prom").symlink_to(kept[1])
    kept += [tmp_path / "tuccl-7-00000003.prom", tmp_path / "tuccl-7-00000004.prom"]
    living = left(tmp_path, "tuccl-8-00000001.prom")
    with living.open("r+") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        play(session, "metrics", tmp_path)
    assert not any(path.exists() for path in gone)
    assert living.exists()
    assert all(path.exists() for path in kept)


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = ("metrics", "metrics_file", "whole_file")
    names = ["guard_watch", "verdict_log", *files, "log", "secrets"]
    sources = [STAND_INS / "show_guard_watch.cc", *(EXECUTOR / f"{name}.cc" for name in names)]
    return compile_native(
        tmp_path_factory.mktemp("watch") / "show", sources, f"-I{EXECUTOR}", f"-I{EXECUTOR.parent}"
    )


def shown(
    show: Path,
    folder: Path,
    *commands: str,
    rank: int = 0,
    most_bytes: int = 1 << 20,
    debug: str = "INFO",
) -> tuple[list[str], list[str], Samples]:
    """Return the lines that were said, those of the end, and the counts before that."""
    done = subprocess.run(
        [show, folder, str(most_bytes)],
        input="\n".join([str(rank), *commands]),
        env={**os.environ, "NCCL_DEBUG": debug},
        capture_output=True,
        text=True,
        check=True,
    )
    said, last, text = done.stdout.split("--\n")
    lines = [[line.split("TuCCL: ")[1] for line in part.splitlines()] for part in (said, last)]
    return lines[0], lines[1], samples_of(text)


def ended(verdict: int, size: int, entry_us: float, nccl_us: float, left_out: int) -> str:
    return f"ended {ALL_REDUCE} {size} {verdict} {entry_us} {nccl_us} {left_out}"


def test_lines_of_learning_are_a_minute_apart_and_information(show: Path, tmp_path: Path) -> None:
    ends = (ended(LEARNED, 1, 0, 20, 0), ended(LEARNED, 2, 30, 20, 0), ended(LEARNED, 3, 0, 9, 0))
    commands = ("at 1000", *ends, ended(TAKEN_BACK, 3, 0, 8, 0))
    said, last, _ = shown(show, tmp_path, *commands)
    assert said == [
        "learned: all_reduce of 1 bytes by ring/LL from now on (10 us in the job, NCCL 20 us)"
    ]
    (line,) = last
    assert line == (
        "guard: 0 sizes left to NCCL, 1 taken back, 2 by another setting, since the last line: "
        "all_reduce of 2 bytes by ring/LL from now on (10 us in the job, table 30 us), "
        "all_reduce of 3 bytes by ring/LL from now on (10 us in the job, NCCL 9 us), "
        "all_reduce of 3 bytes by NCCL from now on (8 us in the job, ring/LL 10 us)"
    )
    said, last, _ = shown(show, tmp_path, *commands, debug="WARN")
    assert (said, len(last)) == ([], 1)


def test_a_line_a_minute_says_all_that_has_changed(show: Path, tmp_path: Path) -> None:
    said, last, found = shown(
        show,
        tmp_path,
        "at 1000",
        f"ran {ALL_REDUCE} 256 0 0 1",
        ended(LEFT_OUT, 256, 300, 200, 1),
        f"ran {ALL_REDUCE} 256 1 -1 100",
        "at 1010",
        *(ended(LEFT_OUT, size, 30, 20, size) for size in (2, 3, 4)),
        ended(TAKEN_BACK, 2, 19, 20, 3),
        f"ran {ALL_REDUCE} 2 0 -1 1000",
        "at 1059",
        f"ran {ALL_REDUCE} 256 1 -1 1",
        "at 1060",
        f"ran {ALL_REDUCE} 256 1 -1 1",
        f"ran {ALL_REDUCE} 256 1 -1 1",
        ended(LEFT_OUT, 5, 30, 20, 4),
        "waited",
    )
    assert said == [
        (
            "guard: all_reduce of 256 bytes left to NCCL, which is faster "
            "(300 us in the job, NCCL 200 us)"
        ),
        (
            "guard: 3 sizes left to NCCL, 1 taken back, 0 by another setting, since the last line; "
            "the last 3: "
            "all_reduce of 3 bytes left to NCCL, which is faster (30 us in the job, NCCL 20 us), "
            "all_reduce of 4 bytes left to NCCL, which is faster (30 us in the job, NCCL 20 us), "
            "all_reduce of 2 bytes again as the table has it (19 us in the job, NCCL 20 us); "
            # 1,000 calls of 1 us; 102 of 100 us.
            "saved so far, by the trials' medians: 0.001 s against NCCL's own choice, 0.0102 s "
            "against the table alone"
        ),
    ]
    assert len(last) == 1
    assert last[0].startswith("guard: all_reduce of 5 bytes left to NCCL")
    assert found["tuccl_guard_trials_total", ""] == found["tuccl_guard_waits_total", ""] == 1
    assert found["tuccl_guard_conclusions_total", "left_out"] == 5
    assert found["tuccl_guard_conclusions_total", "taken_back"] == 1
    assert found["tuccl_guard_sizes_left_out", ""] == 4
    assert found["tuccl_guard_saved_seconds", "nccl"] == pytest.approx(1e-3)
    assert found["tuccl_guard_saved_seconds", "table"] == pytest.approx(1.03e-2)


def test_what_was_learned_saves_against_both(show: Path, tmp_path: Path) -> None:
    said, last, found = shown(
        show,
        tmp_path,
        ended(LEARNED, 256, 30, 20, 0),
        f"ran {ALL_REDUCE} 256 2 -1 100",
        f"ran {ALL_REDUCE} 256 2 3 100",  # In a trial: of what is not known here.
        ended(LEARNED, 8, 0, 20, 0),  # A size without an entry: the table leaves it to NCCL.
        f"ran {ALL_REDUCE} 8 2 -1 50",
    )
    times = "(10 us in the job, table 30 us)"
    assert said == [f"learned: all_reduce of 256 bytes by ring/LL from now on {times}"]
    (line,) = last
    assert line.startswith("learned: all_reduce of 8 bytes by ring/LL from now on")
    assert line.endswith("0.0015 s against NCCL's own choice, 0.0025 s against the table alone")
    # The setting takes 10 us.
    assert found["tuccl_guard_saved_seconds", "nccl"] == pytest.approx(150 * 10e-6)
    assert found["tuccl_guard_saved_seconds", "table"] == pytest.approx(100 * 20e-6 + 50 * 10e-6)
    (path,) = tmp_path.iterdir()
    assert [key.runs for key in read_verdicts(path).keys] == [{"ring/LL": 1}] * 2


def test_what_stays_is_no_line_and_other_ranks_say_nothing(show: Path, tmp_path: Path) -> None:
    commands = (ended(STAYS, 256, 20, 30, 0), ended(NO_TIMES, 256, 0, 0, 0))
    assert shown(show, tmp_path, *commands)[:2] == ([], [])
    said, last, found = shown(show, tmp_path, ended(LEFT_OUT, 256, 30, 20, 1), rank=1)
    assert said == last == []
    assert found["tuccl_guard_conclusions_total", "left_out"] == 1
    apart = shown(show, tmp_path, ended(APART, 256, 0, 0, 0))[0]
    assert apart == [
        (
            "guard: ranks call all_reduce of 256 bytes at different places, all calls of the "
            "communicator are NCCL's from now on"
        )
    ]


def test_rank_0_logs_each_verdict(show: Path, tmp_path: Path) -> None:
    shown(show, tmp_path, ended(LEFT_OUT, 256, 300, 200, 1), ended(NO_TIMES, 8, 0, 0, 1))
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"tuccl-verdicts-[\w-]+-\d+-[0-9a-f]{8}\.jsonl", path.name)
    first, second = map(json.loads, path.read_text().splitlines())
    assert abs(first.pop("time_ms") / 1000 - time.time()) < 60
    assert re.fullmatch(r"[\w-]*", first.pop("host"))
    assert first.pop("process") > 0
    assert first == {
        "version": 1,
        "communicator": "000000000000abcd",
        "ranks": 8,
        "nodes": 2,
        "ranks_per_node": 4,
        "table": "0000f00d",
        "call": 1,
        "operation": "all_reduce",
        "bytes": 256,
        "verdict": "left_out",
        "ran": 0,
        "runs": 1,
        "choices": [
            {"name": "table", "us": 300},
            {"name": "nccl", "us": 200},
            {"name": "ring/LL", "us": 10},
        ],
    }
    assert second["verdict"] == "no_times"
    assert second["choices"][0]["us"] is None
    (key, untimed) = reversed(read_verdicts(path).keys)
    assert (key.size_bytes, key.runs) == (256, {"nccl": 1})
    assert untimed.verdicts[0].verdict is VerdictKind.NO_TIMES
    path.unlink()
    shown(show, tmp_path, ended(LEFT_OUT, 256, 300, 200, 1), rank=1)
    assert list(tmp_path.iterdir()) == []


def test_a_log_of_verdicts_keeps_the_last_two_files(show: Path, tmp_path: Path) -> None:
    commands = [ended(LEFT_OUT, size, 300, 200, 1) for size in range(1, 101)]
    shown(show, tmp_path, *commands, most_bytes=4000)
    old, new = sorted(tmp_path.iterdir(), key=lambda path: ".old." not in path.name)
    assert old.name == new.name.replace(".jsonl", ".old.jsonl")
    assert all(path.stat().st_size <= 4000 for path in (old, new))
    sizes = [json.loads(line)["bytes"] for line in (old.read_text() + new.read_text()).splitlines()]
    assert sizes == list(range(101 - len(sizes), 101))
    assert len(sizes) > 10
