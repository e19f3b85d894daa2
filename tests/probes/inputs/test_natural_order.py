import pytest

from probes.inputs.natural_order import natural_key


@pytest.mark.parametrize(
    "ordered",
    [
        ["eth", "eth0", "ib1", "mlx5_9", "mlx5_10", "mlx5_bond_0"],
        ["n02", "n10", f"n{'9' * 5000}", f"n1{'0' * 5000}"],
        ["n1", "n\N{SUPERSCRIPT TWO}"],
    ],
)
def test_numbers_of_any_length_and_script_are_compared_in_names(ordered: list[str]) -> None:
    shuffled = ordered[::-1]
    assert sorted(shuffled, key=natural_key) == ordered
