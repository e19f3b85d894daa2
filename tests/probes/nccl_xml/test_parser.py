import random

import pytest
from hypothesis import assume, given
from hypothesis.strategies import from_regex, integers, sampled_from

from probes.inputs import xml_tree
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.topology.graph import DeviceKind, Link, LinkKind, Provenance, Topology
from probes.topology.paths import Proximity, pcie_distance
from probes.topology.validation import check_structure, validate
from tests.probes.machines import shipped, shipped_text
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import InvalidTopologyError, MachineError

GPU_CLASS, NIC_CLASS, BRIDGE = "0x030200", "0x020000", "0x060400"


def _pci(bus: int, pci_class: str, inside: str = "", attributes: str = "") -> str:
    attributes = attributes or 'link_speed="16.0 GT/s PCIe" link_width="16"'
    return f'<pci busid="0000:{bus:02x}:00.0" class="{pci_class}" {attributes}>{inside}</pci>'


def _gpu(bus: int, dev: int, links: str = "", attributes: str = "", sm: int = 80) -> str:
    inside = f'<gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="1">{links}</gpu>'
    return _pci(bus, GPU_CLASS, inside, attributes)


def _nvlink(bus: int, count: int, tag: str = "nvlink") -> str:
    return f'<{tag} target="0000:{bus:02x}:00.0" count="{count}" tclass="{GPU_CLASS}"/>'


def _nic(*nets: str) -> str:
    return "<nic>" + "".join(nets) + "</nic>"


def _net(name: str, dev: int, speed: str = "100000") -> str:
    return f'<net name="{name}" dev="{dev}" speed="{speed}" port="1"/>'


def _cpu(*inside: str, numa: int = 0, attributes: str = "") -> str:
    attributes = attributes or 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"'
    return f'<cpu numaid="{numa}" {attributes}>' + "".join(inside) + "</cpu>"


def _parse(*cpus: str, source: str = "dir/machine.xml") -> Topology:
    return parse_nccl_xml('<system version="1">' + "".join(cpus) + "</system>", source)


def _link(topology: Topology, src: str, dst: str) -> Link:
    (link,) = topology.links_between[f"n0/{src}", f"n0/{dst}"]
    return link


def _names(topology: Topology, kind: DeviceKind) -> list[str]:
    return [device.name for device in topology.devices if device.kind is kind]


def test_the_shipped_machine_in_full() -> None:
    machine = shipped()
    validate(machine)
    assert machine.name == "a100-8gpu-8nic"
    assert machine.notes == ()
    assert [len(_names(machine, kind)) for kind in DeviceKind] == [8, 8, 4, 2, 1, 0]
    gpu = machine.device["n0/gpu3"]
    assert (gpu.model, gpu.bus_id, gpu.compute_capability) == ("10de:20b2", "0000:33:00.0", 80)
    nic = machine.device["n0/nic5"]
    assert (nic.os_name, nic.line_rate_gb_per_s) == ("mlx5_5", 25.0)
    nvlink = _link(machine, "gpu3", "nvswitch0")
    assert (nvlink.bandwidth_gb_per_s, nvlink.lanes, nvlink.latency_us) == (300.0, 12, 0.35)
    assert nvlink.provenance is Provenance.SPEC
    pcie = _link(machine, "gpu3", "pcie1")
    assert (pcie.bandwidth_gb_per_s, pcie.lanes, pcie.provenance) == (24.0, 16, "sysfs")
    assert _link(machine, "cpu0", "cpu1").bandwidth_gb_per_s == 16.0


def test_unequal_nvlinks_are_kept_and_noted() -> None:
    machine = _parse(_cpu(_gpu(1, 0, _nvlink(2, 1)), _gpu(2, 1, _nvlink(1, 12))))
    assert _link(machine, "gpu0", "gpu1").bandwidth_gb_per_s == 25.0
    assert _link(machine, "gpu1", "gpu0").bandwidth_gb_per_s == 300.0
    (note,) = machine.notes
    assert "n0/gpu1 states 12 nvlink links to n0/gpu0, which states 1 back" in note


def test_nvlink_that_leads_to_itself_or_out_of_the_file_is_left_out() -> None:
    machine = _parse(_cpu(_gpu(1, 0, _nvlink(1, 12)), _gpu(2, 1, _nvlink(9, 4))))
    assert all(link.kind is not LinkKind.NVLINK for link in machine.links)
    assert "'n0/gpu0' lead to the GPU itself" in machine.notes[0]
    assert "n0/gpu1 -> 0000:09:00.0" in machine.notes[1]


def test_four_switches_are_one_with_the_sum_of_the_links() -> None:
    switches = "".join(
        f'<nvlink target="0000:0{i}:00.0" count="{count}" tclass="0x068000"/>'
        for i, count in enumerate((5, 5, 4, 4))
    )
    machine = _parse(_cpu(_gpu(0x10, 0, switches, sm=90), _gpu(0x20, 1, switches, sm=90)))
    assert _names(machine, DeviceKind.NVSWITCH) == ["n0/nvswitch0"]
    assert _link(machine, "gpu0", "nvswitch0").lanes == 18
    assert _link(machine, "gpu0", "nvswitch0").bandwidth_gb_per_s == 450.0
    assert machine.notes == ()


def test_gpus_on_different_switches_are_noted() -> None:
    def to(switch: int) -> str:
        return f'<nvlink target="0000:0{switch}:00.0" count="6" tclass="0x068000"/>'

    machine = _parse(_cpu(_gpu(0x10, 0, to(1)), _gpu(0x20, 1, to(2))))
    assert "different NVSwitches" in machine.notes[0]


def _amd(gcn: str, vendor: str = 'vendor="0x1002" device="0x74a1"') -> Topology:
    """Two GPUs with an xGMI link each way, in RCCL's form, with the given attributes."""

    def gpu(bus: int, dev: int, peer: int) -> str:
        inside = (
            f'<gpu dev="{dev}" {gcn} arch="38911" rank="{dev}" gdr="1">'
            f"{_nvlink(peer, 1, 'xgmi')}</gpu>"
        )
        return _pci(bus, "0x120000", inside, vendor)

    return parse_nccl_xml(f'<system version="2">{_cpu(gpu(1, 0, 2), gpu(2, 1, 1))}</system>', "amd")


@pytest.mark.parametrize(
    ("attributes", "number", "gb_per_s"),
    [
        ('sm="304" gcn="gfx942"', 942, 48.0),
        ('sm="304" gcn="942"', 942, 48.0),
        ('sm="228" gcn="940"', 940, 48.0),
        ('sm="256" gcn="gfx950"', 950, 48.0),
        ('sm="104" gcn="gfx90a"', 910, 36.0),
        ('sm="104" gcn="gfx90a:sramecc+:xnack-"', 910, 36.0),
        ('sm="104" gcn="910"', 910, 36.0),
        ('sm="120" gcn="gfx908"', 908, 24.0),
        ('sm="120" gcn="908"', 908, 24.0),
        ('sm="906"', 906, 24.0),
    ],
)
def test_amds_architecture_by_name_and_by_number(
    attributes: str, number: int, gb_per_s: float
) -> None:
    for vendor in ('vendor="0x1002" device="0x74a1"', 'link_width="16"'):
        machine = _amd(attributes, vendor)
        assert [gpu.compute_capability for gpu in machine.gpus] == [number, number]
        link = _link(machine, "gpu0", "gpu1")
        assert (link.bandwidth_gb_per_s, link.provenance) == (gb_per_s, Provenance.SPEC)


def test_the_number_of_amds_compute_units_is_no_capability() -> None:
    assert _amd('sm="304"').gpus[0].compute_capability == 0


def test_c2c_leads_to_the_cpu() -> None:
    machine = _parse(_cpu(_gpu(1, 0, '<c2c bw="44712" count="10"/>', sm=90)))
    link = machine.links_between["n0/gpu0", "n0/cpu0"][0]
    assert (link.kind, link.bandwidth_gb_per_s) == (LinkKind.C2C, 447.12)
    assert machine.links_between["n0/cpu0", "n0/gpu0"][0].kind is LinkKind.C2C


def test_power9_nvlink_to_the_cpu() -> None:
    to_cpu = '<nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>'
    machine = _parse(_cpu(_gpu(1, 0, to_cpu, sm=70), attributes='arch="ppc64"'))
    kinds = {link.kind for link in machine.links_between["n0/gpu0", "n0/cpu0"]}
    assert kinds == {LinkKind.NVLINK, LinkKind.PCIE}


def test_ranks_order_gpus_else_devices() -> None:
    by_rank = _parse(
        _cpu(
            _pci(1, GPU_CLASS, '<gpu dev="0" sm="80" rank="1"/>'),
            _pci(2, GPU_CLASS, '<gpu dev="3" sm="80" rank="0"/>'),
        )
    )
    assert [gpu.bus_id for gpu in by_rank.gpus] == ["0000:02:00.0", "0000:01:00.0"]
    by_device = _parse(
        _cpu(_pci(1, GPU_CLASS, '<gpu dev="7"/>'), _pci(2, GPU_CLASS, '<gpu dev="4"/>'))
    )
    assert [gpu.bus_id for gpu in by_device.gpus] == ["0000:02:00.0", "0000:01:00.0"]


def test_two_ports_share_the_link_of_their_card() -> None:
    card = _pci(3, NIC_CLASS, _nic(_net("mlx5_0", 0), _net("mlx5_1", 1)))
    machine = _parse(_cpu(_gpu(1, 0), _gpu(2, 1), card))
    assert [nic.os_name for nic in machine.nics] == ["mlx5_0", "mlx5_1"]
    assert {link.dst for nic in machine.nics for link in machine.links_from[nic.name]} == {
        "n0/pcie0"
    }
    assert _link(machine, "pcie0", "cpu0").provenance is Provenance.SYSFS
    assert _link(machine, "nic1", "pcie0").provenance is Provenance.ASSUMED
    assert pcie_distance(machine, "n0/gpu0", "n0/nic1") is Proximity.HOST_BRIDGE


def test_nics_count_in_nccls_order() -> None:
    machine = _parse(
        _cpu(
            _gpu(1, 0),
            _pci(3, NIC_CLASS, _nic(_net("mlx5_7", 1))),
            _pci(4, NIC_CLASS, _nic(_net("mlx5_2", 0))),
        )
    )
    assert [nic.os_name for nic in machine.nics] == ["mlx5_2", "mlx5_7"]


def test_a_nic_straight_under_the_cpu() -> None:
    machine = _parse(_cpu(_gpu(1, 0), _gpu(2, 1), _nic(_net("eth0", 0, "10000"))))
    link = _link(machine, "nic0", "cpu0")
    assert (link.kind, link.bandwidth_gb_per_s, link.provenance) == ("pcie", 1.25, "assumed")


def test_pseudo_nics_are_left_out_with_one_note() -> None:
    pseudo = ["docker0", "veth12ab", "cali77", "br-702d", "tunl0", "virbr0", "bond0", "lo"]
    nets = [_net(name, dev) for dev, name in enumerate(pseudo)]
    machine = _parse(_cpu(_gpu(1, 0), _nic(*nets)), _cpu(_gpu(2, 1), _nic(*nets), numa=1))
    assert machine.nics == ()
    (note,) = machine.notes
    assert "left out (8): 'bond0', 'br-702d', 'cali77', 'docker0' and 4 more" in note


def test_an_interface_under_several_cpus_counts_once() -> None:
    net = _nic(_net("eth0", 0))
    machine = _parse(_cpu(_gpu(1, 0), net), _cpu(_gpu(2, 1), net, numa=1))
    assert [nic.name for nic in machine.nics] == ["n0/nic0"]
    assert "several CPUs" in machine.notes[0]


def test_an_interface_with_a_pci_device_is_a_port_whatever_its_name() -> None:
    machine = _parse(_cpu(_gpu(1, 0), _pci(3, NIC_CLASS, _nic(_net("bond0", 0)))))
    assert machine.nics[0].os_name == "bond0"


@pytest.mark.parametrize(
    ("speed", "gb_per_s", "noted"),
    [
        ("200000", 25.0, ""),
        ("0", 1.25, "do not state their speed"),
        ("-1", 1.25, "do not state their speed"),
        ("", 1.25, "do not state their speed"),
        ("200000000", 25.0, "taken as kb/s"),
    ],
)
def test_speeds_of_ports(speed: str, gb_per_s: float, noted: str) -> None:
    machine = _parse(_cpu(_gpu(1, 0), _pci(3, NIC_CLASS, _nic(_net("a", 0, speed)))))
    assert machine.nics[0].line_rate_gb_per_s == gb_per_s
    assert noted in " ".join(machine.notes)
    assert bool(noted) == bool(machine.notes)


@pytest.mark.parametrize(
    ("attributes", "gb_per_s", "lanes"),
    [
        ('link_speed="8 GT/s" link_width="8"', 6.0, 8),
        ('link_speed="32.0 GT/s PCIe" link_width="16"', 48.0, 16),
        ('link_speed="" link_width="0"', 12.0, 16),
        ('link_speed="32.0 GT/s PCIe" link_width="0"', 48.0, 16),
        ('link_speed="Unknown" link_width="4"', 3.0, 4),
        ('id="1"', 12.0, 16),
    ],
)
def test_pcie_speeds(attributes: str, gb_per_s: float, lanes: int) -> None:
    machine = _parse(_cpu(_gpu(1, 0, attributes=attributes)))
    link = _link(machine, "gpu0", "cpu0")
    assert (link.bandwidth_gb_per_s, link.lanes) == (gb_per_s, lanes)
    is_stated = "GT" in attributes and 'width="0"' not in attributes
    assert link.provenance is (Provenance.SYSFS if is_stated else Provenance.ASSUMED)
    assert bool(machine.notes) is not is_stated


def test_an_emulated_bridge_is_as_fast_as_what_works_below_it() -> None:
    slow = 'link_speed="2.5 GT/s PCIe" link_width="1"'
    machine = _parse(_cpu(_pci(5, BRIDGE, _gpu(1, 0) + _gpu(2, 1), slow)))
    link = _link(machine, "pcie0", "cpu0")
    assert (link.bandwidth_gb_per_s, link.provenance) == (24.0, Provenance.ASSUMED)
    assert "'0000:05:00.0'" in machine.notes[0]
    nested = _parse(_cpu(_pci(5, BRIDGE, _pci(6, BRIDGE, _gpu(1, 0), slow), slow)))
    assert _link(nested, "pcie0", "cpu0").bandwidth_gb_per_s == 24.0
    # An old bridge above old devices is believed, and so is an endpoint.
    gen2 = 'link_speed="5.0 GT/s PCIe" link_width="1"'
    old = _parse(
        _cpu(_gpu(1, 0), _pci(5, BRIDGE, _pci(3, NIC_CLASS, _nic(_net("a", 0)), gen2), slow))
    )
    assert _link(old, "pcie0", "cpu0").bandwidth_gb_per_s == 0.1875
    believed = _parse(_cpu(_gpu(1, 0), _pci(3, NIC_CLASS, _nic(_net("a", 0)), slow)))
    assert _link(believed, "nic0", "cpu0").bandwidth_gb_per_s == 0.1875


def test_empty_bridges_and_nvswitch_functions_are_dropped() -> None:
    machine = _parse(_cpu(_gpu(1, 0), _pci(5, BRIDGE, _pci(6, "0x068000")), _pci(7, "0x010802")))
    assert _names(machine, DeviceKind.PCIE_SWITCH) == []


@pytest.mark.parametrize("form", ["0x30200", "30200", "0x030200", "0X030200", "0x0302", "030200"])
def test_a_class_is_a_number_however_it_is_padded(form: str) -> None:
    machine = _parse(_cpu(_pci(1, form), _pci(2, form), _pci(3, "0x20000")))
    assert (len(machine.gpus), len(machine.nics)) == (2, 1)
    assert not [note for note in machine.notes if "readable class" in note]


def test_devices_without_class_and_content_are_noted() -> None:
    unclear = [_pci(7, "banana"), _pci(8, "0x1030200"), '<pci busid="0000:09:00.0"/>']
    machine = _parse(_cpu(_gpu(1, 0), *unclear, _pci(6, "0x60400")))
    (note,) = machine.notes
    assert "readable class nor content and were left out: '0000:07:00.0', '0000:08:" in note
    assert "'0000:09:00.0'." in note


@pytest.mark.parametrize(
    ("ids", "model", "noted"),
    [
        ('vendor="0x10de" device="0x20b2"', "10de:20b2", False),
        ('vendor="0x10DE" device="0xabc"', "10de:0abc", False),
        ('vendor="4318" device="1"', "4318:0001", False),
        ('vendor="0x10de" device="H200"', "", True),
        ('vendor="0x10de20b2" device="0x20b2"', "", True),
        ('vendor="0xffff" device="0xffff"', "", False),
        ('vendor="0x10de"', "", False),
    ],
)
def test_models_are_pci_ids_or_unknown(ids: str, model: str, noted: bool) -> None:
    attributes = f'{ids} link_speed="16.0 GT/s PCIe" link_width="16"'
    machine = _parse(_cpu(_gpu(1, 0, attributes=attributes), _gpu(2, 1, attributes=attributes)))
    assert [gpu.model for gpu in machine.gpus] == [model] * 2
    assert bool(machine.notes) is noted
    assert not noted or "model unknown: '0000:01:00.0', '0000:02:" in machine.notes[0]


def test_the_name_of_the_file_becomes_a_name_of_one_line() -> None:
    machine = _parse(_cpu(_gpu(1, 0)), source=f"dir/two\nlines{'x' * 300}.xml")
    assert machine.name == "two?lines" + "x" * 247


def test_a_gpu_behind_a_nic_shares_its_uplink() -> None:
    machine = _parse(_cpu(_pci(3, NIC_CLASS, _nic(_net("a", 0)) + _gpu(1, 0))))
    assert pcie_distance(machine, "n0/gpu0", "n0/nic0") is Proximity.SWITCH


def test_switches_linked_to_each_other() -> None:
    a = _pci(5, BRIDGE, _gpu(1, 0) + '<pcilink target="0000:06:00.0"/>')
    b = _pci(6, BRIDGE, _gpu(2, 1) + '<pcilink target="0000:05:00.0"/>')
    machine = _parse(_cpu(a, b))
    assert _link(machine, "pcie0", "pcie1").bandwidth_gb_per_s == 24.0
    assert "between PCIe switches" in machine.notes[0]


def test_several_hosts_in_one_file() -> None:
    machine = _parse(
        _cpu(_gpu(1, 0), attributes='host_hash="0xa"'),
        _cpu(_gpu(1, 0), attributes='host_hash="0xb"'),
    )
    assert [gpu.name for gpu in machine.gpus] == ["n0/gpu0", "n1/gpu0"]
    assert all(link.kind is not LinkKind.UPI for link in machine.links)


def test_several_hosts_at_an_nvswitch_are_one_domain() -> None:
    """As NCCL writes the trays of an NVL72: it fused them before (`comm->MNNVL`)."""
    to_switch = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'
    machine = _parse(
        *(
            _cpu(_gpu(1, 0, to_switch), _gpu(2, 1, to_switch), attributes=f'host_hash="{host}"')
            for host in ("0xa", "0xb")
        )
    )
    assert (machine.node_count, machine.host_count) == (1, 2)
    assert [gpu.name for gpu in machine.gpus] == [f"n0/gpu{rank}" for rank in range(4)]
    assert len(machine.links_from["n0/nvswitch0"]) == 4
    assert machine.notes[-1].startswith("The file has 2 hosts with NVSwitches: taken as one NVLink")
    validate(machine)


@requires_shared_data
def test_two_trays_of_an_nvl72() -> None:
    path = SHARED_DATA / "public_cases" / "nccl-mnnvl-two-trays.xml"
    machine = parse_nccl_xml(path.read_text(encoding="utf-8"), str(path))
    validate(machine)
    assert (machine.node_count, machine.host_count, len(machine.nics)) == (1, 2, 8)
    links = machine.links_from["n0/nvswitch0"]
    assert [(link.bandwidth_gb_per_s, link.lanes) for link in links] == [(900.0, 18)] * 8
    assert parse_nccl_xml(topology_to_nccl_xml(machine), str(path)).fingerprint() == (
        machine.fingerprint()
    )


def test_a_cpu_without_host_hash_belongs_to_the_only_host() -> None:
    with_hash, without_hash = 'host_hash="0xa"', 'arch="x86_64"'
    for first, second in ((with_hash, without_hash), (without_hash, with_hash)):
        machine = _parse(_cpu(_gpu(1, 0), attributes=first), _cpu(_gpu(2, 1), attributes=second))
        assert [gpu.name for gpu in machine.gpus] == ["n0/gpu0", "n0/gpu1"]
        assert machine.notes == (
            "<cpu> elements without host_hash (1): taken as of the one host that has.",
        )
    neither = _parse(
        _cpu(_gpu(1, 0), attributes=without_hash), _cpu(_gpu(2, 1), attributes=without_hash)
    )
    assert (neither.node_count, neither.notes) == (1, ())
    hosts = [
        _cpu(_gpu(1, 0), attributes=attributes)
        for attributes in (with_hash, 'host_hash="0xb"', without_hash)
    ]
    three = _parse(*hosts)
    assert three.node_count == 3
    assert "beside 2 hosts that have one (1): taken as one more host" in three.notes[0]


def test_vendor_file_with_endpoints_only() -> None:
    nic = _pci(0x30, "0x020700")
    gpus = [_pci(0x21, GPU_CLASS), _pci(0x20, GPU_CLASS)]
    machine = _parse(_cpu(*gpus, nic, _pci(9, "0x030000", attributes='vendor="0x1a03"')))
    validate(machine)
    assert [gpu.bus_id for gpu in machine.gpus] == ["0000:20:00.0", "0000:21:00.0"]
    assert machine.nics[0].line_rate_gb_per_s == 0.0
    assert "numbered by bus id" in machine.notes[0]
    assert "connected by PCIe alone" in machine.notes[1]


def test_vendor_file_whose_gpu_models_determine_the_nvswitch() -> None:
    ids = 'vendor="0x10de" device="0x20b0" link_speed="8 GT/s" link_width="16"'
    eight = _parse(_cpu(*[_pci(bus, GPU_CLASS, attributes=ids) for bus in range(8)]))
    assert _link(eight, "gpu7", "nvswitch0").bandwidth_gb_per_s == 300.0
    assert _link(eight, "gpu7", "nvswitch0").provenance is Provenance.ASSUMED
    assert "8 x A100-SXM4-40GB" in eight.notes[0]
    assert eight.gpus[0].compute_capability == 80
    four = _parse(_cpu(*[_pci(bus, GPU_CLASS, attributes=ids) for bus in range(4)]))
    assert _names(four, DeviceKind.NVSWITCH) == []
    assert "connected by PCIe alone" in four.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<system>",
        "<graphs version='1'/>",
        "<algo name='x'/>",
        "<html/>",
        "<system version='9'/>",
        "<system version='1'/>",
        "<!DOCTYPE system><system/>",
        "<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><system>&b;</system>",
        "<system>&a;</system>",
        "<a>" * 65 + "</a>" * 65,
        "<system>" + _cpu('<pci busid="0000:16:00.0"/>') + "</system>",
        "<system>" + _cpu(_pci(1, "banana")) + "</system>",
        "<system>" + _cpu(_gpu(1, 0, _nvlink(2, 5000))) + "</system>",
        "<system>" + _cpu(_gpu(1, 0).replace('sm="80"', 'sm="x"')) + "</system>",
        "<system>" + _cpu(_gpu(1, 0).replace("sm=", 'gcn="gfx9-generic" sm=')) + "</system>",
        "<system>" + _cpu(_gpu(1, 0).replace('"80"', '"-80"')) + "</system>",
        "<system>" + _cpu('<pci class="0x030200"/>') + "</system>",
        "<system>" + _cpu(_pci(1, GPU_CLASS, '<gpu dev="0"/><gpu dev="1"/>')) + "</system>",
    ],
)
def test_other_files_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(MachineError) as caught:
        parse_nccl_xml(text, "dir/machine.xml")
    assert str(caught.value).startswith("dir/machine.xml:")
    assert "\n" not in str(caught.value)


def test_devices_with_equal_identity_are_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="two devices with bus id '0000:01:00"):
        _parse(_cpu(_gpu(1, 0), _gpu(1, 1)))
    with pytest.raises(InvalidTopologyError, match="2 GPUs of one host with dev='0'"):
        _parse(_cpu(_gpu(1, 0), _gpu(2, 0)))


def test_a_gpu_and_a_port_on_one_pci_device_share_its_uplink() -> None:
    both = _pci(1, GPU_CLASS, '<gpu dev="0" sm="80"/>' + _nic(_net("a", 0)))
    machine = _parse(_cpu(both))
    assert [device.name for device in machine.devices[:3]] == ["n0/gpu0", "n0/nic0", "n0/pcie0"]


@pytest.mark.long
def test_the_size_is_limited_before_parsing() -> None:
    with pytest.raises(InvalidTopologyError, match="257 <cpu> elements on one host"):
        _parse(*[_cpu(_gpu(1, 0))] * 257)
    hosts = [_cpu(_gpu(1, 0), attributes=f'host_hash="{i}"') for i in range(3000)]
    assert len(_parse(*hosts).gpus) == 3000


@given(
    place=sampled_from(("system", "cpu", "pci", "gpu", "nic")),
    tag=from_regex(r"[a-z][a-z0-9_]{0,30}", fullmatch=True),
    count=integers(1, 5),
)
def test_elements_that_are_not_read_are_noted_and_change_nothing(
    place: str, tag: str, count: int
) -> None:
    assume(tag not in {"cpu", "pci", "gpu", "nic", "net", "pcilink", "nvlink", "xgmi", "c2c"})
    text = '<system version="1">' + _cpu(_gpu(1, 0, _nvlink(2, 4)), _gpu(2, 1)) + "</system>"
    text = text.replace("</gpu></pci>", "</gpu>" + _nic(_net("mlx5_0", 0)) + "</pci>", 1)
    end = f"</{place}>"
    inside = f'<{tag} type="switch" count="4"><nvlink/></{tag}>' * count
    plain = parse_nccl_xml(text, "a.xml")
    read = parse_nccl_xml(text.replace(end, inside + end, 1), "a.xml")
    note = (
        f"Elements of no known kind were left out ({count}), with the links that they may state: "
        f"'<{tag:.20}> in <{place}>'."
    )
    assert read.notes == (note, *plain.notes)
    assert (read.devices, read.links) == (plain.devices, plain.links)


def test_several_ranks_on_one_gpu_are_refused_by_name() -> None:
    twice = (
        '<gpu dev="0" sm="107" mlopart="0" rank="0"/><gpu dev="0" sm="107" mlopart="1" rank="1"/>'
    )
    with pytest.raises(MachineError, match="several ranks share this GPU"):
        _parse(_cpu(_pci(1, GPU_CLASS, twice)))


def test_two_bridges_of_one_bus_id_are_kept_apart() -> None:
    machine = _parse(_cpu(_pci(5, BRIDGE, _gpu(1, 0)), _pci(5, BRIDGE, _gpu(2, 1))))
    assert len(_names(machine, DeviceKind.PCIE_SWITCH)) == 2
    assert "share a bus id" in machine.notes[0]


def _mutated(text: str, chance: random.Random) -> str:
    """Apply a few cuts, copies, swaps and odd characters."""
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(text)), chance.choice((1, 3, 20, 200))
        piece = text[at : at + length]
        what = chance.randrange(5)
        if what == 0:
            text = text[:at] + text[at + length :]
        elif what == 1:
            elsewhere = chance.randrange(len(text))
            text = text[:elsewhere] + piece + text[elsewhere:]
        elif what == 2:
            odd = chance.choice(
                ('"', "<", ">", "&", "\x00", "-1", "9" * 12, "&#10;", "é", "\ud800")
            )
            text = text[:at] + odd + text[at + 1 :]
        elif what == 3:
            digits = [i for i, letter in enumerate(text) if letter.isdigit()]
            spot = chance.choice(digits)
            text = text[:spot] + chance.choice("0123456789") + text[spot + 1 :]
        else:
            text = text.replace(
                chance.choice(("gpu", "pci", "0x03", "target", "busid", "count")), "x", 1
            )
    return text


@pytest.mark.long
@pytest.mark.parametrize("name", ["a100-8gpu-8nic", "h200-4gpu"])
def test_damaged_files_give_a_sound_topology_or_one_line(name: str) -> None:
    good, chance = shipped_text(name), random.Random(7)
    refusals = []
    for _ in range(400):
        try:
            check_structure(parse_nccl_xml(_mutated(good, chance), "damaged.xml"))
        except MachineError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < 400
    assert not [refusal for refusal in refusals if "\n" in refusal]


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("<a/>" * 1000, "more than 1,000 elements"),
        ("<a " + " ".join(f"a{number}='1'" for number in range(65)) + "/>", "with 65 attributes"),
        ("<a a='" + "aaaa" * 1_000_000 + "'/>", "a tag or text of more than"),
    ],
    ids=["elements", "attributes", "tag"],
)
def test_a_document_is_limited_while_it_is_read(
    piece: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xml_tree, "MAX_ELEMENTS", 1000)
    with pytest.raises(MachineError, match=message):
        parse_nccl_xml(f"<system>{piece}</system>", "machine.xml")
