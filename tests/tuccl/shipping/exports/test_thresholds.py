"""Borders between an engine's own all_reduce and NCCL with a table: hand-worked, and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_reference import schema_of

from lookup_tables.collective import Collective
from probes.files.read import shipped_machines
from tests.tuccl.conftest import Run
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tests.tuccl.workloads.made_workloads import call, workload
from tuccl.reports.job_gains import job_gains
from tuccl.shipping.exports.thresholds import (
    MARK,
    TimedSize,
    best_border,
    thresholds,
    thresholds_text,
)
from tuccl.workloads.workload import Workload

ALL_REDUCE = Collective.ALL_REDUCE
TABLE, REPORT = tuned(FOUR_GPUS)
KEYS = [key.model_copy(update={"shape": FOUR_GPUS}) for key in REPORT.keys]
GAINS = job_gains(TABLE, REPORT.model_copy(update={"keys": KEYS}), has_executor=True)
"""Without the executor NCCL takes 8 us for 1K, 16 us for 2K, 8 us for 4K and 16 us for 8K."""
TIMES = st.floats(1.0, 1000.0)


def own(*times_us: tuple[int, float], ranks: int = 4) -> Workload:
    calls = (
        replace(call(ALL_REDUCE, size_bytes, 1.0, ranks=ranks, nodes=None), us_per_call=time_us)
        for size_bytes, time_us in times_us
    )
    return workload(*calls)


def test_the_border_is_where_the_engines_own_kernels_gain_most() -> None:
    (only,) = thresholds(GAINS, own((1024, 4.0), (2048, 6.0), (4096, 12.0), (8192, 20.0))).found
    assert only.shape == FOUR_GPUS
    assert only.up_to_bytes == 2048
    assert [(each.own_us, each.nccl_us) for each in only.sizes] == [
        (4.0, 8.0), (6.0, 16.0), (12.0, 8.0), (20.0, 16.0),
    ]  # fmt: skip
    assert only.sentence == (
        "4 ranks: own all_reduce up to 2K (6.0 us against 16.0), NCCL with the table from 4K "
        "(12.0 us against 8.0)"
    )


def test_kernels_that_are_never_or_always_faster_have_a_border_too() -> None:
    (never,) = thresholds(GAINS, own((1024, 9.0), (4096, 9.0))).found
    assert never.up_to_bytes == 0
    assert never.sentence.startswith("4 ranks: own all_reduce for no size, NCCL with the table")
    (always,) = thresholds(GAINS, own((1024, 1.0), (8192, 1.0))).found
    assert always.up_to_bytes == 8192
    assert always.sentence == "4 ranks: own all_reduce up to 8K (1.0 us against 16.0)"


def test_a_size_between_tuned_ones_has_a_time_between_theirs_and_none_has_one_beyond() -> None:
    found = thresholds(GAINS, own((1448, 4.0), (512, 1.0), (512, 2.0), (65536, 1.0)))
    (only,) = found.found
    # Halfway from 1K to 2K on logarithms: the root of 8 times 16 us.
    assert [each.nccl_us for each in only.sizes] == [pytest.approx(128.0**0.5, rel=1e-3)]
    assert found.notes[0] == (
        "2 sizes are smaller or larger than all that were tuned, and do not count"
    )


@pytest.mark.parametrize("turned", [False, True])
def test_times_of_one_size_count_by_their_calls_in_any_order(*, turned: bool) -> None:
    """1,001 calls of 1K take 5,005 us, four of 4K take 44 us."""
    rows = ((1024, 1000.0, 4.0), (1024, 1.0, 1005.0), (4096, 3.0, 8.0), (4096, 1.0, 20.0))
    calls = [
        replace(call(ALL_REDUCE, size, count), us_per_call=time_us) for size, count, time_us in rows
    ]
    of_files = replace(workload(), calls=tuple(reversed(calls) if turned else calls))
    (only,) = thresholds(GAINS, of_files).found
    assert [each.own_us for each in only.sizes] == pytest.approx([5.0, 11.0])
    assert only.up_to_bytes == 1024


def test_other_ranks_and_times_that_are_missing_do_not_count() -> None:
    found = thresholds(GAINS, own((1024, 4.0), ranks=8))
    assert found.found == ()
    assert found.notes == ("the table has no all_reduce of 8 ranks on one node",)
    assert thresholds(GAINS, workload(call(ALL_REDUCE, 1024, 1.0))).found == ()


def test_times_beside_computation_are_not_held_against_times_alone() -> None:
    keys = [key.model_copy(update={"computation_us": 50.0}) for key in KEYS[:2]]
    report = REPORT.model_copy(update={"keys": [*keys, *KEYS[2:]]})
    found = thresholds(
        job_gains(TABLE, report, has_executor=True), own((1024, 1.0), (4096, 9.0), (8192, 9.0))
    )
    (only,) = found.found
    assert [each.size_bytes for each in only.sizes] == [4096, 8192]
    assert "2 sizes of the table were timed beside computation" in found.notes[0]


def test_an_engine_is_told_its_variable_and_a_file_its_figures() -> None:
    found = thresholds(GAINS, own((1024, 4.0), (2048, 6.0), (4096, 12.0)))
    assert (
        f"VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB='{{\"4\": {2048 / (1 << 20)}}}'"
        in found.notes[0]
    )
    text = thresholds_text(found, "box", "ab" * 16)
    assert text.startswith(MARK)
    written = json.loads(text)
    assert (written["version"], written["machine"]) == (1, "box")
    (only,) = written["thresholds"]
    assert (only["ranks"], only["nodes"], only["up_to_bytes"]) == (4, 1, 2048)
    assert only["sizes"][0] == {"size_bytes": 1024, "own_us": 4.0, "nccl_us": 8.0}


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=12))
def test_no_other_border_takes_less_time(times_us: list[tuple[float, float]]) -> None:
    sizes = [TimedSize(1 << i, *each) for i, each in enumerate(times_us)]

    def product(border: int) -> float:
        found = 1.0
        for each in sizes:
            found *= each.own_us if each.size_bytes <= border else each.nccl_us
        return found

    best = product(best_border(sizes))
    assert all(best <= product(border) * (1 + 1e-9) for border in (0, *(1 << i for i in range(12))))


@pytest.mark.long
def test_from_the_command_line(run_inside: Run, tmp_path: Path) -> None:
    model = str(shipped_machines()["h200-4gpu"])
    scope = ("--operations", "all_reduce", "--min-size", "64K", "--max-size", "4M", "--step", "8")
    assert run_inside("tune", "--topology", model, *scope).returncode == 0
    (tmp_path / "own.csv").write_text(
        "operation,size_bytes,ranks,us_per_call\nall_reduce,64K,4,1\nall_reduce,4M,4,1000\n"
    )
    done = run_inside("export", "--to", "thresholds", "--against", "own.csv", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema_of("export"))
    assert (document["form"], document["rows"]) == ("thresholds", 1)
    assert document["file"] == "all_reduce_thresholds.json"
    written = json.loads((tmp_path / "all_reduce_thresholds.json").read_text())
    assert written["thresholds"][0]["up_to_bytes"] == 64 << 10
    again = run_inside("export", "--to", "thresholds", "--against", "own.csv")
    assert again.stdout == "all_reduce_thresholds.json\n"
    assert "4 ranks: own all_reduce up to 64K (1.0 us against " in again.stderr
    assert run_inside("ship", "shipped").returncode == 0
    (tmp_path / "none.csv").write_text("operation,size_bytes,ranks\nall_gather,64K,4\n")
    for options, why in (
        (("--to", "thresholds"), "--against TIMES.csv goes with --to thresholds, which needs it"),
        (("--against", "own.csv"), "--against TIMES.csv goes with --to thresholds"),
        (("shipped", "--to", "thresholds", "--against", "own.csv"), "name the workspace that it"),
        (("--to", "thresholds", "--against", "none.csv"), "no times (us_per_call) of all_reduce"),
        (("--to", "thresholds", "--against", "own.csv", "-o", "own.csv"), "was not written by"),
    ):
        refused = run_inside("export", *options)
        assert refused.returncode == 2
        assert why in refused.stderr
