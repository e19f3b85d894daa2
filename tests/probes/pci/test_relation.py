"""Proximity of two PCI functions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.pci.inventory import NumaNode, PciInventory
from probes.pci.relation import Relation, bridges_above, relation
from tests.probes.pci.hand_made import bare_function, hand_made


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("0000:13:00.0", "0000:13:00.0", Relation.SAME_DEVICE),
        ("0000:14:00.0", "0000:14:00.1", Relation.SAME_DEVICE),
        ("0000:13:00.0", "0000:14:00.1", Relation.SWITCH),
        ("0000:18:00.0", "0000:19:00.0", Relation.SWITCH),
        ("0000:13:00.0", "0000:19:00.0", Relation.SWITCHES),
        ("0000:21:00.0", "0000:21:01.0", Relation.ROOT_PORT),
        ("0000:13:00.0", "0000:1b:00.0", Relation.HOST_BRIDGE),
        ("0000:21:00.0", "0000:20:05.0", Relation.HOST_BRIDGE),
        ("0000:13:00.0", "0000:21:00.0", Relation.NUMA_NODE),
        ("0000:13:00.0", "0000:31:00.0", Relation.SOCKET),
        ("0000:13:00.0", "0000:41:00.0", Relation.SYSTEM),
        ("0000:13:00.0", "0000:51:00.0", Relation.UNKNOWN),
    ],
)
def test_hand_worked_pairs(a: str, b: str, expected: Relation) -> None:
    assert relation(hand_made(), a, b) is expected


def test_a_switch_straight_on_a_root_bus_is_a_switch_and_not_a_root_port() -> None:
    functions = tuple(
        bare_function(address, parent, "pci0000:00", 0)
        for address, parent in (
            ("0000:00:02.0", None),
            ("0000:01:00.0", "0000:00:02.0"),
            ("0000:01:01.0", "0000:00:02.0"),
            ("0000:02:00.0", "0000:01:00.0"),
            ("0000:03:00.0", "0000:01:01.0"),
        )
    )
    inventory = PciInventory("virtual", functions)
    assert relation(inventory, "0000:02:00.0", "0000:03:00.0") is Relation.SWITCH


def test_without_packages_two_numa_nodes_have_no_relation() -> None:
    silent = hand_made((NumaNode(0), NumaNode(1), NumaNode(2)))
    assert relation(silent, "0000:13:00.0", "0000:31:00.0") is Relation.UNKNOWN


def test_on_a_host_with_one_numa_node_everything_is_on_it() -> None:
    host = hand_made((NumaNode(0, 0),))
    assert relation(host, "0000:13:00.0", "0000:51:00.0") is Relation.NUMA_NODE


def test_an_address_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        relation(hand_made(), "0000:13:00.0", "0000:ff:00.0")


def test_bridges_in_a_loop_are_no_path() -> None:
    inventory = PciInventory(
        "loop",
        (
            bare_function("0000:01:00.0", "0000:02:00.0", "pci0000:00", 0),
            bare_function("0000:02:00.0", "0000:01:00.0", "pci0000:00", 0),
            bare_function("0000:03:00.0", "0000:02:00.0", "pci0000:00", 0),
        ),
    )
    assert bridges_above(inventory, inventory.functions[2]) == []
    assert relation(inventory, "0000:01:00.0", "0000:03:00.0") is Relation.HOST_BRIDGE


@given(st.data())
def test_relation_is_the_same_both_ways_and_closest_to_itself(data: st.DataObject) -> None:
    machine = hand_made()
    addresses = [function.address for function in machine.functions]
    a, b = (data.draw(st.sampled_from(addresses)) for _ in range(2))
    assert relation(machine, a, b) is relation(machine, b, a)
    assert relation(machine, a, a) is Relation.SAME_DEVICE


@given(st.permutations(range(22)), st.integers(1, 0x60))
def test_bus_numbers_and_the_order_of_the_list_do_not_matter(order: list[int], shift: int) -> None:
    machine = hand_made()

    def moved(address: str) -> str:
        return f"0000:{int(address[5:7], 16) + shift:02x}{address[7:]}"

    functions = [
        replace(
            function,
            address=moved(function.address),
            parent=function.parent and moved(function.parent),
        )
        for function in machine.functions
    ]
    renumbered = replace(machine, functions=tuple(functions[place] for place in order))
    for a, b in (
        ("0000:13:00.0", "0000:14:00.0"),
        ("0000:13:00.0", "0000:19:00.0"),
        ("0000:13:00.0", "0000:41:00.0"),
    ):
        assert relation(renumbered, moved(a), moved(b)) is relation(machine, a, b)
