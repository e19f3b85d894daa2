import re
from dataclasses import replace

import pytest

from probes.comparison.changes import describe_changes, describe_figures
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.graph import LinkKind, PairLimit, Provenance, Topology
from probes.topology.replicate import Network, replicate
from tests.probes.machines import crossed, shipped, shipped_text

TEXT = shipped_text()
OLD = shipped()


def _element(bus: int) -> str:
    found = re.search(rf' *<pci busid="0000:{bus:02x}.*?</pci>\n', TEXT, re.DOTALL)
    assert found is not None
    return found.group()


def _after(old: str, new: str) -> tuple[str, ...]:
    assert old in TEXT
    return describe_changes(OLD, parse_nccl_xml(TEXT.replace(old, new), "new"))


OTHER_MODEL = (
    "GPU n0/gpu3 (0000:33:00.0) is another model: 10de:20b0 with compute capability 80, "
    "it was 10de:20b2 with compute capability 80."
)
NIC2, GPU3, FIRST_SLOT = _element(0x32), _element(0x33), '      <pci busid="0000:11'


def test_nothing_changed() -> None:
    assert describe_changes(OLD, OLD) == ()
    assert _after("0000:", "0001:") == ()
    noisy = tuple(
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s * 0.98) for link in OLD.links
    )
    assert describe_changes(OLD, replace(OLD, links=noisy)) == ()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (NIC2, "", "NIC n0/nic2 (mlx5_2, 0000:32:00.0) is missing."),
        (GPU3, "", "GPU n0/gpu3 (0000:33:00.0) is missing."),
        (
            GPU3,
            GPU3.replace('"12"', '"11"'),
            "NVLink n0/gpu3 <-> n0/nvswitch0 has 11 lanes, it had 12: 275 GB/s, it did 300 (92%).",
        ),
        (
            NIC2,
            NIC2.replace("200000", "100000"),
            "NIC n0/nic2 (mlx5_2, 0000:32:00.0) runs at 100 Gb/s, it ran at 200 Gb/s.",
        ),
        (
            NIC2,
            NIC2.replace("16.0 GT", "8.0 GT"),
            "PCIe link n0/nic2 <-> n0/pcie1 is slower: 12 GB/s, it did 24 (50%).",
        ),
        (
            GPU3,
            GPU3.replace("20b2", "20b0"),
            OTHER_MODEL,
        ),
    ],
)
def test_one_change_is_one_sentence(old: str, new: str, sentence: str) -> None:
    assert _after(old, new) == (sentence,)


def test_a_moved_nic() -> None:
    moved = TEXT.replace(NIC2, "").replace(FIRST_SLOT, NIC2 + FIRST_SLOT)
    (sentence,) = describe_changes(OLD, parse_nccl_xml(moved, "moved"))
    assert sentence == (
        "NIC n0/nic2 (mlx5_2, 0000:32:00.0) moved from PCIe switch n0/pcie1 (0000:30:00.0) "
        "to PCIe switch n0/pcie0 (0000:10:00.0)."
    )


def test_ranks_that_changed_places() -> None:
    swap = {1: 2, 2: 1}
    devices = tuple(
        replace(device, index=swap.get(device.index, device.index))
        if "gpu" in device.name
        else device
        for device in OLD.devices
    )
    assert describe_changes(OLD, replace(OLD, devices=devices)) == (
        "GPU n0/gpu1 (0000:13:00.0) has local rank 2, it had 1.",
        "GPU n0/gpu2 (0000:31:00.0) has local rank 1, it had 2.",
    )


def test_crossed_cables_of_two_nics_that_sit_alike() -> None:
    pair = replicate(OLD, 2, Network(1.7))
    first, second = describe_changes(pair, crossed(pair, 1, 0, 1))
    assert first == (
        "NIC n1/nic0 (mlx5_0, 0000:12:00.0) moved from PCIe switch n1/pcie0 (0000:10:00.0) and "
        "network switch rail0 to PCIe switch n1/pcie0 (0000:10:00.0) and network switch rail1."
    )
    assert second.startswith("NIC n1/nic1 (mlx5_1, 0000:14:00.0) moved from ")


def test_nics_of_a_cluster_that_changed_places() -> None:
    pair = replicate(OLD, 2, Network(1.7))
    swap = {"n1/nic0": 1, "n1/nic1": 0}
    devices = tuple(
        replace(device, index=swap.get(device.name, device.index)) for device in pair.devices
    )
    assert describe_changes(pair, replace(pair, devices=devices)) == (
        "NIC n1/nic0 (mlx5_0, 0000:12:00.0) is NIC 1 of its node, it was NIC 0.",
        "NIC n1/nic1 (mlx5_1, 0000:14:00.0) is NIC 0 of its node, it was NIC 1.",
    )


def test_hosts_renamed_are_no_change_and_nodes_are_what_matches() -> None:
    pair = replace(replicate(OLD, 2, Network(1.7)), hosts=("red", "green"))
    renamed = replace(pair, hosts=("node1", "node2"))
    assert describe_changes(pair, renamed) == ()
    slow = tuple(
        replace(link, bandwidth_gb_per_s=150.0)
        if link.kind is LinkKind.NVLINK and "n1/gpu3" in (link.src, link.dst)
        else link
        for link in renamed.links
    )
    assert describe_changes(pair, replace(renamed, links=slow)) == (
        "NVLink n1/gpu3 <-> n1/nvswitch0 is slower: 150 GB/s, it did 300 (50%).",
    )


def test_nics_of_one_host_in_another_order_are_no_change() -> None:
    numbers = {str(n): str(7 - n) for n in range(8)}
    text = re.sub(r'(<net [^>]*dev=)"(\d)"', lambda net: f'{net[1]}"{numbers[net[2]]}"', TEXT)
    assert text != TEXT
    reordered = parse_nccl_xml(text, "other")
    assert [nic.bus_id for nic in reordered.nics] == [nic.bus_id for nic in reversed(OLD.nics)]
    assert describe_changes(OLD, reordered) == ()
    slower = text.replace(NIC2.split("<nic>")[0], NIC2.split("<nic>")[0].replace("16.0", "8.0"))
    (sentence,) = describe_changes(OLD, parse_nccl_xml(slower, "slower"))
    assert sentence == "PCIe link n0/nic2 <-> n0/pcie1 is slower: 12 GB/s, it did 24 (50%)."


def test_a_limit_that_appeared_vanished_or_changed_class_is_reported() -> None:
    def limited(*gb_per_s: float) -> Topology:
        limits = (PairLimit("n0/gpu0", "n0/gpu1", figure) for figure in gb_per_s)
        return replace(OLD, limits=tuple(limits))

    pair = "The pair n0/gpu0 -> n0/gpu1 is"
    assert describe_changes(OLD, limited(8.0)) == (f"{pair} limited to 8 GB/s.",)
    assert describe_changes(limited(8.0), OLD) == (f"{pair} not limited any more.",)
    assert describe_changes(limited(8.0), limited(4.0)) == (
        f"{pair} limited to 4 GB/s, it was to 8 GB/s.",
    )
    assert describe_changes(limited(8.0), limited(8.1)) == ()


def test_changes_within_a_class_are_reported_on_request() -> None:
    def measured(factor: float, end: str) -> Topology:
        links = tuple(
            replace(
                link,
                bandwidth_gb_per_s=link.bandwidth_gb_per_s * factor,
                provenance=Provenance.MEASURED,
            )
            if link.kind is LinkKind.NVLINK and link.src.startswith(end)
            else link
            for link in OLD.links
        )
        return replace(OLD, links=links)

    assert describe_figures(OLD, OLD) == ()
    one_way = describe_figures(OLD, measured(0.9, "n0/gpu3"))
    assert one_way == (
        "NVLink n0/gpu3 -> n0/nvswitch0 does 270 GB/s (measured), it did 300 GB/s (spec).",
    )
    assert len(describe_figures(OLD, measured(0.9, "n0/"))) == 8
    assert all(" <-> " in sentence for sentence in describe_figures(OLD, measured(0.9, "n0/")))
    # Half the speed is a change of class, which describe_changes tells.
    assert describe_figures(OLD, measured(0.5, "n0/gpu3")) == ()
