from dataclasses import replace

import pytest

from probes.topology.graph import DeviceKind, LinkKind, Provenance
from probes.topology.json_form import topology_from_json, topology_to_json
from probes.topology.replicate import (
    Network,
    NetworkLayout,
    replicate,
    with_shared_gpus,
)
from probes.topology.validation import validate
from tests.probes.machines import ring, shipped
from tests.sketches.machines import virtual_machine
from tuccl.errors import InvalidTopologyError, UnknownNicSpeedError


def test_one_node_is_the_machine_itself() -> None:
    machine = shipped()
    assert replicate(machine, 1, Network(1.7)) is machine


@pytest.mark.parametrize(("layout", "switches"), [("rails", 8), ("fabric", 1)])
def test_devices_and_links_of_a_cluster(layout: str, switches: int) -> None:
    machine = shipped()
    cluster = replicate(machine, 3, Network(2.0, NetworkLayout(layout)))
    validate(cluster)
    assert len(cluster.devices) == 3 * len(machine.devices) + switches
    assert len(cluster.links) == 3 * (len(machine.links) + 2 * 8)
    assert cluster.node_of_rank == tuple(rank // 8 for rank in range(24))
    assert [gpu.name for gpu in cluster.gpus[7:10]] == ["n0/gpu7", "n1/gpu0", "n1/gpu1"]
    cables = [link for link in cluster.links if link.kind is LinkKind.NETWORK]
    assert {link.bandwidth_gb_per_s for link in cables} == {25.0}
    assert {link.latency_us for link in cables} == {1.0}
    assert {link.provenance for link in cables} == {Provenance.SYSFS}


def test_rail_i_connects_nic_i_of_every_node() -> None:
    cluster = replicate(shipped(), 4, Network(1.7))
    assert {link.dst for link in cluster.links_from["rail5"]} == {f"n{i}/nic5" for i in range(4)}


def test_a_given_bandwidth_replaces_the_nics_own() -> None:
    cluster = replicate(shipped(), 2, Network(1.7, bandwidth_gb_per_s=12.5))
    cables = [link for link in cluster.links if link.kind is LinkKind.NETWORK]
    assert {(link.bandwidth_gb_per_s, link.provenance) for link in cables} == {
        (12.5, Provenance.SPEC)
    }


def test_racks_are_leaf_switches_below_a_spine_that_is_oversubscribed() -> None:
    network = Network(2.0, racks=(4, 2), oversubscription=2.0)
    described = replicate(shipped(), 6, network)
    validate(described)
    assert described.name.endswith(" in racks of 4+2, 2:1")
    switches = [d.name for d in described.devices if d.kind is DeviceKind.NETWORK_SWITCH]
    assert switches[:3] == ["rail0-leaf0", "rail0-leaf1", "rail0-spine"]
    assert len(switches) == 24
    assert {link.dst for link in described.links_from["n3/nic5"] if "/" not in link.dst} == {
        "rail5-leaf0"
    }
    # Four NICs of 25 GB/s at twice the uplink, then two.
    for leaf, ports, gb_per_s in (("rail5-leaf0", 4, 50.0), ("rail5-leaf1", 2, 25.0)):
        for ends in ((leaf, "rail5-spine"), ("rail5-spine", leaf)):
            (uplink,) = described.links_between[ends]
            assert (uplink.bandwidth_gb_per_s, uplink.lanes) == (gb_per_s, ports)
            assert uplink.provenance is Provenance.SPEC


def test_one_fabric_has_a_leaf_for_all_nics_of_a_rack() -> None:
    network = Network(2.0, NetworkLayout.FABRIC, racks=(2, 2), oversubscription=4.0)
    described = replicate(shipped(), 4, network)
    (uplink,) = described.links_between["fabric-leaf1", "fabric-spine"]
    assert (uplink.bandwidth_gb_per_s, uplink.lanes) == (2 * 8 * 25.0 / 4, 16)


def test_racks_and_their_oversubscription_are_part_of_the_identity() -> None:
    networks = (
        Network(2.0),
        Network(2.0, racks=(2, 2)),
        Network(2.0, racks=(3, 1)),
        Network(2.0, racks=(2, 2), oversubscription=2.0),
        Network(2.0, racks=(2, 2), oversubscription=4.0),
    )
    described = [replicate(shipped(), 4, network) for network in networks]
    assert len({each.fingerprint() for each in described}) == 5
    assert replicate(shipped(), 4, Network(2.0, racks=(4,))) == described[0]
    assert topology_from_json(topology_to_json(described[3]), "racks").fingerprint() == (
        described[3].fingerprint()
    )


@pytest.mark.parametrize(
    ("racks", "oversubscription", "message"),
    [
        ((2, 1), 1.0, r"racks of 2\+1 nodes do not hold 4 nodes"),
        ((4, 0), 1.0, r"racks of 4\+0 nodes"),
        ((2, 2), 0.5, "oversubscription 0.5; it must be 1 or more"),
        ((2, 2), float("nan"), "oversubscription nan"),
    ],
)
def test_impossible_racks_are_refused(
    racks: tuple[int, ...], oversubscription: float, message: str
) -> None:
    with pytest.raises(InvalidTopologyError, match=message):
        replicate(shipped(), 4, Network(2.0, racks=racks, oversubscription=oversubscription))


def test_nodes_may_keep_some_of_their_gpus() -> None:
    uneven = replicate(shipped(), 3, Network(1.7), (8, 8, 4))
    validate(uneven)
    assert uneven.name.endswith(" with 8+8+4 GPUs")
    assert uneven.ranks_per_node == 0
    assert [gpu.name for gpu in uneven.gpus[14:]] == [
        "n1/gpu6", "n1/gpu7", "n2/gpu0", "n2/gpu1", "n2/gpu2", "n2/gpu3",
    ]  # fmt: skip
    assert len(uneven.nics) == 24
    for wrong in ((8, 8, 9), (8, 8, 0)):
        with pytest.raises(InvalidTopologyError, match=r"cannot be made of .* whose nodes have 8"):
            replicate(shipped(), 3, Network(1.7), wrong)


def test_a_gpu_may_appear_as_several() -> None:
    machine = virtual_machine(2, 1)
    shared = with_shared_gpus(machine, 5)
    assert [gpu.name for gpu in shared.gpus] == [f"n0/gpu{number}" for number in range(5)]
    assert len({device.name for device in shared.devices}) == len(shared.devices)
    # Two links, to the processor and from it, for each of the three further ones.
    assert len(shared.links) == len(machine.links) + 6
    validate(shared)
    assert with_shared_gpus(machine, 2).devices == machine.devices
    with pytest.raises(InvalidTopologyError, match="has no GPU that several ranks could share"):
        with_shared_gpus(virtual_machine(0, 1), 2)


def test_a_thousand_gpus() -> None:
    cluster = replicate(shipped(), 128, Network(1.7))
    assert len(cluster.gpus) == 1024
    validate(cluster)


def test_what_cannot_be_replicated() -> None:
    machine = shipped()
    with pytest.raises(InvalidTopologyError, match="it has no NIC"):
        replicate(shipped("h200-4gpu"), 2, Network(1.7))
    with pytest.raises(InvalidTopologyError, match="it has no NIC"):
        replicate(ring([0, 1]), 2, Network(1.7))
    with pytest.raises(InvalidTopologyError, match="0 nodes"):
        replicate(machine, 0, Network(1.7))
    with pytest.raises(InvalidTopologyError, match="more than one host"):
        replicate(replicate(machine, 2, Network(1.7)), 2, Network(1.7))
    with pytest.raises(InvalidTopologyError, match="bandwidth 0 GB/s"):
        replicate(machine, 2, Network(1.7, bandwidth_gb_per_s=0))
    with pytest.raises(InvalidTopologyError, match="latency -1 us"):
        replicate(machine, 2, Network(-1))
    silent = replace(
        machine,
        devices=tuple(
            replace(device, line_rate_gb_per_s=0.0) if device.kind is DeviceKind.NIC else device
            for device in machine.devices
        ),
    )
    with pytest.raises(UnknownNicSpeedError, match=r"NIC .n0/nic0. .* does not state its speed"):
        replicate(silent, 2, Network(1.7))
    assert len(replicate(silent, 2, Network(1.7, bandwidth_gb_per_s=25.0)).gpus) == 16
