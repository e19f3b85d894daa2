"""NVLink domains of several hosts; figures worked by hand."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from probes.topology.domains import hosts_of_node, joined
from probes.topology.graph import DeviceKind, Topology
from probes.topology.hosts import hosts_alike, split_hosts
from probes.topology.json_form import topology_from_json, topology_to_json
from probes.topology.paths import local_path
from probes.topology.replicate import Network, replicate
from sketches.candidates import sketch_candidates, whole_machine
from tests.probes.machines import shipped

TRAY = shipped()
TRAYS = replicate(TRAY, 4, Network(1.7))
"""Four hosts of eight GPUs and NICs behind an NVSwitch."""


def domain_of_two() -> Topology:
    return joined(split_of(2), [[0, 1]])


def split_of(count: int) -> Topology:
    """Hosts without a network."""
    machine = replicate(TRAY, count, Network(1.7))
    inside = [device for device in machine.devices if device.node >= 0]
    names = {device.name for device in inside}
    links = [link for link in machine.links if {link.src, link.dst} <= names]
    return replace(machine, devices=tuple(inside), links=tuple(links))


def test_hosts_of_a_domain_are_one_node_with_one_nvswitch() -> None:
    domain = domain_of_two()
    assert (domain.node_count, domain.host_count, domain.ranks_per_node) == (1, 2, 16)
    assert [gpu.name for gpu in domain.gpus] == [f"n0/gpu{rank}" for rank in range(16)]
    assert [gpu.host_in_node for gpu in domain.gpus] == [0] * 8 + [1] * 8
    (switch,) = (each for each in domain.devices if each.kind is DeviceKind.NVSWITCH)
    assert len(domain.links_from[switch.name]) == 16
    path = local_path(domain, "n0/gpu0", "n0/gpu15")
    assert path is not None
    assert path.devices == ("n0/gpu0", switch.name, "n0/gpu15")
    # No PCIe leads to the other host.
    assert local_path(domain, "n0/gpu0", "n0/nic15") is None
    assert local_path(domain, "n0/gpu15", "n0/nic15") is not None


def test_a_domain_beside_other_hosts_numbers_the_nodes_anew() -> None:
    machine = joined(replace(TRAYS, hosts=("t1", "t2", "t3", "t4")), [[1, 3]])
    assert machine.hosts == ("t1", "t[2,4]", "t3")
    assert machine.node_of_rank == (0,) * 8 + (1,) * 16 + (2,) * 8
    assert [group.kind for group in hosts_alike(machine)] == [
        "2 hosts alike",
        "NVLink domain of 2 hosts",
    ]
    sketch = sketch_candidates(machine)[0]
    assert sketch.node_of_rank == machine.node_of_rank


def test_schedules_see_one_node() -> None:
    """All 240 pairs are joined by NVLink, each with all links of both GPUs."""
    domain = domain_of_two()
    for sketch in (sketch_candidates(domain)[0], whole_machine(domain)):
        assert len(sketch.edges) == 16 * 15
        assert {edge.bandwidth_gb_per_s for edge in sketch.edges} == {300.0}
        assert sketch.node_of_rank == (0,) * 16


def test_its_hosts_are_the_hosts_that_were_joined() -> None:
    for host in hosts_of_node(domain_of_two()):
        assert host.fingerprint() == TRAY.fingerprint()
        assert [gpu.name for gpu in host.gpus] == [gpu.name for gpu in TRAY.gpus]
    assert hosts_of_node(TRAY) == (TRAY,)


def test_a_domain_is_another_machine_than_its_hosts_apart() -> None:
    domain = domain_of_two()
    assert domain.fingerprint() != split_of(2).fingerprint()
    gone = next(link for link in domain.links if link.dst == "n0/nvswitch0")
    without = replace(domain, links=tuple(link for link in domain.links if link != gone))
    assert without.fingerprint() != domain.fingerprint()


def test_the_json_form_keeps_the_hosts() -> None:
    domain = domain_of_two()
    assert topology_from_json(topology_to_json(domain), "domain") == domain
    assert "host_in_node" not in topology_to_json(TRAYS)


@given(order=st.permutations(range(4)), cut=st.integers(1, 3))
def test_every_partition_keeps_devices_and_links(order: list[int], cut: int) -> None:
    machine = joined(TRAYS, [order[:cut], order[cut:]])
    assert machine.node_count == 2
    assert machine.host_count == 4
    assert len(machine.gpus) == len(TRAYS.gpus)
    assert len(machine.links) == len(TRAYS.links)
    found = [host for node in split_hosts(machine).values() for host in hosts_of_node(node)]
    assert [host.fingerprint() for host in found] == [TRAY.fingerprint()] * 4
    assert joined(TRAYS, []) == TRAYS
