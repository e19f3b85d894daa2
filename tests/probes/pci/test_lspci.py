import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.pci.inventory import NumaNode, PcieLink, PciFunction, PciInventory
from probes.pci.lspci import parse_lspci
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError


def entry(head: str, *lines: str) -> str:
    return "\n".join([head, *(f"\t{line}" for line in lines), "", ""])


def link(cap: str, sta: str) -> tuple[str, str, str]:
    return (
        "Capabilities: [40] Express (v2) Endpoint, MSI 00",
        f"\tLnkCap:\tPort #1, {cap}, ASPM not supported",
        f"\tLnkSta:\t{sta}",
    )


ROOT_PORT = entry(
    "15:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])",
    "NUMA node: 1",
    "Bus: primary=15, secondary=16, subordinate=19, sec-latency=0",
    *link("Speed 32GT/s, Width x16", "Speed 32GT/s (ok), Width x16 (ok)"),
)
UPSTREAM = entry(
    "16:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (prog-if 00 [Normal decode])",
    "Bus: primary=16, secondary=17, subordinate=19, sec-latency=0",
    *link("Speed 32GT/s, Width x16", "Speed 32GT/s (ok), Width x16 (ok)"),
)
DOWN_TO_GPU = entry(
    "17:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (prog-if 00 [Normal decode])",
    "Bus: primary=17, secondary=18, subordinate=18, sec-latency=0",
    *link("Speed 32GT/s, Width x16", "Speed 2.5GT/s (downgraded), Width x16 (ok)"),
)
DOWN_TO_NIC = entry(
    "17:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (prog-if 00 [Normal decode])",
    "Bus: primary=17, secondary=19, subordinate=19, sec-latency=0",
    *link("Speed 16GT/s, Width x16", "Speed 16GT/s (ok), Width x8 (downgraded)"),
)
GPU = entry(
    "18:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)",
    "NUMA node: 1",
    "Region 0: Memory at 21e042000000 (64-bit, prefetchable) [size=16M]",
    *link("Speed 32GT/s, Width x16", "Speed 2.5GT/s (downgraded), Width x16 (ok)"),
)
NIC = entry(
    "19:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]",
    "NUMA node: 1",
    *link("Speed 32GT/s, Width x16", "Speed 16GT/s (downgraded), Width x8 (downgraded)"),
)
MACHINE = ROOT_PORT + UPSTREAM + DOWN_TO_GPU + DOWN_TO_NIC + GPU + NIC


def sentences(inventory: PciInventory) -> str:
    return "\n".join(gap.sentence() for gap in inventory.gaps)


def function(text: str, address: str) -> PciFunction:
    return parse_lspci(text, "mail").by_address[address]


def test_the_bridge_tree_follows_the_bus_numbers() -> None:
    inventory = parse_lspci(MACHINE, "mail")
    parents = {f.address: f.parent for f in inventory.functions}
    assert parents == {
        "0000:15:01.0": None,
        "0000:16:00.0": "0000:15:01.0",
        "0000:17:00.0": "0000:16:00.0",
        "0000:17:01.0": "0000:16:00.0",
        "0000:18:00.0": "0000:17:00.0",
        "0000:19:00.0": "0000:17:01.0",
    }
    assert {f.root for f in inventory.functions} == {"pci0000:15"}
    assert inventory.numa_nodes == (NumaNode(1),)


def test_unambiguous_names_become_numbers() -> None:
    gpu, nic = function(MACHINE, "0000:18:00.0"), function(MACHINE, "0000:19:00.0")
    assert (gpu.class_code, gpu.vendor, gpu.device) == (0x030200, 0x10DE, 0x2330)
    assert (nic.class_code, nic.vendor, nic.device) == (0x020700, 0x15B3, 0x1021)
    assert function(MACHINE, "0000:17:00.0").class_code == 0x060400


def test_unknown_names_stay_unknown_and_are_noted() -> None:
    text = MACHINE + entry("20:00.0 Quantum controller: Acme Flux Capacitor", "NUMA node: 0")
    odd = function(text, "0000:20:00.0")
    assert (odd.class_code, odd.vendor, odd.device) == (None, None, None)
    assert "0000:20:00.0: class not known by its name" in sentences(parse_lspci(text, "mail"))


def test_an_idle_link_has_the_speed_it_can_do_and_the_width_it_has() -> None:
    assert function(MACHINE, "0000:18:00.0").link == PcieLink(32.0, 16)
    # The port above does gen 4 at most, and eight lanes are up.
    assert function(MACHINE, "0000:19:00.0").link == PcieLink(16.0, 8)
    narrow = "than the device could do: '0000:17:01.0 x8 of x16', '0000:19:00.0 x8 of x16'"
    assert narrow in sentences(parse_lspci(MACHINE, "mail"))


def test_the_link_of_a_nic_has_the_speed_it_was_trained_to() -> None:
    slow = MACHINE.replace("Speed 16GT/s (downgraded), Width x8", "Speed 8GT/s, Width x8")
    assert function(slow, "0000:19:00.0").link == PcieLink(8.0, 8)
    words = "links of NICs slower than both ends could do: '0000:19:00.0 8 of 16 GT/s'"
    assert words in sentences(parse_lspci(slow, "mail"))
    # Its port does gen 4 at most: 16 of the NIC's 32 GT/s are all there is.
    assert "links of NICs" not in sentences(parse_lspci(MACHINE, "mail"))


def test_a_nic_is_a_port_with_its_place_as_name_and_no_speed() -> None:
    (port,) = parse_lspci(MACHINE, "mail").ports
    assert (port.name, port.function) == ("nic@0000:19:00.0", "0000:19:00.0")
    assert (port.link_layer, port.speed_gbit_per_s) == ("InfiniBand", None)


def test_numbers_of_nn_and_domains_of_d_win_over_names() -> None:
    text = "10000:e1:00.0 VGA compatible controller [0300]: NVIDIA X [10de:26b5] (rev a1)\n"
    (gpu,) = parse_lspci(text, "mail").functions
    assert (gpu.address, gpu.root) == ("10000:e1:00.0", "pci10000:e1")
    assert (gpu.class_code, gpu.vendor, gpu.device) == (0x030000, 0x10DE, 0x26B5)


def test_lspci_n_has_numbers_alone() -> None:
    (gpu,) = parse_lspci("3b:00.0 0302: 10de:20b2 (rev a1)\n", "mail").functions
    assert (gpu.class_code, gpu.vendor, gpu.device) == (0x030200, 0x10DE, 0x20B2)


def test_the_tree_form_is_refused_with_the_command_to_run() -> None:
    with pytest.raises(MachineError, match=r"mail:2: this is the tree of lspci -t.*-vvv -nn"):
        parse_lspci("$ lspci -tv\n-+-[0000:00]-+-00.0  Intel\n", "mail")
    with pytest.raises(MachineError, match=r"mail:1: this is the form of lspci -m,.*-vvv -nn"):
        parse_lspci('3b:00.0 "3D controller" "NVIDIA Corporation" "GH100" -ra1 "" ""\n', "mail")


@pytest.mark.parametrize("text", ["", "hello\n", "GPU0 X\n"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(MachineError, match="no line of it describes a PCI function"):
        parse_lspci(text, "mail")


def test_a_function_listed_twice_is_refused() -> None:
    with pytest.raises(MachineError, match=r"mail:8: 0000:19:00.0 is listed a second time"):
        parse_lspci(NIC + "\n" + NIC, "mail")


def test_bridges_in_a_loop_are_no_parents() -> None:
    loop = entry("16:00.0 PCI bridge: A", "Bus: primary=16, secondary=17, subordinate=17") + entry(
        "17:00.0 PCI bridge: B", "Bus: primary=17, secondary=16, subordinate=17"
    )
    inventory = parse_lspci(loop, "mail")
    assert [f.parent for f in inventory.functions] == [None, "0000:16:00.0"]
    assert "0000:17:00.0: buses 16 to 17 cannot lie below bus 17" in sentences(inventory)


def test_two_bridges_to_one_bus_are_noted() -> None:
    twice = DOWN_TO_GPU + DOWN_TO_GPU.replace("17:00.0", "17:02.0") + GPU
    inventory = parse_lspci(twice, "mail")
    assert inventory.by_address["0000:18:00.0"].parent == "0000:17:00.0"
    assert "0000:17:02.0: leads to bus 18 as 0000:17:00.0 does" in sentences(inventory)


def test_a_bridge_cut_before_its_bus_numbers_is_noted() -> None:
    cut = (ROOT_PORT + UPSTREAM)[: -len(UPSTREAM) + 40]
    gaps = sentences(parse_lspci(cut, "mail"))
    assert "0000:16:00.0: a bridge without bus numbers" in gaps
    assert "the text ends inside 0000:16:00.0: it may be cut there" in gaps


@given(st.integers(0, len(MACHINE)))
def test_a_cut_is_an_error_a_gap_or_between_two_functions(end: int) -> None:
    text = MACHINE[:end]
    try:
        inventory = parse_lspci(text, "mail")
    except MachineError:
        assert "\n" not in text
        return
    assert "may be cut" in sentences(inventory) or text.endswith("\n\n")


@given(st.permutations([ROOT_PORT, UPSTREAM, DOWN_TO_GPU, DOWN_TO_NIC, GPU, NIC]))
def test_the_order_of_functions_does_not_matter(parts: list[str]) -> None:
    assert parse_lspci("".join(parts), "mail").functions == parse_lspci(MACHINE, "mail").functions


@requires_shared_data
def test_an_xe9680_has_its_functions_and_a_tree_for_every_gpu() -> None:
    path = SHARED_DATA / "pci_sysfs/lspci/dell-xe9680-h100x8-8cx7.lspci-vvv.txt"
    inventory = parse_lspci(path.read_text("utf-8"), "dell")
    gpus = [f for f in inventory.functions if (f.vendor, f.device) == (0x10DE, 0x2330)]
    assert len(gpus) == 8
    assert len({gpu.root for gpu in gpus}) == 8
    assert {gpu.link for gpu in gpus} == {PcieLink(32.0, 16)}
    assert [node.number for node in inventory.numa_nodes] == [0, 1]
    assert len(inventory.functions) == 517
    assert sum((f.class_code or 0) >> 8 == 0x0604 for f in inventory.functions) == 59
    assert len(inventory.ports) == 14
