import pytest

from probes.network.racks.rack_map import parse_rack_map
from tuccl.errors import MachineError


def test_words_fields_ranges_and_comments() -> None:
    text = "# where is what\nnode[01-02,07],login  rack-a  # first row\n\nnode17,rack-b\nn18 , b\n"
    assert parse_rack_map(text) == {
        "node01": "rack-a",
        "node02": "rack-a",
        "node07": "rack-a",
        "login": "rack-a",
        "node17": "rack-b",
        "n18": "b",
    }


def test_a_heading_is_no_host() -> None:
    assert parse_rack_map("Host,Rack\nn1,a\n") == {"n1": "a"}


def test_a_host_may_be_repeated_in_the_same_rack_only() -> None:
    assert parse_rack_map("n1 a\nn[1-2] a\n") == {"n1": "a", "n2": "a"}
    with pytest.raises(MachineError, match="map line 2: host n1 is in 'a' and in 'b'"):
        parse_rack_map("n1 a\nn[1-2] b\n", "map")


@pytest.mark.parametrize("text", ["n1 a\nn2\n", "n1 n2 a\n", "n[3-1] a\n", "n1,\n"])
def test_malformed_lines_are_named(text: str) -> None:
    with pytest.raises(MachineError):
        parse_rack_map(text)


def test_hosts_are_limited_per_file_and_not_per_line() -> None:
    text = "".join(f"n{rack}-[1-60000] r{rack}\n" for rack in range(300))
    with pytest.raises(MachineError, match=r"line 2: .*more than 100,000 hosts in all"):
        parse_rack_map(text)
    # Also where the same hosts come again: their number costs time, not their names.
    with pytest.raises(MachineError, match=r"line 2: .*more than 100,000 hosts in all"):
        parse_rack_map("n[1-60000] r\n" * 300)
