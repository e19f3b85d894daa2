import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.errors import UsageError
from tuccl.words.sizes import MAX_SIZE_BYTES, format_size, parse_size, size_ladder


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
