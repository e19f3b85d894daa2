"""Which launches of a pattern take the kernel for whole parts; conditions worked by hand."""

from collections.abc import Callable

import pytest

from tests.runtime.builds import STAND_INS, compile_native, run

Show = Callable[..., str]


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    """`whole` or `any`, of protocol, addresses, stride and bytes."""
    place = tmp_path_factory.mktemp("pattern_work") / "show"
    program = compile_native(place, [STAND_INS / "show_pattern_work.cc"])
    return lambda protocol, *numbers: run(program, protocol, *numbers).strip()


@pytest.mark.parametrize(("protocol", "part"), [("ll", 8), ("ll128", 16)])
def test_one_part_and_multiples_of_it_are_whole(show: Show, protocol: str, part: int) -> None:
    assert show(protocol, 0x1000, 0x2000, part, part) == "whole"
    assert show(protocol, 0x1000 + part, 0x2000 + 3 * part, 5 * part, 7 * part) == "whole"


@pytest.mark.parametrize(("protocol", "part"), [("ll", 8), ("ll128", 16)])
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("more", [1, 2, 4])
def test_one_number_that_is_not_makes_it_any(
    show: Show, protocol: str, part: int, which: int, more: int
) -> None:
    numbers = [0x1000, 0x2000, 2 * part, 2 * part]
    numbers[which] += more
    assert show(protocol, *numbers) == "any"


@pytest.mark.parametrize("which", range(4))
def test_eight_bytes_are_whole_for_ll_alone(show: Show, which: int) -> None:
    numbers = [0x1000, 0x2000, 32, 32]
    numbers[which] += 8
    assert (show("ll", *numbers), show("ll128", *numbers)) == ("whole", "any")


def test_a_stride_beyond_32_bits_counts_whole(show: Show) -> None:
    assert show("ll128", 0x1000, 0x2000, 1 << 34, 480) == "whole"
    assert show("ll128", 0x1000, 0x2000, (1 << 34) + 8, 480) == "any"
