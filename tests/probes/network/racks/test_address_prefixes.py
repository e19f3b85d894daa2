"""Racks by the prefixes of addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.cluster.racks import place_in_racks
from probes.network.racks.address_prefixes import RackPrefixes, parse_rack_prefixes
from tests.probes.network.clusters import port
from tuccl.errors import MachineError


@pytest.mark.parametrize(
    ("prefixes", "racks"),
    [
        (("24",), ("10.0.1.0/24", "10.0.2.0/24", "")),
        (("23",), ("10.0.0.0/23", "10.0.2.0/23", "")),
        (("24", "64"), ("10.0.1.0/24", "10.0.2.0/24", "2001:db8:0:7::/64")),
        (("10.0.2.0/24",), ("", "10.0.2.0/24", "")),
        (("10.0.0.0/16", "10.0.2.0/24"), ("10.0.0.0/16", "10.0.2.0/24", "")),
        (("16", "10.0.2.0/24"), ("10.0.0.0/16", "10.0.2.0/24", "")),
        ((), ("", "", "")),
    ],
)
def test_the_longest_network_counts_then_the_length(
    prefixes: tuple[str, ...], racks: tuple[str, ...]
) -> None:
    found = parse_rack_prefixes(prefixes)
    addresses = ("10.0.1.9", "10.0.2.7", "2001:db8:0:7::1")
    assert tuple(found.rack_of(port(0, address=each)) for each in addresses) == racks


def test_ports_without_an_address_are_where_their_host_is() -> None:
    found = parse_rack_prefixes(["24"])
    silent = port(0, address="", management_address="192.168.3.4")
    assert found.rack_of(silent) == "192.168.3.0/24"
    assert found.rack_of(port(0, address="")) == ""
    every_link_has_them = port(0, address="fe80::1%eth0")
    assert parse_rack_prefixes(["64"]).rack_of(every_link_has_them) == ""


@pytest.mark.parametrize("text", ["0", "129", "10.0.1.0/33", "10.0.1.9/24", "rack", "", "-1", "²"])
def test_what_is_no_prefix_is_refused(text: str) -> None:
    with pytest.raises(MachineError, match="give a length in bits, as 24"):
        parse_rack_prefixes([text])
    with pytest.raises(MachineError, match="one for each version of IP"):
        parse_rack_prefixes(["24", "25"])


def test_a_rack_map_comes_before_prefixes_and_these_before_lldp() -> None:
    ports = [port(0, rack="leaf7"), port(1, rack="leaf7"), port(2, address="", rack="leaf7")]
    placed = place_in_racks(ports, {"node0": "r1"}, (), parse_rack_prefixes(["24"]))
    assert [each.rack for each in placed] == ["r1", "10.0.0.0/24", "leaf7"]


@given(st.integers(1, 32), st.lists(st.ip_addresses(v=4), min_size=2, max_size=6))
def test_addresses_are_in_one_rack_exactly_if_their_first_bits_are_equal(
    length: int, addresses: list[object]
) -> None:
    prefixes = RackPrefixes(((4, length),))
    usual = [text for text in map(str, addresses) if not text.startswith("169.254.")]
    racks = [prefixes.rack_of(port(0, address=text)) for text in usual]
    bits = [int.from_bytes(bytes(map(int, text.split(".")))) >> (32 - length) for text in usual]
    assert [a == b for a in racks for b in racks] == [a == b for a in bits for b in bits]
