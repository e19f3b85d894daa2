"""Schedules in stages and rounds over stand-ins of NCCL and CUDA; each rank is a process.

Stages are run by the executor's own interpreter, on host threads.
"""

from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.runtime.builds import SANITIZERS
from tests.runtime.staged_tables import (
    mutated_names,
    program_places,
    table_names,
    write_staged_tables,
)
from tests.runtime.test_phases import SHAPES, built_job, run_job

pytestmark = pytest.mark.long

CALLS = (
    "many_launches",
    *("streams", "streams_end", "groups", "group_in_any_order", "captures"),
    *("calls_beside_an_open_capture", "capture_of_two_streams", "lanes_need_cores"),
)
FAILURES = {
    "prepare_phases_fails": "rank 3: there is no device memory for what lies between phases",
    "load_stages_fails": "rank 3: there is no device memory for its stages",
    "split_fails_on_all_ranks": "rank 0: NCCL could not split its communicator",
    "different_tables": "ranks 0 and 2 have different tables",
    "rank_without_preload": "3 of its ranks are seen to run the executor",
    "connecting_fails": "NCCL",
    "first_result_is_wrong": "rank 3: NCCL's first sends and receives gave a wrong result",
}
"""Scenarios that leave a communicator to NCCL, and the reason that each rank gives."""
ENDS = (
    *("rails_end", "abort_during_calls", "abort_of_a_hanging_call", "rail_breaks", "revoke"),
    *("shared_resources", "create_fails", "connect_fails", "split_fails_on_one_rank"),
    *("start_beside_a_capture", "started_in_a_group_and_split", "grouped_differently"),
    *("connecting_breaks", "rank_leaves_while_connecting", "abort_while_connecting"),
)
CHOICES = (
    *("chosen_when_needed", "choice_cannot_connect", "choice_connects_wrongly", "choice_breaks"),
    *("choices_differ", "abort_while_choosing", "revoke_while_choosing"),
)
LEAKING = {
    *("abort_while_connecting", "rank_leaves_while_connecting", "split_fails_on_one_rank"),
    *("abort_while_choosing", "revoke_while_choosing"),
}
"""Scenarios that leave memory allocated which a rank may still use."""
QUICK = {
    *("rails_end", "abort_during_calls", "abort_of_a_hanging_call", "revoke", "chosen_when_needed"),
    *("choice_cannot_connect", "choices_differ", "groups", "captures", "many_launches"),
    *("load_stages_fails", "different_tables", "connecting_fails"),
}
"""Scenarios that are played in every run of the tests, on one kind of nodes."""
NODES = {"aaab": (3, 1), "aab": (2, 1), "abcd": (1, 1, 1, 1), "aabb": (2, 2), "abbccc": (1, 2, 3)}


def slow_unless(quick: bool, *values: str) -> ParameterSet:
    """Return parameters, marked as slow unless they are to run always."""
    return pytest.param(*values, marks=[] if quick else [pytest.mark.slow])


@pytest.fixture(scope="module", params=[slow_unless(name == "memory", name) for name in SANITIZERS])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_job(tmp_path_factory.mktemp("rounds"), request.param)


def play(job: Path, scenario: str, hosts: str, tables: str = "", **environment: str) -> str:
    tables = tables or hosts
    folder = job.parent / tables
    if not folder.exists():
        write_staged_tables(folder, NODES[tables])
    given = {"TEST_TABLES": str(folder), "TUCCL_BUNDLE": str(folder / "staged0.tuccl")}
    given |= {"PLANS": " ".join(table_names()), **environment}
    return run_job(job, scenario, hosts, program_places(NODES[tables]), **given)


@pytest.mark.parametrize("hosts", [slow_unless(hosts == "aaab", hosts) for hosts in NODES])
def test_every_schedule_gives_every_rank_the_right_bits(job: Path, hosts: str) -> None:
    out = play(job, "data", hosts, NCCL_DEBUG="WARN")
    served = {name: numbers for name, *numbers in map(str.split, out.splitlines())}
    assert served == {name: [str(SHAPES), str(SHAPES), "30", "15"] for name in table_names()}


def test_no_rank_waits_for_ever_where_a_device_runs_all_streams_one_after_the_other(
    job: Path,
) -> None:
    out = play(job, "data", "aaab", NCCL_DEBUG="WARN", STAND_IN_ONE_QUEUE="1")
    assert out.count(f" {SHAPES} {SHAPES} 30 15") == len(table_names())


@pytest.mark.slow
def test_nodes_of_sixteen_ranks(job: Path) -> None:
    """A DGX-2, and two ranks of a second one."""
    hosts, sizes = "a" * 16 + "bb", (16, 2)
    folder = job.parent / "wide"
    write_staged_tables(folder, sizes)
    given = {"TEST_TABLES": str(folder), "PLANS": "staged0", "NCCL_DEBUG": "WARN"}
    given["STAND_IN_CORES"] = "256"  # All ranks have the same ones.
    name, all_reduces, *_ = run_job(job, "data", hosts, program_places(sizes), **given).split()
    assert (name, all_reduces) == ("staged0", str(SHAPES))


@pytest.mark.parametrize("hosts", [slow_unless(hosts == "aaab", hosts) for hosts in NODES])
def test_schedules_with_a_root_serve_calls_of_that_root(job: Path, hosts: str) -> None:
    out = play(job, "rooted", hosts, NCCL_DEBUG="WARN")
    assert out.splitlines() == [f"{name} 8 8" for name in table_names()]


@pytest.mark.parametrize("hosts", [slow_unless(hosts == "aaab", hosts) for hosts in NODES])
def test_what_a_loader_accepts_does_no_harm(job: Path, hosts: str) -> None:
    out = play(job, "wrong_programs", hosts, PLANS=" ".join(mutated_names()))
    assert "WARN" not in out


@pytest.mark.parametrize(
    ("scenario", "hosts"),
    [
        slow_unless(scenario in QUICK and hosts == "aaab", scenario, hosts)
        for scenario in CALLS
        for hosts in ("aaab", "aabb")
    ],
)
def test_calls(job: Path, scenario: str, hosts: str) -> None:
    assert "WARN" not in play(job, scenario, hosts)


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [slow_unless(scenario in QUICK, scenario, reason) for scenario, reason in FAILURES.items()],
)
def test_every_rank_says_once_why_it_is_off(job: Path, scenario: str, reason: str) -> None:
    out = play(job, scenario, "aaab")
    lines = [line for line in out.splitlines() if "WARN" in line]
    assert len(lines) == (3 if scenario == "rank_without_preload" else 4)
    assert all("executor is off" in line and reason in line for line in lines)


@pytest.mark.parametrize(
    "scenario", [slow_unless(each in QUICK, each) for each in (*ENDS, *CHOICES)]
)
def test_ends_and_choices(job: Path, scenario: str) -> None:
    leaks = {"ASAN_OPTIONS": "detect_leaks=0"} if scenario in LEAKING else {}
    play(job, scenario, "aaab", **leaks)


def test_it_says_what_it_serves_and_takes(job: Path) -> None:
    out = play(job, "served", "aaab")
    assert out.count("(nodes of 3 + 1 ranks)") == 4
    assert out.count("(lanes of its rail: 0, of all ranks: 2)") == 4


@pytest.mark.parametrize(
    ("hosts", "tables"), [("abbb", "aaab"), ("aabb", "aaab"), ("aaaa", "aaab")]
)
def test_schedules_for_other_nodes_are_nothing_for_a_communicator(
    job: Path, hosts: str, tables: str
) -> None:
    out = play(job, "off_on_all", hosts, tables)
    assert "WARN" not in out
    assert out.count("has nothing for the executor with") == 4
