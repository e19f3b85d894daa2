"""Reports of hosts become one topology, and hosts that differ are named."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.cluster.merge import merge_hosts
from probes.topology.graph import LinkKind
from tests.probes.cluster.reports import machine, report
from tuccl.errors import InvalidTopologyError


def test_hosts_count_in_the_natural_order_of_their_names() -> None:
    merged = merge_hosts([report("node10"), report("node9"), report("node1")])
    assert merged.topology.hosts == ("node1", "node9", "node10")
    assert merged.order == (2, 1, 0)
    assert merged.topology.name == "3 hosts, node1 to node10"
    assert [gpu.name for gpu in merged.topology.gpus][:3] == ["n0/gpu0", "n0/gpu1", "n1/gpu0"]
    assert [port.label for port in merged.ports][2:4] == ["node9/mlx5_0", "node9/mlx5_1"]
    assert [port.host for port in merged.ports] == [0, 0, 1, 1, 2, 2]


def test_one_host_is_itself() -> None:
    alone = report("a", machine(notes=["No NVML."]))
    merged = merge_hosts([alone])
    assert merged.topology == alone.topology
    assert merged.topology.notes == ("No NVML.",)


def test_two_reports_of_one_host_count_once() -> None:
    merged = merge_hosts([report("a"), report("b"), report("a", machine(gpus=1))])
    assert merged.topology.hosts == ("a", "b")
    assert len(merged.topology.gpus) == 4


def test_hosts_of_an_nvlink_domain_become_one_node() -> None:
    trays = [replace(report(name), domain="ab/1") for name in ("t1", "t2")]
    other = replace(report("t3"), domain="ab/2")
    merged = merge_hosts([*trays, other, report("x")])
    assert merged.domains == ((0, 1),)
    machine = merged.joined(merged.topology)
    assert machine.hosts == ("t[1-2]", "t3", "x")
    assert machine.node_of_rank == (0, 0, 0, 0, 1, 1, 2, 2)
    assert machine.notes[-1] == "t[1-2] are one NVLink domain."
    apart = merge_hosts([other, report("x")])
    assert apart.joined(apart.topology) is apart.topology


def test_names_of_the_command_line_come_first() -> None:
    reports = [report("localhost", boot_id=boot) for boot in "xyx"]
    merged = merge_hosts(reports, ["web", "db", "web-alias"])
    assert merged.topology.hosts == ("db", "web")
    assert "web-alias is the same host as web, and was counted once." in merged.topology.notes


def test_hosts_of_one_name_are_told_apart() -> None:
    merged = merge_hosts([report("box", boot_id="2"), report("box", boot_id="1")])
    assert merged.topology.hosts == ("box (1)", "box (2)")
    assert merged.order == (1, 0)


def test_notes_name_the_hosts_that_made_them() -> None:
    common = "No NVML."
    reports = [
        report("n1", machine(notes=[common])),
        report("n2", machine(notes=[common, "n0/gpu1: odd."])),
        report("n3", machine(notes=[common, "n0/gpu1: odd."])),
    ]
    merged = merge_hosts(reports)
    assert merged.topology.notes == ("all 3 hosts: No NVML.", "n[2-3]: gpu1: odd.")


def test_a_different_host_is_named_with_what_it_lacks() -> None:
    reports = [report(f"node{i:02}", machine(nics=1 if i == 7 else 2)) for i in range(1, 9)]
    (sentence,) = merge_hosts(reports).odd_hosts
    assert sentence.startswith("node07 (unlike 7 of 8 hosts): NIC nic1 (mlx5_1, 0000:31:00.0)")
    assert "is missing." in sentence
    assert merge_hosts(reports).topology.notes[0] == sentence


def test_a_host_with_a_slow_link_is_different() -> None:
    odd = machine()
    slow = [
        replace(link, bandwidth_gb_per_s=25.0)
        if link.kind is LinkKind.PCIE and "nic0" in link.src + link.dst
        else link
        for link in odd.links
    ]
    reports = [report("a"), report("b"), report("c", replace(odd, links=tuple(slow)))]
    (sentence,) = merge_hosts(reports).odd_hosts
    assert sentence.startswith("c (unlike 2 of 3 hosts): ")
    assert "nic0" in sentence


def test_without_a_majority_the_kinds_are_listed() -> None:
    reports = [report("a"), report("b", machine(gpus=4)), report("c", machine(nics=0))]
    assert merge_hosts(reports).odd_hosts == (
        "The hosts are of 3 kinds: a (2 GPUs, 2 NICs); b (4 GPUs, 2 NICs); c (2 GPUs, 0 NICs).",
    )


def test_hosts_that_differ_by_noise_are_equal_and_keep_their_figures() -> None:
    reports = [report(f"n{i}", machine(noise=1 - i / 100)) for i in range(4)]
    merged = merge_hosts(reports)
    assert not merged.odd_hosts
    speeds = {
        link.bandwidth_gb_per_s for link in merged.topology.links if link.kind is LinkKind.NVLINK
    }
    assert speeds == {450.0, 445.5, 441.0, 436.5}


def test_no_report_is_an_error() -> None:
    with pytest.raises(InvalidTopologyError, match="no host answered"):
        merge_hosts([])


NAMES = st.lists(
    st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=6),
    min_size=2,
    max_size=5,
    unique=True,
)


@pytest.mark.long
@given(names=NAMES, data=st.data())
def test_order_names_buses_and_noise_leave_the_fingerprint_alone(
    names: list[str], data: st.DataObject
) -> None:
    plain = merge_hosts([report(f"host{i}") for i in range(len(names))]).topology
    buses = data.draw(st.lists(st.integers(0, 90), min_size=len(names), max_size=len(names)))
    noise = data.draw(st.lists(st.floats(0.97, 1.03), min_size=len(names), max_size=len(names)))
    reports = [
        report(name, machine(bus=bus, noise=factor))
        for name, bus, factor in zip(names, buses, noise, strict=True)
    ]
    merged = merge_hosts(reports)
    assert merged.topology.fingerprint() == plain.fingerprint()
    assert not merged.odd_hosts
    shuffled = merge_hosts(data.draw(st.permutations(reports)))
    assert shuffled.topology == merged.topology
    assert shuffled.topology.notes == merged.topology.notes
    assert shuffled.ports == merged.ports
