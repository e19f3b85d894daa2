"""Sizes, durations and operations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from tuccl.errors import UsageError
from tuccl.quantities import (
    MAX_SIZE_BYTES,
    format_about,
    format_elapsed,
    format_seconds,
    format_size,
    parse_operations,
    parse_seconds,
    parse_size,
    size_ladder,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1", 1), ("8192", 8192), ("64K", 65536), ("64k", 65536), ("1M", 1 << 20), ("1G", 1 << 30),
     ("1MB", 1 << 20), ("3MiB", 3 << 20), (" 2G ", 2 << 30)],
)  # fmt: skip
def test_sizes_are_powers_of_1024_as_in_nccl_tests(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "M", "1.5M", "-1", "0", "1X", "1 2", "65T", "9" * 30])
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="size"):
        parse_size(text)


@given(st.integers(1, MAX_SIZE_BYTES))
def test_format_and_parse_are_inverse(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


def test_ladder_from_1k_to_1g_in_steps_of_4_has_11_sizes() -> None:
    ladder = size_ladder(1 << 10, 1 << 30, 4)
    assert len(ladder) == 11
    assert (ladder[0], ladder[1], ladder[-1]) == (1 << 10, 1 << 12, 1 << 30)


def test_ladder_stops_below_a_top_that_it_does_not_hit() -> None:
    assert size_ladder(3, 50, 2) == (3, 6, 12, 24, 48)


@pytest.mark.parametrize(("low", "high", "factor"), [(2, 1, 2), (1, 2, 1), (1, 2, 0)])
def test_impossible_ladders_are_refused(low: int, high: int, factor: int) -> None:
    with pytest.raises(UsageError):
        size_ladder(low, high, factor)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (34.4, "34 s"), (599, "599 s"), (720, "12 min"), (12600, "3.5 h")],
)
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (7.4, "7 s"), (89.0, "89 s"), (90.0, "2 min"), (5400.0, "1.5 h")],
)
def test_seconds_for_people_who_wait(seconds: float, text: str) -> None:
    assert format_about(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (245.0, "4 min 5 s"),
        (5400.0, "1 h 30 min"),
    ],
)
def test_what_has_passed(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text


def test_the_message_names_what_the_duration_is_of() -> None:
    assert parse_seconds("20m", "--budget") == 1200.0
    assert parse_seconds("28335.6us") == pytest.approx(0.0283356), "as jobs print their steps"
    for text in ("soon", "-1s", "0", "8000h", "1d", ""):
        with pytest.raises(UsageError, match=r"^--budget"):
            parse_seconds(text, "--budget")


def test_several_operations_are_each_there_once_in_one_order() -> None:
    found = parse_operations("reduce_scatter, AllGather,,reducescatter")
    assert found == (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    with pytest.raises(UsageError, match="no operation given"):
        parse_operations(" ,")
