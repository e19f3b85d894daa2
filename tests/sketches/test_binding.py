from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.files.read import machine_from_bytes
from probes.topology.graph import Device, DeviceKind, LinkKind, Topology
from sketches.binding import bind_gpus, borrowed_nics, nic_gb_per_s
from sketches.sketch import PruningStage
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.sketches.machines import cluster, devices, machine, pcie_box, virtual_machine


def _nics(topology: Topology) -> list[str]:
    return [binding.nic for binding in bind_gpus(topology)[0]]


def test_a_gpu_takes_the_nic_under_its_own_switch() -> None:
    bindings, dropped = bind_gpus(cluster(2, 4, 2))
    assert [binding.nic for binding in bindings] == [
        *("n0/nic0", "n0/nic0", "n0/nic1", "n0/nic1"),
        *("n1/nic0", "n1/nic0", "n1/nic1", "n1/nic1"),
    ]
    assert {binding.reason for binding in bindings} == {"under the same PCIe switch"}
    assert len(dropped) == 8
    assert {edge.stage for edge in dropped} == {PruningStage.BINDING}


def _nested(gpus_below: dict[int, str], nics_below: dict[int, str]) -> Topology:
    """Return a PCIe switch with further switches below it, to which GPUs and NICs are attached."""
    switches = sorted({*gpus_below.values(), *nics_below.values()})
    parts = [
        *devices(0, DeviceKind.GPU, len(gpus_below)),
        *devices(0, DeviceKind.NIC, len(nics_below)),
        *(Device(name, DeviceKind.PCIE_SWITCH, 0) for name in ("top", *switches)),
    ]
    below = {f"n0/gpu{i}": name for i, name in gpus_below.items()}
    below |= {f"n0/nic{i}": name for i, name in nics_below.items()} | dict.fromkeys(switches, "top")
    return machine(
        "nested", parts, [(end, up, LinkKind.PCIE, 24.0, 0.1) for end, up in below.items()]
    )


def test_under_nested_switches_the_innermost_decides() -> None:
    bindings, dropped = bind_gpus(_nested({0: "A", 1: "B"}, {0: "B", 1: "A"}))
    assert [binding.nic for binding in bindings] == ["n0/nic1", "n0/nic0"]
    assert {binding.reason for binding in bindings} == {"under the same PCIe switch"}
    assert len(dropped) == 2
    # Where the tree does not distinguish them, NICs are distributed as before.
    assert _nics(_nested({0: "A", 1: "A"}, {0: "B", 1: "C"})) == ["n0/nic0", "n0/nic1"]


def test_a_gpu_without_a_nic_of_its_own_borrows_those_that_are_nearer_to_others() -> None:
    lacking = cluster(2, 4, 4, absent=frozenset({"n0/nic0"}))
    borrowed = borrowed_nics(lacking)
    assert [(each.rank, each.nic) for each in borrowed] == [
        *((0, "n0/nic1"), (0, "n0/nic2"), (0, "n0/nic3")),
    ]
    assert borrowed[0].reason == (
        "borrowed: 3 NICs are equally near, and other GPUs are nearer to each of them"
    )
    assert borrowed_nics(cluster(2, 4, 4)) == ()
    # Two GPUs for each NIC: both are equally near to it.
    assert borrowed_nics(cluster(2, 4, 2)) == ()


def test_without_nics_nothing_is_bound() -> None:
    assert bind_gpus(pcie_box(4)) == ((), ())


def test_where_the_tree_is_silent_the_index_decides_and_the_reason_says_so() -> None:
    bindings, _ = bind_gpus(virtual_machine(4, 2))
    assert [binding.nic for binding in bindings] == ["n0/nic0", "n0/nic0", "n0/nic1", "n0/nic1"]
    assert bindings[3].reason == (
        "by index, because the PCIe tree does not distinguish the NICs: GPU 3 of 4 takes "
        "NIC 3 * 2 // 4"
    )


@pytest.mark.long
@given(gpus=st.integers(2, 16), nics=st.integers(1, 8))
def test_ties_are_shared_out_evenly(gpus: int, nics: int) -> None:
    shares = Counter(_nics(virtual_machine(gpus, nics)))
    assert sum(shares.values()) == gpus
    if gpus >= nics:
        assert len(shares) == nics
    assert max(shares.values()) - min(shares.values()) <= 1


def test_a_slow_nic_is_left_out_even_when_it_is_nearest() -> None:
    topology = cluster(2, 2, 2, nic_gb_per_s={(0, 1): 1.25, (1, 1): 1.25})
    bindings, dropped = bind_gpus(topology)
    assert [binding.nic for binding in bindings] == ["n0/nic0"] * 2 + ["n1/nic0"] * 2
    slow = [edge for edge in dropped if edge.dst == "n0/nic1"]
    assert len(slow) == 2
    assert "50%" in slow[0].reason


def test_of_equally_near_nics_one_on_a_much_narrower_link_is_passed_over() -> None:
    parts = [*devices(0, DeviceKind.GPU, 2), *devices(0, DeviceKind.NIC, 3)]
    parts.append(Device("switch", DeviceKind.PCIE_SWITCH, 0))
    width = {"n0/nic0": 24.0, "n0/nic2": 40.0}
    cables = [
        (device.name, "switch", LinkKind.PCIE, width.get(device.name, 48.0), 0.1)
        for device in parts[:-1]
    ]
    assert _nics(machine("storage", parts, cables)) == ["n0/nic1", "n0/nic2"]


@requires_shared_data
def test_the_gpus_of_an_xe9680_take_the_nics_for_compute_and_not_those_for_storage() -> None:
    file = SHARED_DATA / "pci_sysfs/lspci/dell-xe9680-h100x8-8cx7.lspci-vvv.txt"
    text = file.read_text("utf-8")
    # Also with the NIC for storage first: the order must not decide.
    for storage, compute in (("1b", "1a"), ("1a", "1b")):
        swapped = _with_buses(text, {"1a": compute, "1b": storage})
        topology = machine_from_bytes(swapped.encode(), "lspci.txt")
        pairs = {
            topology.gpus[binding.rank].bus_id: topology.device[binding.nic].bus_id
            for binding in bind_gpus(topology)[0]
        }
        assert pairs == {
            f"0000:{gpu}:00.0": f"0000:{nic}:00.0"
            for gpu, nic in (
                *(("19", compute), ("3b", "3c"), ("4c", "4d"), ("5d", "5e")),
                *(("9b", "9c"), ("bb", "bc"), ("cb", "cc"), ("db", "dc")),
            )
        }


def _with_buses(text: str, renamed: dict[str, str]) -> str:
    """Return the output of lspci with renamed buses of functions and of the bridges above them."""

    def swap(match: re.Match[str]) -> str:
        return match[1] + renamed.get(match[2], match[2]) + match[3]

    text = re.sub(r"(^)([0-9a-f]{2})(:[0-9a-f]{2}\.)", swap, text, flags=re.M)
    for edge in ("secondary", "subordinate"):
        text = re.sub(rf"({edge}=)(1[ab])(,)", swap, text)
    return text


def test_a_nic_without_a_network_link_is_left_out_when_others_have_one() -> None:
    whole = cluster(2, 2, 2)
    links = [
        (link.src, link.dst, link.kind, link.bandwidth_gb_per_s, link.latency_us)
        for link in whole.links
        if not (link.kind is LinkKind.NETWORK and "n0/nic1" in (link.src, link.dst))
    ]
    topology = machine("unplugged", whole.devices, links[::2])
    assert _nics(topology)[:2] == ["n0/nic0", "n0/nic0"]


def test_a_nic_that_only_sends_or_only_receives_is_left_out() -> None:
    whole = cluster(2, 2, 2)
    for one_way in ("src", "dst"):
        links = [
            link
            for link in whole.links
            if not (link.kind is LinkKind.NETWORK and getattr(link, one_way) == "n0/nic0")
        ]
        assert _nics(replace(whole, links=tuple(links)))[:2] == ["n0/nic1", "n0/nic1"]


def test_a_nic_does_what_its_links_do_together_up_to_its_line_rate() -> None:
    parts = [Device("nic", DeviceKind.NIC, 0, line_rate_gb_per_s=25.0)]
    parts += [Device(name, DeviceKind.NETWORK_SWITCH, -1) for name in ("a", "b")]
    for each, together in ((10.0, 20.0), (20.0, 25.0), (30.0, 30.0)):
        cables = [("nic", name, LinkKind.NETWORK, each, 1.0) for name in ("a", "b")]
        topology = machine("planes", parts, cables)
        assert nic_gb_per_s(topology, "nic") == together
        assert nic_gb_per_s(topology, "nic", receiving=True) == together
    assert nic_gb_per_s(machine("unplugged", parts, []), "nic") == 25.0
