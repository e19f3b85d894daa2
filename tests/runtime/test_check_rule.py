"""The rule of the check at start."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.builds import EXECUTOR, STAND_INS, compile_native, run

pytestmark = pytest.mark.long

PAIRS = 15


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [STAND_INS / "show_check_rule.cc", EXECUTOR / "check_rule.cc"]
    return compile_native(tmp_path_factory.mktemp("check") / "show", sources)


@pytest.mark.parametrize(
    ("min_bytes", "max_bytes", "size_bytes"),
    [
        (1, 65536, 256),  # The root of 65536.
        (23171, 46340, 32768),
        (28_215_779, 64 << 20, 32 << 20),  # 64 MiB are in it, too, and further from 43.5e6.
        (5, 7, 5),  # No power of two is: the root of 35 is 5.9.
        (3, 4, 4),
        (0, 0, 0),
        (1, 2, 1),
        ((64 << 20) - 3, 64 << 20, 64 << 20),
    ],
)
def test_a_range_is_timed_near_its_middle(
    program: Path, min_bytes: int, max_bytes: int, size_bytes: int
) -> None:
    assert run(program, "size", min_bytes, max_bytes) == f"{size_bytes}\n"


def test_medium_sizes_come_first(program: Path) -> None:
    # sqrt(t) / (300 + 14 t): 0.0098 at 5 us, 0.0109 at 21, 0.0059 at 100, 0.0022 at 1000.
    assert run(program, "order", 1000, 5, 100, 21, 1).split() == ["21", "5", "100", "1", "1000"]


Judge = Callable[[Sequence[Sequence[tuple[float, float]]]], list[str]]


@pytest.fixture(scope="module")
def judge(program: Path) -> Judge:
    """Return the verdict on each list of pairs: an entry's time and NCCL's."""

    def verdicts(of_keys: Sequence[Sequence[tuple[float, float]]]) -> list[str]:
        lines = []
        for pairs in of_keys:
            in_turn = [pair if i % 2 == 0 else pair[::-1] for i, pair in enumerate(pairs)]
            lines.append(" ".join(f"{time_us:.6g}" for pair in in_turn for time_us in pair))
        done = subprocess.run(
            [program, "pairs"], input="\n".join(lines), capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return verdicts


def test_an_entry_loses_by_two_per_cent_in_twelve_pairs(judge: Judge) -> None:
    slower, faster = (10.3, 10.0), (9.0, 10.0)
    assert judge([[slower] * 15, [slower] * 12 + [faster] * 3]) == ["loses"] * 2
    assert judge([[slower] * 11 + [faster] * 4]) == ["neither"]
    assert judge([[(10.1, 10.0)] * 15]) == ["neither"]  # By 1 %.
    assert judge([[(10.0, 10.0)] * 5, [slower] * 2 + [faster] * 3]) == ["stays"] * 2
    assert judge([[slower] * 3 + [faster] * 2]) == ["neither"]


def test_an_entry_loses_at_once_if_each_first_pair_shows_it(program: Path) -> None:
    slow, slower, short = (750.0, 500.0), (740.0, 500.0), (90.0, 49.0)
    lines = [[slow] * 5, [slow] * 4 + [slower], [short] * 5, [(400.0, 500.0)] * 5]
    text = "\n".join(
        " ".join(f"{a:g} {b:g}" if i % 2 == 0 else f"{b:g} {a:g}" for i, (a, b) in enumerate(pairs))
        for pairs in lines
    )
    done = subprocess.run(
        [program, "first"], input=text, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["loses", "neither", "neither", "stays"]


def test_noise_leaves_few_equal_entries_out_and_stalls_keep_few_slow_ones_in(judge: Judge) -> None:
    drawn = random.Random(1)

    def time_us(mean_us: float) -> float:
        return mean_us * drawn.lognormvariate(0.0, 0.1) * (4.0 if drawn.random() < 0.05 else 1.0)

    def lost(ratio: float) -> float:
        keys = [[(time_us(ratio), time_us(1.0)) for _ in range(PAIRS)] for _ in range(2000)]
        return judge(keys).count("loses") / len(keys)

    assert lost(1.0) < 0.03
    assert lost(0.9) < 0.002
    assert lost(1.5) > 0.98


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_size_is_within_its_range(program: Path, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert low <= int(run(program, "size", low, high)) <= high
