"""Ways between GPUs, and transfers that share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from probes.topology.graph import NETWORK_NODE, Device, DeviceKind, LinkKind, Topology
from sketches.candidates import sketch_candidates
from sketches.sketch import Port
from tests.sketches.machines import Cable, cluster, devices, machine, slowed
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tuccl.models.across_hosts.gpu_ways import (
    GpuWays,
    gpu_ways,
    shared_us_per_byte,
    with_ways,
)

LEFT, RIGHT = Port("left", 1.0), Port("right", 4.0)


def test_a_port_is_shared_fairly_and_given_on_when_a_transfer_ends() -> None:
    ways = {(0, 1): (LEFT,), (0, 2): (LEFT, RIGHT), (3, 2): (RIGHT,)}
    assert shared_us_per_byte({(0, 1): 1}, ways) == pytest.approx(1e-3)
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 1}, ways) == pytest.approx(2e-3)
    # Each gets 0.5 of `left` until the first is over at 2, then the second sends 2 more alone.
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 3}, ways) == pytest.approx(4e-3)
    # 3>2 has the 3.5 of `right` that 0>2 leaves it, and is over first.
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 1, (3, 2): 7}, ways) == pytest.approx(2e-3)
    assert shared_us_per_byte({}, ways) == 0.0


def test_ways_of_a_node_are_its_switch_or_its_own_links() -> None:
    switched = GpuWays(cluster(2, 4, 2)).inside
    assert len(switched) == 2 * 4 * 3
    all_send = {(0, peer): 1 for peer in (1, 2, 3)}
    assert shared_us_per_byte(all_send, switched) == pytest.approx(3 / 300e3)
    mesh = GpuWays(Uneven((3, 1), 1, "mesh").topology()).inside
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 1}, mesh) == pytest.approx(1 / 50e3)


def test_ranks_share_the_nic_that_they_are_bound_to() -> None:
    for nics, sharers in ((4, 1), (2, 2), (1, 4)):
        ways = GpuWays(cluster(2, 4, nics))
        rails = {(rank, rank + 4): 1 for rank in range(4)}
        # PCIe's 24 GB/s are less than the NIC's 25.
        assert ways.across_us_per_byte(rails) == pytest.approx(sharers / 24e3)


def over_tcp(topology: Topology) -> Topology:
    devices = (
        replace(device, os_name="eth0") if device.kind is DeviceKind.NIC else device
        for device in topology.devices
    )
    return replace(topology, devices=tuple(devices))


def test_a_message_leaves_by_the_nic_at_its_receivers_place() -> None:
    """As NCCL's PXN has it: GPU 0 sends to all GPUs of the other node by all NICs of its own."""
    four_nics = cluster(2, 4, 4)
    scattered = {(0, peer): 1 for peer in range(4, 8)}
    assert GpuWays(four_nics).across_us_per_byte(scattered) == pytest.approx(1 / 24e3)
    assert GpuWays(over_tcp(four_nics)).across_us_per_byte(scattered) == pytest.approx(4 / 24e3)
    # It passes the GPU there over NVLink.
    ((way,),) = [GpuWays(four_nics).across([(0, 6)])[0, 6]]
    assert {"out:n0/gpu0", "in:n0/gpu2", "tx:n0/nic2"} <= {port.name for port in way}
    # Its own NIC where no GPU of its node has that place.
    ((way,),) = [GpuWays(Uneven((1, 3), 1, "mesh").topology()).across([(0, 3)])[0, 3]]
    assert not any(port.name == "0>1" for port in way)


def test_a_nic_that_states_half_of_the_others_rate_is_used_by_no_gpu() -> None:
    """NCCL 2.28.9 did so with NICs of 16 and 8 Gbit/s. One that is slow unstated keeps its GPU."""
    slow = slowed(cluster(2, 4, 4), "n0/nic3", 0.5)
    stated = replace(
        slow,
        devices=tuple(
            replace(each, line_rate_gb_per_s=12.5 if each.name == "n0/nic3" else 25.0)
            if each.kind is DeviceKind.NIC
            else each
            for each in slow.devices
        ),
    )
    used = [
        {port.name for way in GpuWays(each).across([(3, 7)])[3, 7] for port in way}
        for each in (slow, stated)
    ]
    assert "tx:n0/nic3" in used[0]
    assert {f"tx:n0/nic{nic}" for nic in range(4)} & used[1] == {
        f"tx:n0/nic{nic}" for nic in range(3)
    }
    assert GpuWays(slow).across_us_per_byte({(3, 7): 1}) == pytest.approx(1 / 12.5e3)
    assert GpuWays(stated).across_us_per_byte({(3, 7): 1}) == pytest.approx(1 / 24e3)


def test_a_pair_whose_nics_do_not_reach_each_other_has_a_share_of_the_others() -> None:
    ways = GpuWays(over_tcp(cluster(2, 4, 2, rails_only=True)))
    assert ways.across_us_per_byte({(0, 4): 1}) == pytest.approx(1 / 24e3)
    assert ways.across_us_per_byte({(0, 7): 1}) == pytest.approx(1 / (0.5 * 24e3))
    # NCCL's PXN sends along the receiver's rail.
    relayed = GpuWays(cluster(2, 4, 2, rails_only=True))
    assert relayed.across_us_per_byte({(0, 7): 1}) == pytest.approx(1 / 24e3)


def node_cables(node: int, nics: int, nvlinks: int) -> Iterator[Cable]:
    """Yield the cables of two GPUs behind a PCIe switch each, the NICs behind the first."""
    near, far = f"n{node}/pcie_switch0", f"n{node}/pcie_switch1"
    for gpu, switch in enumerate((near, far)):
        yield f"n{node}/gpu{gpu}", switch, LinkKind.PCIE, 48.0, 0.1
        yield switch, f"n{node}/cpu0", LinkKind.PCIE, 10.0, 0.1
    for nic in range(nics):
        yield f"n{node}/nic{nic}", near, LinkKind.PCIE, 24.0, 0.1
        yield f"n{node}/nic{nic}", "fabric", LinkKind.NETWORK, 25.0, 1.0
    for _ in range(nvlinks):
        yield f"n{node}/gpu0", f"n{node}/gpu1", LinkKind.NVLINK, 50.0, 0.7


def two_nodes(nics: int, nvlinks: int) -> Topology:
    kinds = {
        DeviceKind.GPU: 2, DeviceKind.NIC: nics, DeviceKind.PCIE_SWITCH: 2, DeviceKind.CPU: 1
    }  # fmt: skip
    members = [
        each for node in (0, 1) for kind in kinds for each in devices(node, kind, kinds[kind])
    ]
    network = Device("fabric", DeviceKind.NETWORK_SWITCH, NETWORK_NODE)
    cables = [cable for node in (0, 1) for cable in node_cables(node, nics, nvlinks)]
    return machine("two_nodes", [*members, network], cables)


def test_a_gpu_without_a_nic_of_its_own_sends_over_nvlink_and_receives_through_the_host() -> None:
    ways = GpuWays(two_nodes(1, 1))
    assert ways.across_us_per_byte({(1, 2): 1}) == pytest.approx(1 / 24e3)
    assert ways.across_us_per_byte({(0, 3): 1}) == pytest.approx(1 / 10e3)
    without = GpuWays(two_nodes(1, 0))
    assert without.across_us_per_byte({(1, 2): 1}) == pytest.approx(1 / 10e3)


def test_a_gpu_with_two_nics_to_itself_sends_by_both() -> None:
    ways = GpuWays(two_nodes(2, 1))
    assert len(ways.across([(0, 2)])[0, 2]) == 2
    assert ways.across_us_per_byte({(0, 2): 1}) == pytest.approx(1 / 48e3)
    assert ways.across_us_per_byte({(0, 2): 1, (1, 3): 1}) == pytest.approx(1 / 10e3)


def test_edges_of_a_sketch_take_the_nics_that_nccl_takes() -> None:
    """The sketch sends by the sender's NIC, NCCL with RDMA by the one at the receiver's place."""
    topology = cluster(2, 2, 2, nic_gb_per_s={(0, 0): 13.0})
    sketch = next(each for each in sketch_candidates(topology) if each.name == "full_mesh")
    over_tcp = replace(
        topology,
        devices=tuple(
            replace(each, os_name="eth0") if each.kind is DeviceKind.NIC else each
            for each in topology.devices
        ),
    )
    for whole, gb_per_s in ((topology, 24.0), (over_tcp, 13.0)):
        routed = with_ways(sketch, gpu_ways(whole))
        assert [(edge.src, edge.dst) for edge in routed.edges] == [
            (edge.src, edge.dst) for edge in sketch.edges
        ]
        # From rank 0, whose NIC is the slow one, to rank 3 at the second place of its node.
        assert routed.edge[0, 3].bandwidth_gb_per_s == gb_per_s
        assert routed.edge[0, 2].bandwidth_gb_per_s == 13.0
        assert routed.edge[0, 1] == sketch.edge[0, 1]
        assert {name for edge in routed.edges for name in edge.ports} <= routed.port.keys()
