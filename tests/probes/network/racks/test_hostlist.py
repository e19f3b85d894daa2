import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.racks.rack_map import expand_host_list
from tuccl.errors import MachineError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        (
            "rack1-[01-03,07],login",
            ["rack1-01", "rack1-02", "rack1-03", "rack1-07", "login"],
        ),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("a, b", ["a", "b"]),
        ("node-1.example.org", ["node-1.example.org"]),
    ],
)
def test_expansion(text: str, hosts: list[str]) -> None:
    assert list(expand_host_list(text)) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,,b",
        "n[1-3",
        "n1-3]",
        "n[[1]]",
        "n[]",
        "n[a-b]",
        "n[3-1]",
        "n[1-999999999999]",
        "n[1-999][1-999]",
        "a b",
        "a" * 257 + "[1-99999]",
        "n" + "[1]" * 257,
    ],
)
def test_malformed_lists_are_refused(text: str) -> None:
    with pytest.raises(MachineError, match="host list"):
        expand_host_list(text)


@given(st.text("abn01-9[],-", max_size=30))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        hosts = expand_host_list(text)
    except MachineError:
        return
    assert hosts
    assert all(host and not set(host) & set("[],") for host in hosts)


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=20))
def test_numbers_in_brackets_are_those_names(numbers: list[int]) -> None:
    bracket = ",".join(f"{number:04}" for number in numbers)
    assert expand_host_list(f"n[{bracket}]") == tuple(f"n{number:04}" for number in numbers)


def test_a_list_of_many_names_takes_time_in_proportion_to_them() -> None:
    start = time.process_time()
    assert len(expand_host_list(",".join(["node"] * 90_000))) == 90_000
    assert time.process_time() - start < 2.0
