from __future__ import annotations

from sketches.binding import bind_gpus
from sketches.transformation import every_connection, network_wires
from sketches.wires import assemble
from tests.sketches.machines import half_known


def test_a_gpu_without_a_known_path_shares_the_links_of_its_nic_into_the_host() -> None:
    # Links of 12.5 and 6.25 GB/s lead to a NIC of 50; the third GPU may use both.
    machine = half_known()
    bindings, _ = bind_gpus(machine)
    wires = network_wires(machine, bindings, every_connection(machine, ("n0/nic0", "n1/nic0")))
    edges, ports = assemble(wires)
    edge = {(each.src, each.dst): each for each in edges}
    assert edge[2, 5].bandwidth_gb_per_s == 18.75
    # Of two nodes, what one sends the other receives, so one port says both.
    assert edge[2, 5].ports == ("to:n0/nic0", "tx:n0/nic0", "rx:n1/nic0")
    assert edge[0, 5].bandwidth_gb_per_s == 12.5
    assert edge[0, 5].ports == ("to:n0/nic0", "pcie:n0/gpu0>n0/nic0", "tx:n0/nic0", "rx:n1/nic0")
    shared = {port.bandwidth_gb_per_s for port in ports if port.name.startswith("to:")}
    assert shared == {18.75}
