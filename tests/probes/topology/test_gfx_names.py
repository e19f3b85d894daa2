import pytest

from probes.topology.figure_text import gfx_name, gfx_number


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("gfx700", 700),
        ("gfx803", 803),
        ("gfx906", 906),
        ("gfx908", 908),
        ("gfx90a", 910),
        ("gfx90c", 912),
        ("gfx940", 940),
        ("gfx942", 942),
        ("gfx950", 950),
        ("gfx1010", 1010),
        ("gfx1100", 1100),
        ("gfx1201", 1201),
    ],
)
def test_a_name_is_a_number_and_back(name: str, number: int) -> None:
    assert gfx_number(name) == number
    assert gfx_name(number) == name
    assert gfx_number(f"{name.upper()}:sramecc+:xnack-") == number


def test_what_is_no_name_has_no_number() -> None:
    for text in ("", "gfx", "gfx9", "gfx9-generic", "gfx94a", "gfx110a", "942", "sm90", "gfx304x"):
        assert gfx_number(text) is None, text


def test_nvidias_numbers_have_no_name() -> None:
    assert not any(gfx_name(capability) for capability in range(600))
