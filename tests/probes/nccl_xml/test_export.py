from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.files.read import read_topology, shipped_machines
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.nccl_xml.export import export_losses, topology_to_nccl_xml
from probes.topology.bandwidth_class import pcie_gb_per_s
from probes.topology.domains import joined
from probes.topology.graph import (
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.hosts import split_hosts
from probes.topology.replicate import Network, replicate
from tests.probes.machines import both_ways, gpu, ring, shipped
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError

GENERATIONS = (15, 30, 60, 120, 240, 480)
"""Payload of a PCIe lane in 100 Mb/s, by generation."""
NVLINK_OF = {60: 20.0, 70: 25.0, 80: 25.0, 86: 14.0625, 90: 25.0, 100: 50.0}


def _round_trip(topology: Topology) -> str:
    """Return the XML, after checking that reading and writing it again changes nothing."""
    text = topology_to_nccl_xml(topology)
    back = parse_nccl_xml(text, "back")
    assert back.fingerprint() == topology.fingerprint()
    assert topology_to_nccl_xml(back) == text
    return text


@pytest.mark.long
@requires_shared_data
def test_every_real_machine_keeps_its_fingerprint() -> None:
    kept = 0
    for path in sorted((SHARED_DATA / "nccl_topo").rglob("*.xml")):
        try:
            machine = read_topology(path)
        except MachineError:
            continue
        _round_trip(machine)
        assert not [loss for loss in export_losses(machine) if "ead back" in loss], path
        kept += 1
    assert kept == 53


@pytest.mark.parametrize("path", shipped_machines().values(), ids=lambda path: path.stem)
def test_shipped_machines_keep_their_fingerprint(path: Path) -> None:
    # What was measured between two GPUs has no place in the file.
    _round_trip(replace(read_topology(path), limits=()))


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """A host with up to three CPUs, nested switches, GPUs, NICs and any NVLinks between GPUs."""
    capability = draw(st.sampled_from(sorted(NVLINK_OF)))
    devices: list[Device] = []
    links: list[Link] = []
    cpu_speed = draw(st.sampled_from((6.0, 10.0, 16.0, 22.0, 32.0, 40.0)))
    cpus = [Device(f"c{i}", DeviceKind.CPU, 0, i) for i in range(draw(st.integers(1, 3)))]
    for a in cpus:
        links += [
            Link(a.name, b.name, LinkKind.UPI, cpu_speed, 0.1, Provenance.SPEC)
            for b in cpus
            if b is not a
        ]
    above = {cpu.name: ("", 0, 0.0) for cpu in cpus}
    for kind, most in ((DeviceKind.PCIE_SWITCH, 3), (DeviceKind.GPU, 5), (DeviceKind.NIC, 4)):
        for index in range(draw(st.integers(int(kind is DeviceKind.GPU), most))):
            nic, is_gpu = kind is DeviceKind.NIC, kind is DeviceKind.GPU
            parent = draw(st.sampled_from(sorted(above)))
            bus_id, lanes, gb_per_s = draw(_slots(above[parent]))
            device = Device(
                f"{kind}{index}",
                kind,
                0,
                index,
                model=draw(st.sampled_from(["", "10de:20b2", "15b3:101b"])) if not nic else "",
                bus_id=bus_id,
                compute_capability=capability if is_gpu else 0,
                line_rate_gb_per_s=draw(st.sampled_from([1.25, 12.5, 50.0])) if nic else 0.0,
                os_name=draw(st.sampled_from(["", "eth0", "veth1", 'a"<b'])) if nic else "",
            )
            if nic and not bus_id and not above[parent][1] and draw(st.booleans()):
                # An interface of which only the speed is known.
                lanes, gb_per_s = 1, device.line_rate_gb_per_s
            links += both_ways(device.name, parent, LinkKind.PCIE, gb_per_s, lanes=lanes)
            devices.append(device)
            if kind is DeviceKind.PCIE_SWITCH:
                above[device.name] = (bus_id, lanes, gb_per_s)
    gpus = [device.name for device in devices if device.kind is DeviceKind.GPU]
    links += draw(_nvlinks(gpus, NVLINK_OF[capability]))
    machine = Topology("drawn", (*cpus, *devices), tuple(links))
    return _with_nvswitch(_without_empty_switches(machine))


@st.composite
def _slots(draw: st.DrawFn, parent: tuple[str, int, float]) -> tuple[str, int, float]:
    """Bus id, lanes and GB/s of a device, sometimes those of the switch of its card."""
    if parent[0] and draw(st.booleans()):
        return parent
    bus_ids = ["", "0000:01:00.0", "0000:01:00.1", "0001:c2:00.0", "nonsense"]
    # Not slower than gen 3: a slow bridge above fast devices is not believed on reading.
    per_lane, lanes = draw(st.sampled_from(GENERATIONS[2:])), draw(st.sampled_from([1, 4, 8, 16]))
    noisy = pcie_gb_per_s(per_lane, lanes) * draw(st.floats(0.9, 1.03))
    return draw(st.sampled_from(bus_ids)), lanes, noisy


@st.composite
def _nvlinks(draw: st.DrawFn, gpus: list[str], per_link: float) -> list[Link]:
    """NVLinks from all GPUs to a switch, or between any pairs with any count."""
    links: list[Link] = []
    if draw(st.booleans()):
        for name in gpus:
            links += both_ways(name, "switch", gb_per_s=18 * per_link, lanes=18)
        return links
    for src, dst in ((a, b) for a in gpus for b in gpus if a < b):
        count = draw(st.integers(0, 4))
        if count:
            links += both_ways(src, dst, gb_per_s=count * per_link, lanes=count)
    return links


def _with_nvswitch(machine: Topology) -> Topology:
    if all(link.dst != "switch" for link in machine.links):
        return machine
    switch = Device("switch", DeviceKind.NVSWITCH, 0)
    return replace(machine, devices=(*machine.devices, switch))


def _without_empty_switches(machine: Topology) -> Topology:
    """Remove switches with nothing below, which NCCL's dumps leave out as well."""
    while True:
        ends = [link.dst for link in machine.links]
        bare = {
            device.name
            for device in machine.devices
            if device.kind is DeviceKind.PCIE_SWITCH and ends.count(device.name) == 1
        }
        if not bare:
            return machine
        machine = replace(
            machine,
            devices=tuple(device for device in machine.devices if device.name not in bare),
            links=tuple(link for link in machine.links if not {link.src, link.dst} & bare),
        )


@pytest.mark.long
@given(machines())
def test_any_small_machine_keeps_its_fingerprint(machine: Topology) -> None:
    _round_trip(machine)
    assert not any("ead back" in loss for loss in export_losses(machine))


def test_direct_links_between_switches_and_links_to_the_cpu_are_written() -> None:
    switches = [Device(f"s{i}", DeviceKind.PCIE_SWITCH, 0, i) for i in range(2)]
    links = [
        *both_ways("s0", "cpu", LinkKind.PCIE, 24.0, lanes=16),
        *both_ways("s1", "cpu", LinkKind.PCIE, 48.0, lanes=16),
        *both_ways("n0/gpu0", "s0", LinkKind.PCIE, 24.0, lanes=16),
        *both_ways("n0/gpu1", "s1", LinkKind.PCIE, 24.0, lanes=16),
        *both_ways("n0/gpu1", "cpu", LinkKind.C2C, 447.06, lanes=10),
        *both_ways("n0/gpu0", "cpu", LinkKind.NVLINK, 75.0, lanes=3),
        *(
            replace(link, provenance=Provenance.ASSUMED)
            for link in both_ways("s0", "s1", LinkKind.PCIE, 48.0, lanes=16)
        ),
    ]
    cpu = Device("cpu", DeviceKind.CPU, 0)
    text = _round_trip(Topology("direct", (gpu(0), gpu(1), cpu, *switches), tuple(links)))
    assert '<c2c bw="44706" count="10" />' in text
    assert 'tclass="0x068001" count="3" />' in text
    assert text.count("<pcilink ") == 1


def test_ports_of_one_card_stand_in_one_element() -> None:
    machine = parse_nccl_xml(
        """<system version="1"><cpu numaid="0">
        <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
          <gpu dev="0" sm="80"/></pci>
        <pci busid="0000:02:00.0" class="0x020000" vendor="0x15b3" device="0x101d"
             link_speed="16.0 GT/s PCIe" link_width="16">
          <nic><net name="mlx5_0" dev="0" speed="100000"/>
               <net name="mlx5_1" dev="1" speed="100000"/></nic></pci>
        </cpu></system>""",
        "card",
    )
    assert len(machine.nics) == 2
    text = _round_trip(machine)
    assert text.count("<pci ") == 2
    assert text.count('speed="100000"') == 2


@pytest.mark.parametrize(
    ("read", "written"), [("gfx942", "gfx942"), ("942", "gfx942"), ("910", "gfx90a")]
)
@pytest.mark.parametrize("vendor", ['vendor="0x1002" device="0x74a1"', ""])
def test_amds_architecture_is_written_by_name(read: str, written: str, vendor: str) -> None:
    text = f"""<system version="2"><cpu numaid="0">
        <pci busid="0000:01:00.0" class="0x120000" {vendor} link_width="16">
          <gpu dev="0" sm="304" gcn="{read}" arch="38911" rank="0">
            <xgmi target="0000:02:00.0" count="1" tclass="0x120000"/></gpu></pci>
        <pci busid="0000:02:00.0" class="0x120000" {vendor} link_width="16">
          <gpu dev="1" sm="304" gcn="{read}" arch="38911" rank="1">
            <xgmi target="0000:01:00.0" count="1" tclass="0x120000"/></gpu></pci>
        </cpu></system>"""
    written_again = _round_trip(parse_nccl_xml(text, "amd"))
    assert written_again.count(f'gcn="{written}"') == 2
    assert ' sm="' not in written_again
    assert '<system version="2">' in written_again


def test_hosts_without_a_network_are_identified_by_hash_and_a_network_is_refused() -> None:
    cluster = replicate(shipped(), 3, Network(1.7))
    with pytest.raises(MachineError, match="no place for the network; export one of its 3 hosts"):
        topology_to_nccl_xml(cluster)
    apart = replace(
        cluster,
        devices=tuple(device for device in cluster.devices if device.node >= 0),
        links=tuple(link for link in cluster.links if link.kind is not LinkKind.NETWORK),
    )
    with pytest.raises(MachineError, match="NCCL would read the NVSwitches of its 3 nodes as one"):
        topology_to_nccl_xml(apart)
    text = _round_trip(joined(apart, [[0, 1, 2]]))
    assert text.count('host_hash="0x0000000000000003"') == 2
    assert text.count('rank="23"') == 1
    assert split_hosts(cluster)[2].fingerprint() == shipped().fingerprint()
    _round_trip(split_hosts(cluster)[2])


def test_what_cannot_be_written_is_refused() -> None:
    bare = replace(ring([0, 1]), links=tuple(both_ways("n0/gpu0", "n0/gpu1")))
    with pytest.raises(MachineError, match=r"'n0/gpu0' hangs on no CPU"):
        topology_to_nccl_xml(bare)
    with pytest.raises(MachineError, match="has no GPU"):
        topology_to_nccl_xml(Topology("empty", (Device("cpu", DeviceKind.CPU, 0),), ()))


def test_a_link_that_the_file_cannot_represent_is_named_as_read_back() -> None:
    machine = shipped("h200-4gpu")
    slow = replace(machine.links[0], bandwidth_gb_per_s=100.0)
    losses = export_losses(replace(machine, links=(slow, *machine.links[1:])))
    assert losses == (
        "Read back: NVLink n0/gpu0 -> n0/nvswitch0 is faster: 450 GB/s, it did 100 (450%).",
    )
