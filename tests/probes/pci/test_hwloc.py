from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.nccl_xml.records import GpuLinkRecord
from probes.pci.hwloc import hwloc_gpu_records, parse_hwloc_xml
from probes.pci.inventory import CpuModel, NumaNode, PcieLink, PciInventory
from probes.pci.relation import Relation, relation
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError

FILES = SHARED_DATA / "pci_sysfs/hwloc_xml"
GOLDEN = Path(__file__).parents[1] / "golden" / "hwloc_xml.txt"

GPU = (
    '<object type="PCIDev" gp_index="{index}" pci_busid="{bus}" '
    'pci_type="0302 [10de:20b2] [10de:1463] a1" pci_link_speed="{speed}">{inside}</object>'
)
MACHINE = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f" nodeset="0x00000107">
  <info name="HostName" value="node7"/>
  <info name="Architecture" value="x86_64"/>
  <object type="Package" os_index="0" cpuset="0x00000003" nodeset="0x00000001">
   <info name="CPUVendor" value="AuthenticAMD"/>
   <info name="CPUFamilyNumber" value="25"/>
   <info name="CPUModelNumber" value="1"/>
   <object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x00000001"/>
   <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[15-1a]">
    <object type="Bridge" bridge_type="1-1" pci_busid="0000:15:01.0"
            pci_type="0604 [8086:352a] [0000:0000] 04" pci_link_speed="31.507692">
     <object type="Bridge" bridge_type="1-1" pci_busid="0000:16:00.0"
             pci_type="0604 [1000:c030] [0000:0000] b0" pci_link_speed="31.507692">
      <object type="Bridge" bridge_type="1-1" pci_busid="0000:17:00.0"
              pci_type="0604 [1000:c030] [0000:0000] b0" pci_link_speed="15.753846">
       {gpu}
      </object>
      <object type="Bridge" bridge_type="1-1" pci_busid="0000:17:01.0"
              pci_type="0604 [1000:c030] [0000:0000] b0" pci_link_speed="31.507692">
       <object type="PCIDev" pci_busid="0000:19:00.0"
               pci_type="0207 [15b3:101b] [15b3:0007] 00" pci_link_speed="31.507692">
        <object type="OSDev" name="ib0" osdev_type="2">
         <info name="Address" value="{ipoib}"/>
         <info name="Port" value="1"/>
        </object>
        <object type="OSDev" name="eth9" osdev_type="2">
         <info name="Address" value="02:00:00:00:00:01"/>
         <info name="Port" value="2"/>
        </object>
        <object type="OSDev" name="mlx5_0" osdev_type="3">
         <info name="Port1State" value="4"/>
         <info name="Port2State" value="1"/>
        </object>
       </object>
      </object>
     </object>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x0000000c" nodeset="0x00000104">
   <object type="NUMANode" os_index="2" cpuset="0x0000000c" nodeset="0x00000004"/>
   <object type="NUMANode" os_index="8" cpuset="0x00000000" nodeset="0x00000100"/>
   <object type="Bridge" bridge_type="0-1" bridge_pci="0001:[80-81]">
    <object type="PCIDev" pci_busid="0001:80:02.0"
            pci_type="0200 [8086:1521] [0000:0000] 01" pci_link_speed="0.000000">
     <object type="OSDev" name="eno1" osdev_type="2"/>
    </object>
   </object>
  </object>
 </object>
</topology>
""".format(
    gpu=GPU.format(index=1, bus="0000:18:00.0", speed="31.507692", inside=""),
    ipoib=":".join(["80"] * 20),
)


def read(text: str = MACHINE) -> PciInventory:
    return parse_hwloc_xml(text, "mail")


def sentences(inventory: PciInventory) -> str:
    return "\n".join(gap.sentence() for gap in inventory.gaps)


def linked(speed: str, above: str = "0.000000") -> PciInventory:
    """One GPU below one bridge."""
    inside = GPU.format(index=1, bus="0000:01:00.0", speed=speed, inside="")
    return read(
        '<topology><object type="Machine"><object type="Bridge" bridge_type="0-1" '
        'bridge_pci="0000:[00-01]"><object type="Bridge" bridge_type="1-1" '
        f'pci_busid="0000:00:01.0" pci_type="0604 [8086:1] [0:0] 0" pci_link_speed="{above}">'
        f"{inside}</object></object></object></topology>"
    )


def test_the_tree_is_that_of_the_objects() -> None:
    inventory = read()
    assert [(f.address, f.parent, f.root) for f in inventory.functions] == [
        ("0000:15:01.0", None, "pci0000:15"),
        ("0000:16:00.0", "0000:15:01.0", "pci0000:15"),
        ("0000:17:00.0", "0000:16:00.0", "pci0000:15"),
        ("0000:17:01.0", "0000:16:00.0", "pci0000:15"),
        ("0000:18:00.0", "0000:17:00.0", "pci0000:15"),
        ("0000:19:00.0", "0000:17:01.0", "pci0000:15"),
        ("0001:80:02.0", None, "pci0001:80"),
    ]
    assert relation(inventory, "0000:18:00.0", "0000:19:00.0") is Relation.SWITCH
    assert relation(inventory, "0000:18:00.0", "0001:80:02.0") is Relation.SYSTEM
    gpu = inventory.by_address["0000:18:00.0"]
    assert (gpu.class_code, gpu.vendor, gpu.device) == (0x030200, 0x10DE, 0x20B2)


def test_numa_nodes_are_those_with_cpus_and_know_their_package() -> None:
    inventory = read()
    assert inventory.numa_nodes == (NumaNode(0, 0), NumaNode(2, 1))
    assert inventory.by_address["0000:18:00.0"].numa_node == 0
    assert inventory.by_address["0001:80:02.0"].numa_node == 2
    assert inventory.cpu == CpuModel("x86_64", "AuthenticAMD", 25, 1)
    assert inventory.hostname == "node7"


def test_ports_are_those_of_the_rdma_device_with_their_interfaces() -> None:
    first, second, plain = read().ports
    assert (first.name, first.rdma_port, first.interface, first.link_layer) == (
        "mlx5_0",
        1,
        "ib0",
        "InfiniBand",
    )
    assert (first.active, first.state) == (True, "ACTIVE")
    assert (second.rdma_port, second.interface, second.link_layer) == (2, "eth9", "Ethernet")
    assert (second.active, second.state) == (False, "DOWN")
    assert (plain.name, plain.rdma_device, plain.function) == ("eno1", "", "0001:80:02.0")
    assert {port.speed_gbit_per_s for port in read().ports} == {None}


def test_hwloc_3_has_kinds_of_devices_as_bits() -> None:
    text = MACHINE.replace('version="2.0"', 'version="3.0"')
    text = text.replace('osdev_type="2"', 'osdev_type="16"')
    text = text.replace('osdev_type="3"', 'osdev_type="48"')
    assert read(text).ports == read().ports


@pytest.mark.parametrize(
    ("speed", "above", "expected"),
    [
        ("15.753846", "0.000000", PcieLink(8.0, 16)),  # gen 4 x8 does the same
        ("31.507692", "31.507692", PcieLink(16.0, 16)),
        ("63.015385", "31.507692", PcieLink(16.0, 16)),
        ("15.753846", "1.969231", PcieLink(8.0, 2)),
        ("4.000000", "0.000000", PcieLink(2.5, 16)),
        ("0.000000", "31.507692", None),
        ("0.133000", "0.000000", None),  # conventional PCI
        ("nan", "0.000000", None),
        ("-4", "0.000000", None),
    ],
)
def test_a_link_is_the_widest_of_the_stated_bandwidth(
    speed: str, above: str, expected: PcieLink | None
) -> None:
    assert linked(speed, above).by_address["0000:01:00.0"].link == expected


def test_ambiguous_links_are_noted() -> None:
    assert "taken as the widest link" in sentences(linked("15.753846"))
    assert "speeds that no PCIe link has, left out: '0000:01:00.0'" in sentences(linked("0.133000"))
    assert "no PCIe link speeds" in sentences(linked("0.000000"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"0000:[15-1a]"', '"15"'),
        ('"0000:18:00.0"', '"18:00"'),
        ('"0000:17:01.0"', '"0000:17:00.0"'),
        ("</topology>", ""),
        ("topology", "system"),
    ],
)
def test_damaged_exports_are_refused(old: str, new: str) -> None:
    with pytest.raises(MachineError):
        read(MACHINE.replace(old, new))


def test_a_document_type_with_declarations_is_refused() -> None:
    text = '<!DOCTYPE topology [<!ENTITY a "aaaa">]><topology/>'
    with pytest.raises(MachineError, match="document type"):
        read(text)


def test_a_device_listed_twice_counts_once_and_is_noted() -> None:
    text = MACHINE.replace("0000:19:00.0", "0000:18:00.0")
    inventory = read(text)
    assert inventory.by_address["0000:18:00.0"].vendor == 0x10DE
    assert "listed twice, taken as listed first: '0000:18:00.0'" in sentences(inventory)


@given(st.integers(0, len(MACHINE) - 12))
def test_a_cut_export_is_refused(end: int) -> None:
    with pytest.raises(MachineError):
        read(MACHINE[:end])


def nvlinked(values: str, indexes: str = "OSDev:11 OSDev:21 PCIDev:3") -> str:
    """Two GPUs and an NVSwitch."""
    gpus = "".join(
        GPU.format(
            index=i,
            bus=f"0000:0{i}:00.0",
            speed="0",
            inside=f'<object type="OSDev" gp_index="{i}1" name="nvml{2 - i}" osdev_type="1"/>',
        )
        for i in (1, 2)
    )
    switch = (
        '<object type="PCIDev" gp_index="3" subtype="NVSwitch" pci_busid="0000:03:00.0" '
        'pci_type="0000 [0000:0000] [0000:0000] 00"/>'
    )
    return (
        f'<topology><object type="Machine">{gpus}{switch}</object><distances2hetero nbobjs="3" '
        f'name="NVLinkBandwidth"><indexes>{indexes}</indexes><u64values>{values}</u64values>'
        "</distances2hetero></topology>"
    )


def test_nvlinks_are_counted_from_bandwidths() -> None:
    records = hwloc_gpu_records(nvlinked("1000000 50000 25000 50000 1000000 0 25000 0 0"), "mail")
    assert list(records) == ["0000:01:00.0", "0000:02:00.0"]
    assert [record.dev for record in records.values()] == [1, 0]
    assert records["0000:01:00.0"].links == (
        GpuLinkRecord("nvlink", "0000:02:00.0", "030200", 2, 0),
        GpuLinkRecord("nvlink", "0000:03:00.0", "068000", 1, 0),
    )
    assert records["0000:02:00.0"].links == (
        GpuLinkRecord("nvlink", "0000:01:00.0", "030200", 2, 0),
    )


def test_an_export_without_nvlinks_has_no_records_and_a_damaged_one_is_refused() -> None:
    assert hwloc_gpu_records(MACHINE, "mail") == {}
    with pytest.raises(MachineError, match="3 objects and 2 figures"):
        hwloc_gpu_records(nvlinked("0 25000"), "mail")


def test_a_switch_that_hides_its_class_is_still_a_switch() -> None:
    inventory = read(nvlinked("0 0 0 0 0 0 0 0 0"))
    assert inventory.by_address["0000:03:00.0"].class_code == 0x068000
    assert "devices that hide vendor and class: '0000:03:00.0'" in sentences(inventory)


def _summary(path: Path) -> str:
    text = path.read_text("utf-8")
    inventory = parse_hwloc_xml(text, path.name)
    gpus = [
        f.address
        for f in inventory.functions
        if (f.class_code or 0) >> 16 == 0x03 and f.vendor in (0x10DE, 0x1002)
    ]
    bridges = (f for f in inventory.functions if (f.class_code or 0) >> 8 == 0x0604)
    switches = Counter(bridge.parent for bridge in bridges if bridge.parent)
    ports = [port.function for port in inventory.ports if port.function]
    pairs = [
        f"{gpu}-{port}"
        for gpu in gpus
        for port in dict.fromkeys(ports)
        if relation(inventory, gpu, port) <= Relation.SWITCHES
    ]
    links = [record.links for record in hwloc_gpu_records(text, path.name).values() if record.links]
    return (
        f"{path.stem}: {len(inventory.functions)} functions, {len(gpus)} GPUs, {len(ports)} ports, "
        f"{sum(count > 1 for count in switches.values())} switches, "
        f"{len(inventory.numa_nodes)} NUMA nodes, {len(inventory.gaps)} gaps, "
        f"{sum(link.count for own in links for link in own)} NVLink ends; "
        f"on one switch: {' '.join(pairs) or 'none'}"
    )


@requires_shared_data
def test_real_exports_are_those_of_the_golden_file() -> None:
    found = [_summary(path) for path in sorted(FILES.glob("*.xml"))]
    assert found == GOLDEN.read_text("utf-8").splitlines()
