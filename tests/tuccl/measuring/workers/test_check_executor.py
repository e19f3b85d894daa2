"""scripts/check/check_executor.py over stand-ins, and the calls that it draws."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import check_executor
import numpy as np
import pytest
import write_programs
from executor_job import node_sizes_of
from kernel_schedules import kernels_of, nodes_of
from load_rank import growth
from random_calls import (
    OPERATIONS,
    TYPES,
    Wanted,
    data_of,
    draw,
    first_difference,
    storage,
    to_float,
    tolerance,
)
from staged_schedules import STAGED

from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.table import NcclProtocol
from synthesizer.programs.layout import Pattern, pattern_in
from tests.tuccl.measuring.engines.nccl_stand_ins import ROOT, StandIns
from tuccl.errors import TucclError
from tuccl.schedules.executor_schedules import programs_bundle

pytestmark = pytest.mark.long

ALL_FOUR = ("--operations", "all_reduce", "all_gather", "reduce_scatter", "alltoall")


@dataclass
class Check:
    """The script over the stand-ins, and the report of its last run."""

    stand_ins: StandIns
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *words: object) -> int:
        common = ["--executor", self.stand_ins.executor, "--nccl", self.stand_ins.nccl]
        # All that the stand-in of NCCL does as NCCL.
        common += ["--gpus", 2, "--reductions", "sum", "--largest", "64K", "--limit", 60]
        common += ["--types", "int8", "int32", "uint64", "float32", "float64"]
        words = ("check_executor.py", *common, *words, "--json", self.folder / "report.json")
        self.monkeypatch.setattr(sys, "argv", [str(word) for word in words])
        result: int = check_executor.main()
        return result

    @property
    def report(self) -> Any:
        return json.loads((self.folder / "report.json").read_text())

    def spoil(self) -> None:
        self.monkeypatch.setenv("STAND_IN_EXECUTOR_SPOILS", "1")


@pytest.fixture
def check(stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    return Check(stand_ins, tmp_path, monkeypatch)


def test_all_is_right_over_several_jobs(check: Check) -> None:
    assert check(*ALL_FOUR, "--calls", 60, "--calls-per-job", 40) == 0
    assert check.report["verdict"] == "all right"
    found = check.report["calls"]
    assert (found["calls"], found["jobs"], found["failures"]) == (60, 2, [])
    assert "all_gather direct LL" in found["by_executor"]
    assert sum(found["by_executor"].values()) + found["left_to_nccl"] == 60
    # The stand-in of the executor lacks reduce_scatter.
    ran = {name.split()[0] for name in found["by_executor"]}
    assert ran == {"all_reduce", "all_gather", "alltoall"}


def test_a_wrong_byte_is_found_and_told_with_its_call(
    check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    check.spoil()
    assert check("--operations", "all_gather", "--calls", 12) == 1
    out = capsys.readouterr().out
    assert "WRONG: rank" in out
    assert "of seed 1: all_gather of" in out
    assert "differ" in out


def test_an_executor_that_runs_nothing_checks_nothing(check: Check) -> None:
    assert check("--operations", "reduce_scatter", "--calls", 4) == 2


def test_what_is_drawn_follows_from_seed_and_number_and_holds_everything() -> None:
    kernels, _ = kernels_of([2, 3, 4])
    wanted = Wanted(ranks=4, largest_bytes=1 << 20, kernels=kernels)
    calls = [draw(wanted, 3, number) for number in range(400)]
    assert calls[:20] == [draw(wanted, 3, number) for number in range(20)]
    assert {call.operation for call in calls} == set(OPERATIONS)
    assert {call.type for call in calls} == set(TYPES)
    assert {0, 1} < {call.count for call in calls}
    assert {call.ranks for call in calls} == {1, 2, 3, 4}
    for call in calls:
        assert max(call.send_count, call.receive_count) * call.element_bytes <= 1 << 20
        # Of one rank, and of operations without a kernel, there is nothing to choose.
        assert (call.rule is None) == (call.ranks == 1 or call.operation.has_root)
        if call.rule is not None:
            assert call.rule.choice.min_bytes == call.rule.choice.max_bytes
            pattern = call.rule.pattern
            schedule = kernels[str(call.ranks)][call.operation][pattern]
            assert call.rule.choice.config.schedule == schedule
        data = data_of(call, 1)
        assert (data.size, data.dtype) == (call.send_count, storage(call.type))


def test_ranks_of_uneven_nodes_are_given_schedules_in_rounds() -> None:
    kernels, schedules = kernels_of([2, 3, 4], [3, 1])
    assert [nodes_of(ranks, [3, 1]) for ranks in (2, 3, 4)] == [[2], [3], [3, 1]]
    assert set(kernels["3"]["all_reduce"]) == {"one_phase", "two_phase"}
    across = kernels["4"]
    assert set(across) == set(OPERATIONS)
    assert all(pattern.startswith(STAGED) for of in across.values() for pattern in of)
    hashes = {schedule.content_hash for schedule in schedules}
    assert {name for of in across.values() for name in of.values()} <= hashes
    wanted = Wanted(("all_reduce",), ranks=4, kernels=kernels)
    calls = [call for call in (draw(wanted, 1, number) for number in range(40)) if call.ranks == 4]
    assert all(call.rule is not None and call.rule.pattern.startswith(STAGED) for call in calls)


def test_plans_that_compile_to_one_program_are_bundled_once() -> None:
    _, schedules = kernels_of([2], [1, 1])
    hashes = {schedule.content_hash for schedule in schedules}
    assert len(hashes) < len(schedules)
    bundled = read_bundle(programs_bundle(schedules), "bundle").schedules
    assert [schedule.content_hash for schedule in bundled] == sorted(hashes)


@pytest.mark.parametrize(
    ("nodes", "gpus", "share_gpus", "sizes"),
    [
        *(("1", 4, False, [4]), ("2", 4, False, [2, 2]), ("2", 2, True, [2, 2])),
        *(("3+1", 4, False, [3, 1]), ("2+1+2", 2, True, [2, 1, 2])),
    ],
)
def test_the_nodes_that_ranks_appear_on(
    nodes: str, gpus: int, share_gpus: bool, sizes: list[int]
) -> None:
    arguments = Namespace(nodes=nodes, gpus=gpus, share_gpus=share_gpus)
    assert node_sizes_of(arguments) == sizes


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("3", "4 ranks are not 3 equal nodes"),
        ("3+2", r"--nodes 3\+2 needs 5 GPUs, there are 4"),
        ("0+4", r"--nodes '0\+4' is neither a number of nodes nor sizes"),
        ("two", "--nodes 'two' is neither a number of nodes nor sizes"),
    ],
)
def test_nodes_that_there_are_not(nodes: str, reason: str) -> None:
    with pytest.raises(TucclError, match=reason):
        node_sizes_of(Namespace(nodes=nodes, gpus=4, share_gpus=False))


def test_floats_may_round_and_nothing_else_may_differ() -> None:
    wanted = Wanted(("all_reduce",), ("bfloat16",), ("sum",), 4, 1 << 12)
    call = replace(draw(wanted, 1, 5), ranks=4, whole=False, count=3)
    # 1.0, and the next numbers above: 2^-7 apart.
    exact_data = np.array([0x3F80, 0x3F80, 0x3F80], np.uint16)
    near, far = (
        exact_data + np.array([0, 0, 8], np.uint16),
        exact_data + np.array([0, 9, 9], np.uint16),
    )
    assert tolerance(call) == 8 * 2.0**-7
    assert to_float(near, "bfloat16")[2] == 1 + 8 * 2.0**-7
    assert first_difference(call, near, exact_data) == ""
    assert first_difference(call, far, exact_data).startswith("element 1 is")
    assert first_difference(call, far, exact_data).endswith("2 of 3 differ")
    for exact in (replace(call, whole=True), replace(call, reduction="max")):
        assert first_difference(exact, near, exact_data) != ""
    ints = replace(call, type="int8", reduction="avg")
    found = np.array([1, 2, 4], np.int8)
    wanted_ints = np.array([1, 2, 3], np.int8)
    assert first_difference(ints, found, wanted_ints).startswith("element 2 is 4 (0x04) instead")


def test_load_runs_its_time_and_tells_what_is_held(
    check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--largest", "4K", "--part", "load", "--minutes", 0.05, "--heartbeat", 0.05]
    assert check(*ALL_FOUR, *words) == 0
    out = capsys.readouterr().out
    found = check.report
    assert found["verdict"] == "all right"
    assert f"{found['load']['rounds']} rounds" in out
    assert " s: " in out
    assert "VERDICT: all right" in out
    own = [name for name in found["load"]["put"] if "by executor" in name]
    assert {name.split(" by executor ")[1] for name in own} == {"one by one", "in graphs"}
    assert all(entry["host_bytes"] > 0 for entry in found["load"]["statistics"][0])


def test_load_finds_a_wrong_byte_on_the_device(
    check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    check.spoil()
    assert check(*ALL_FOUR, "--largest", "4K", "--part", "load", "--minutes", 1) == 1
    out = capsys.readouterr().out
    assert "bytes differed" in out
    assert "VERDICT: something is wrong" in out


def test_what_grows_from_the_second_time_on_is_told() -> None:
    held = [
        {"seconds": 1.0, "device_bytes": 1e6, "host_bytes": 1e8, "descriptors": 20},
        {"seconds": 2.0, "device_bytes": 9e6, "host_bytes": 2e8, "descriptors": 40},
        {"seconds": 3.0, "device_bytes": 9e6, "host_bytes": 3e8, "descriptors": 41},
    ]
    assert growth(held) == {"device_bytes": 0, "host_bytes": 1e8, "descriptors": 1}
    assert growth(held[:2]) == {}


def test_what_comes_and_goes_is_no_growth_but_what_stays_is() -> None:
    def held(*device_bytes: int) -> list[dict[str, float]]:
        return [{"device_bytes": size, "host_bytes": 0, "descriptors": 0} for size in device_bytes]

    assert growth(held(1, 5, 9, 5, 9, 5, 9))["device_bytes"] == 0
    assert growth(held(1, 5, 6, 7, 8, 9, 10))["device_bytes"] == 4
    assert growth(held(1, 5, 5, 5, 5, 30, 30))["device_bytes"] == 25


def test_huge_messages_go_by_every_pattern_and_by_none(check: Check) -> None:
    assert check("--part", "huge", "--huge-count", 70001) == 0
    put = check.report["huge"]["put"]
    assert put["all_reduce by executor"] == 8
    assert put["all_reduce by NCCL"] == 2
    assert {"broadcast by NCCL", "reduce by NCCL", "alltoall by NCCL"} < set(put)
    check.spoil()
    assert check("--part", "huge", "--huge-count", 70001) == 1
    assert "all_gather of 70001 int8" in check.report["huge"]["failures"][0]


def test_communicators_begin_and_end_case_by_case(check: Check) -> None:
    named = ["init_all", "split", "destroyed_streams"]
    assert check("--part", "lifecycle", "--cases", *named) == 0
    cases = check.report["lifecycle"]["cases"]
    assert list(cases) == named
    assert all(case["outcome"].startswith("0 wrong") for case in cases.values())


def test_a_case_that_hangs_ends_and_the_next_one_runs(check: Check) -> None:
    """Streams of the stand-in run at once: a rank that waits for one that never comes stays."""
    assert check("--part", "lifecycle", "--limit", 6, "--cases", "abort", "init_all") == 2
    found = check.report
    assert found["lifecycle"]["cases"]["abort"]["outcome"].startswith("did not end")
    assert found["lifecycle"]["cases"]["init_all"]["outcome"].startswith("0 wrong")
    assert found["verdict"] == "something did not run or did not end"


def test_the_verdict_is_written_when_the_check_is_ended(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    script = ROOT / "scripts" / "check" / "check_executor.py"
    command = [sys.executable, str(script), "--part", "load"]
    command += ["--executor", str(stand_ins.executor), "--nccl", str(stand_ins.nccl), *ALL_FOUR]
    command += ["--gpus", "2", "--reductions", "sum", "--types", "int32", "--largest", "4K"]
    command += ["--heartbeat", "0.2", "--json", str(report)]
    environment = os.environ | {"LD_LIBRARY_PATH": str(stand_ins.folder), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "rounds" in process.stdout.readline()
    process.terminate()
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "VERDICT: something did not run or did not end" in out
    assert json.loads(report.read_text())["verdict"].startswith("something did not run")


def test_half_of_what_there_are_programs_for_is_interpreted(
    check: Check, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_programs.main(tmp_path, [2])
    runners = json.loads((tmp_path / "runners.json").read_text())["2"]
    kept = {"all_reduce": runners["all_reduce"][:2], "all_gather": runners["all_gather"][:1]}
    (tmp_path / "runners.json").write_text(json.dumps({"2": kept}))
    capsys.readouterr()
    assert check(*ALL_FOUR, "--programs", tmp_path, "--calls", 60) == 0
    found = check.report["calls"]
    assert found["programs"] == 3
    assert 0 <= found["programs_left_to_nccl"] <= found["left_to_nccl"]
    assert set(found["by_ranks"]) <= {"1", "2"}
    ways = {tuple(name.split()[:2]) for name in found["by_executor"]}
    assert {("all_reduce", "interpreted"), ("all_gather", "interpreted")} < ways
    assert {("all_gather", "direct"), ("alltoall", "direct")} < ways
    assert ("alltoall", "interpreted") not in ways
    assert sum(found["by_ranks"].values()) == 60
    assert "3 schedules interpreted" in capsys.readouterr().out
    huge = ["--part", "huge", "--huge-count", 1001]
    assert check(*ALL_FOUR, "--programs", tmp_path, *huge) == 0
    put = check.report["huge"]["put"]
    # By two programs with LL128, which the stand-in takes, in and out of place.
    assert put["all_reduce by executor"] == 4


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"2": {"all_gather": ["program:0"]}}', "was not written by scripts/make/write_programs"),
        ('{"4": {"all_reduce": []}}', "none for 2: scripts/make/write_programs.py FOLDER 2"),
        ('{"all_reduce": ["5a5a"]}', "was not written by scripts/make/write_programs.py"),
        ("[", "was not written by scripts/make/write_programs.py"),
        ('{"2": {}}', "the executor interpreted no schedule"),
    ],
)
def test_programs_that_would_not_be_interpreted_are_no_success(
    check: Check, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    (tmp_path / "bundle.tuccl").write_bytes(programs_bundle([]))
    (tmp_path / "runners.json").write_text(text)
    words = ["--operations", "all_gather", "--programs", tmp_path, "--calls", 8]
    assert check(*words) == 2
    assert why in capsys.readouterr().out


def test_programs_are_for_their_ranks_and_operations_from_root_0() -> None:
    runners = {"3": {"broadcast": ["2b2b"], "alltoall": ["0a0a"]}}
    wanted = Wanted(ranks=3, runners=runners)
    calls = [draw(wanted, 1, number) for number in range(400)]
    interpreted = [call for call in calls if call.program]
    assert {(call.operation, call.program) for call in interpreted} == {
        ("broadcast", "2b2b"),
        ("alltoall", "0a0a"),
    }
    assert {(call.ranks, call.root) for call in interpreted} == {(3, 0)}
    protocols = {call.rule.choice.config.protocol for call in interpreted if call.rule}
    assert protocols == set(NcclProtocol)
    others = [call for call in calls if not call.program]
    assert {call.ranks for call in others} == {1, 2, 3}
    assert any(call.operation == "alltoall" and call.ranks == 3 for call in others)


def test_one_bundle_has_the_programs_of_every_number_of_ranks(tmp_path: Path) -> None:
    write_programs.main(tmp_path, [2, 3])
    bundle = read_bundle((tmp_path / "bundle.tuccl").read_bytes(), "test")
    runners = json.loads((tmp_path / "runners.json").read_text())
    assert bundle.entries == ()
    assert set(runners["2"]) == set(runners["3"]) == set(OPERATIONS)
    named = [name for of in runners.values() for all_ in of.values() for name in all_]
    assert sorted(named) == [schedule.content_hash for schedule in bundle.schedules]
    assert {pattern_in(schedule.program) for schedule in bundle.schedules} == {Pattern.NONE}
    assert len(list((tmp_path / "3").glob("*.program"))) > len(runners["3"])
