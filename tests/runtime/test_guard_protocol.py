"""The guard's protocol: what ranks conclude, and all interleavings of three ranks in a model."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kept_builds import ROOT
from tests.runtime.builds import EXECUTOR, STAND_INS, compile_native, run

pytestmark = pytest.mark.long

PAIRS = 15
BROADCAST, ALL_REDUCE = 0, 4
PROTOCOL = [EXECUTOR / "guard_protocol.cc", EXECUTOR / "check_rule.cc"]
RIGHT = {
    "late": 214002,
    "keys": 81886,
    "rare": 103965,
    "streams": 66014,
    "one_stream": 14081,
    "one_without": 10078,
    "groups": 153464,
    "abort": 518970,
    "dies": 613143,
    "shrink": 139497,
    "race": 834798,
    "share": 702799,
    "race_in_groups": 763520,
    "heats": 547220,
}
"""States of each scenario in which nothing is wrong."""
LARGE = {"rare", "groups", "abort", "dies", "shrink", "race", "share", "race_in_groups", "heats"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("model") / "guard_model"
    return compile_native(output, [STAND_INS / "guard_model.cc", *PROTOCOL], "-O1")


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in RIGHT],
)
def test_ranks_run_every_call_alike_and_come_to_an_end(model: Path, scenario: str) -> None:
    assert re.fullmatch(
        rf"{scenario}: {RIGHT[scenario]} states, \d+ ends, right\n", run(model, scenario)
    )


@pytest.mark.parametrize(
    ("scenario", "wrong"),
    [
        ("late", "early"),  # A conclusion is taken when it comes, not when all take it.
        pytest.param("late", "impatient", marks=pytest.mark.slow),  # Nobody waits for it.
        ("groups", "group_counts"),  # A rank counts calls in groups.
        ("one_without", "alone"),  # Ranks guard although one does not.
        ("race", "early"),
        ("share", "own_clock"),  # A rank goes by its own time of the job.
    ],
)
def test_a_wrong_protocol_is_found(model: Path, scenario: str, wrong: str) -> None:
    assert run(model, scenario, wrong).endswith(" apart\n")


def test_ranks_that_call_communicators_in_other_orders_are_excluded(model: Path) -> None:
    assert run(model, "crossed").endswith(" stuck\n")
    assert run(model, "crossed_unguarded").endswith(" right\n")


def test_the_documents_count_the_states(model: Path) -> None:
    text = (ROOT / "docs" / "reference" / "executor.md").read_text("utf-8")
    assert f"{sum(RIGHT.values()):,} states" in text


@dataclass(frozen=True)
class Told:
    """What a rank reports: its times of an entry's calls, and of NCCL's."""

    entry_us: Sequence[float]
    nccl_us: Sequence[float]
    call: int = 7
    is_ready: bool = True
    has_waited: bool = False


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("guard") / "show"
    return compile_native(output, [STAND_INS / "show_guard.cc", *PROTOCOL])


def concluded(show: Path, ranks: Sequence[Told], operation: int, *, is_out: bool) -> str:
    """Return what the ranks conclude."""
    text = f"{operation} {int(is_out)} {len(ranks)}"
    for told in ranks:
        pairs = zip(told.entry_us, told.nccl_us, strict=True)
        # Entry, NCCL, NCCL, entry, ...
        times = [time for i, (own, other) in enumerate(pairs)
                 for time in ((own, other) if i % 2 == 0 else (other, own))]  # fmt: skip
        text += f" {told.call} {int(told.is_ready)} {int(told.has_waited)} " + " ".join(
            map(str, times)
        )
    done = subprocess.run([show], input=text, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def same(entry_us: float, nccl_us: float, **of_rank: int) -> Told:
    return Told([entry_us] * PAIRS, [nccl_us] * PAIRS, **of_rank)  # type: ignore[arg-type]


def test_the_rank_that_comes_last_counts(show: Path) -> None:
    # Rank 0 waits 100 us for rank 1 in every call; 30 us and 20 us are what calls take.
    ranks = [same(130.0, 120.0), same(30.0, 20.0)]
    assert concluded(show, ranks, ALL_REDUCE, is_out=False) == "out 30 20"
    # With a root a rank may leave early.
    assert concluded(show, ranks, BROADCAST, is_out=False) == "out 130 120"


def test_an_entry_is_out_by_two_per_cent_and_in_again_if_it_is_as_fast(show: Path) -> None:
    def one(entry_us: float, *, is_out: bool) -> str:
        ranks = [same(entry_us, 100.0), same(entry_us, 100.0)]
        return concluded(show, ranks, ALL_REDUCE, is_out=is_out).split()[0]

    assert [one(each, is_out=False) for each in (99.0, 101.0, 103.0)] == ["in", "in", "out"]
    assert [one(each, is_out=True) for each in (99.0, 100.0, 101.0)] == ["in", "in", "out"]


def test_nothing_is_concluded_without_all_times(show: Path) -> None:
    late = same(30.0, 20.0, is_ready=False)
    assert concluded(show, [same(30.0, 20.0), late], ALL_REDUCE, is_out=False) == "none 0 0"
    lacking = Told([-1.0, *[30.0] * (PAIRS - 1)], [20.0] * PAIRS)
    assert concluded(show, [same(30.0, 20.0), lacking], ALL_REDUCE, is_out=True) == "none 0 0"


def test_ranks_at_other_calls_are_apart(show: Path) -> None:
    ranks = [same(30.0, 20.0), same(30.0, 20.0, call=8)]
    assert concluded(show, ranks, ALL_REDUCE, is_out=False) == "apart 0 0"
