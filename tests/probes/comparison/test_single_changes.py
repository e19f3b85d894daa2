"""One change is one sentence for every machine, also with two ports on a bus id."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.comparison.changes import describe_changes
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology
from probes.topology.hosts import split_hosts
from probes.topology.replicate import Network, NetworkLayout, replicate
from tests.probes.machines import ring, shipped, shipped_text
from tests.probes.two_port_machines import (
    has_two_ports_on_a_bus_id,
    published_two_port_machines,
    two_port_a100,
    with_second_ports,
)

pytestmark = pytest.mark.long

GPU_LINKS = (LinkKind.NVLINK, LinkKind.XGMI)
NODES = 4


@cache
def _machines() -> tuple[Topology, ...]:
    """Machines with two ports per bus id, without NICs, and with one port per NIC."""
    made = two_port_a100(), two_port_a100("mlx4_0"), shipped(), ring([0, 1, 2, 3])
    return (*made, *published_two_port_machines())


machines = st.deferred(lambda: st.sampled_from(_machines()))


def test_the_machines_made_here_have_two_ports_on_a_bus_id() -> None:
    for machine in (two_port_a100(), two_port_a100("mlx4_0")):
        assert len(machine.nics) == 16
        assert has_two_ports_on_a_bus_id(machine)
    assert len({nic.os_name for nic in two_port_a100("mlx4_0").nics}) == 1


class Change:
    """A machine before and after a change, and the expected sentences."""

    def __init__(self, old: Topology, new: Topology, begins: tuple[str, ...], holds: str) -> None:
        self.old = old
        self.new = new
        self.begins = begins
        """Beginning of each sentence."""
        self.holds = holds
        """Phrases that each sentence contains."""

    def __repr__(self) -> str:
        # Machines are long to print.
        return f"<{self.old.name}: {self.begins}...{self.holds}>"

    def of_nodes(self, host: str) -> Change:
        """Return the change with other names of devices."""
        begins = tuple(begin.replace("n0/", host) for begin in self.begins)
        return Change(self.old, self.new, begins, self.holds)


def _called(device: Device) -> str:
    details = ", ".join(part for part in (device.os_name, device.bus_id) if part)
    kind = "GPU" if device.kind is DeviceKind.GPU else "NIC"
    return f"{kind} {device.name}" + (f" ({details})" if details else "")


def _with_device(machine: Topology, changed: Device) -> Topology:
    devices = (changed if d.name == changed.name else d for d in machine.devices)
    return replace(machine, devices=tuple(devices))


def _without(machine: Topology, name: str) -> Topology:
    return replace(
        machine,
        devices=tuple(device for device in machine.devices if device.name != name),
        links=tuple(link for link in machine.links if name not in (link.src, link.dst)),
        limits=tuple(pair for pair in machine.limits if name not in (pair.src, pair.dst)),
    )


def _link_sentences(machine: Topology, changed: Link) -> tuple[str, ...]:
    """Beginnings of the sentences: one for both directions if these are alike."""
    names = {LinkKind.NVLINK: "NVLink", LinkKind.XGMI: "xGMI", LinkKind.PCIE: "PCIe link"}
    name = names[changed.kind]
    back = [
        link
        for link in machine.links_between.get((changed.dst, changed.src), ())
        if link.kind is changed.kind
    ]
    alike = [(x.bandwidth_gb_per_s, x.lanes) for x in back] == [
        (changed.bandwidth_gb_per_s, changed.lanes)
    ]
    if alike:
        first = min((changed, *back), key=machine.links.index)
        return (f"{name} {first.src} <-> {first.dst} ",)
    both = sorted((changed, *back), key=machine.links.index)
    return tuple(f"{name} {link.src} -> {link.dst} " for link in both)


def _same_cable(a: Link, b: Link) -> bool:
    return a.kind is b.kind and {a.src, a.dst} == {b.src, b.dst}


def slower_link(machine: Topology, draw: st.DrawFn) -> Change:
    """Halve a link's bandwidth in both directions."""
    kinds = (*GPU_LINKS, LinkKind.PCIE)
    slow = draw(st.sampled_from([link for link in machine.links if link.kind in kinds]))
    links = tuple(
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / 2)
        if _same_cable(link, slow)
        else link
        for link in machine.links
    )
    return Change(machine, replace(machine, links=links), _link_sentences(machine, slow), "slower")


def missing_link(machine: Topology, draw: st.DrawFn) -> Change:
    """Remove a link between GPUs, or of a GPU and a CPU or switch, in both directions."""
    missing = draw(st.sampled_from([link for link in machine.links if link.kind in GPU_LINKS]))
    links = tuple(link for link in machine.links if not _same_cable(link, missing))
    new = replace(machine, links=links)
    missing = next(link for link in machine.links if _same_cable(link, missing))
    name = "xGMI" if missing.kind is LinkKind.XGMI else "NVLink"
    arrow = "<->" if machine.links_between.get((missing.dst, missing.src)) else "->"
    return Change(machine, new, (f"{name} {missing.src} {arrow} {missing.dst} ",), "missing")


def missing_port(machine: Topology, draw: st.DrawFn) -> Change:
    nic = draw(st.sampled_from(machine.nics))
    return Change(machine, _without(machine, nic.name), (_called(nic),), " is missing.")


def missing_gpu(machine: Topology, draw: st.DrawFn) -> Change:
    gpu = draw(st.sampled_from(machine.gpus))
    return Change(machine, _without(machine, gpu.name), (_called(gpu),), " is missing.")


def slower_port(machine: Topology, draw: st.DrawFn) -> Change:
    nic = draw(st.sampled_from(machine.nics))
    rate = 1.25 if nic.line_rate_gb_per_s >= 3 else 50.0
    new = _with_device(machine, replace(nic, line_rate_gb_per_s=rate))
    return Change(machine, new, (_called(nic),), f" runs at {rate * 8:g} Gb/s, it ran at ")


def other_model(machine: Topology, draw: st.DrawFn) -> Change:
    gpu = draw(st.sampled_from(machine.gpus))
    new = _with_device(machine, replace(gpu, model="10de:ffff"))
    return Change(machine, new, (_called(gpu),), " is another model: 10de:ffff with ")


KINDS: tuple[Callable[[Topology, st.DrawFn], Change], ...] = (
    slower_link,
    missing_link,
    missing_port,
    missing_gpu,
    slower_port,
    other_model,
)


def _possible(kind: object, machine: Topology) -> bool:
    if kind in (missing_port, slower_port):
        return len(machine.nics) > 1
    if kind is missing_link:
        return any(link.kind in GPU_LINKS for link in machine.links)
    return True


@st.composite
def changes(draw: st.DrawFn, *, with_nics: bool = False) -> Change:
    machine = draw(machines.filter(lambda m: not with_nics or bool(m.nics)))
    kind = draw(st.sampled_from([kind for kind in KINDS if _possible(kind, machine)]))
    return kind(machine, draw)


def _check(sentences: tuple[str, ...], change: Change, prefix: str = "") -> None:
    begins = sorted(prefix + begin for begin in change.begins)
    ordered = sorted(sentences)
    assert len(ordered) == len(begins), sentences
    for sentence, begin in zip(ordered, begins, strict=True):
        assert sentence.startswith(begin), (sentences, begins)
        assert change.holds in sentence


@given(changes())
def test_a_change_is_reported_once(change: Change) -> None:
    _check(describe_changes(change.old, change.new), change)


@given(changes(), st.integers(1, 255))
def test_with_buses_renumbered_too(change: Change, domain: int) -> None:
    devices = tuple(
        replace(device, bus_id=f"{domain:04x}{device.bus_id[4:]}") if device.bus_id else device
        for device in change.new.devices
    )
    _check(describe_changes(change.old, replace(change.new, devices=devices)), change)


@given(changes())
def test_in_reverse_a_missing_device_is_new(change: Change) -> None:
    sentences = describe_changes(change.new, change.old)
    # Of a cable with two speeds each is told.
    assert len(sentences) in (len(change.begins), 2 if "Link" in sentences[0] else 1), sentences
    assert not any("missing" in sentence for sentence in sentences)


def _cluster(machine: Topology, layout: NetworkLayout) -> Topology:
    silent = any(nic.line_rate_gb_per_s <= 0 for nic in machine.nics)
    return replicate(machine, NODES, Network(1.7, layout, 25.0 if silent else None))


@given(changes(with_nics=True), st.sampled_from(NetworkLayout))
def test_a_change_on_all_nodes_is_one_sentence(change: Change, layout: NetworkLayout) -> None:
    sentences = describe_changes(_cluster(change.old, layout), _cluster(change.new, layout))
    _check(sentences, change.of_nodes(""), "On 4 hosts (n[0-3]): ")


@given(changes(with_nics=True), st.sampled_from(NetworkLayout), st.integers(0, NODES - 1))
def test_a_change_on_one_node_is_reported_for_that_node(
    change: Change, layout: NetworkLayout, node: int
) -> None:
    old, all_new = _cluster(change.old, layout), _cluster(change.new, layout)
    host = split_hosts(all_new)[node]

    def of_node(name: str, topology: Topology) -> bool:
        return topology.device[name].node == node

    kept = {d.name for d in (*host.devices, *(d for d in old.devices if d.node != node))}
    new = replace(
        old,
        devices=(*(d for d in old.devices if d.node != node), *host.devices),
        links=(
            *(
                link
                for link in old.links
                if {link.src, link.dst} <= kept
                and not (of_node(link.src, old) and of_node(link.dst, old))
            ),
            *host.links,
        ),
    )
    _check(describe_changes(old, new), change.of_nodes(f"n{node}/"))


def _text_without_port(text: str, bus_id: str, index: int) -> str:
    """Return the XML without a `<net>` of a PCI device, the rest renumbered without a gap."""
    system = ET.fromstring(text)  # noqa: S314 - written here
    for pci in system.iter("pci"):
        if pci.get("busid") == bus_id:
            nic = pci.find("nic")
            assert nic is not None
            nic.remove(nic.findall("net")[index])
    for number, net in enumerate(system.iter("net")):
        net.set("dev", str(number))
    return ET.tostring(system, encoding="unicode")


@given(st.data())
def test_a_missing_port_in_a_dump_is_the_only_change(data: st.DataObject) -> None:
    """Later ports are renumbered, and a card may lose the switch that models it."""
    with_nics = [m for m in _machines() if m.nics and all(nic.bus_id for nic in m.nics)]
    machine = with_nics[data.draw(st.integers(0, len(with_nics) - 1))]
    text = topology_to_nccl_xml(machine)
    old = parse_nccl_xml(text, "old")
    nic = old.nics[data.draw(st.integers(0, len(old.nics) - 1))]
    ports = [port.name for port in old.nics if port.bus_id == nic.bus_id]
    new = parse_nccl_xml(_text_without_port(text, nic.bus_id, ports.index(nic.name)), "new")
    assert len(new.nics) == len(old.nics) - 1
    (sentences,) = describe_changes(old, new)
    named = {f"{_called(port)} is missing." for port in old.nics if _alike(port, nic)}
    assert sentences in named
    (back,) = describe_changes(new, old)
    assert back.endswith("is new.")
    assert back.startswith("NIC ")


def _alike(a: Device, b: Device) -> bool:
    """Whether two ports differ in their number only."""
    return (a.bus_id, a.os_name) == (b.bus_id, b.os_name)


def test_a_removed_card_renumbers_buses_and_names_of_later_cards() -> None:
    """Later NICs get the bus and name of the previous NIC; only the missing NIC is reported."""
    text = shipped_text()
    old = shipped()
    for gone in range(len(old.nics)):
        system = ET.fromstring(text)  # noqa: S314 - written here
        bus_ids = [nic.bus_id for nic in old.nics]
        parents = {child: parent for parent in system.iter() for child in parent}
        cards = sorted(
            (pci for pci in system.iter("pci") if pci.get("busid") in bus_ids),
            key=lambda pci: bus_ids.index(pci.get("busid", "")),
        )
        for index in reversed(range(gone + 1, len(cards))):
            cards[index].set("busid", bus_ids[index - 1])
            for net in cards[index].iter("net"):
                net.set("name", f"mlx5_{index - 1}")
                net.set("dev", str(index - 1))
        parents[cards[gone]].remove(cards[gone])
        new = parse_nccl_xml(ET.tostring(system, encoding="unicode"), "new")
        sentences = describe_changes(old, new)
        # Two NICs sit alike below each switch, so either may be the one.
        alike = (gone // 2 * 2, gone // 2 * 2 + 1)
        assert sentences in {(f"{_called(old.nics[index])} is missing.",) for index in alike}


def test_two_ports_of_one_name_and_bus_id_are_distinguished_by_order() -> None:
    old = two_port_a100("mlx4_0")
    text = with_second_ports(shipped_text(), "mlx4_0")
    slow = text.replace('dev="5" speed="200000"', 'dev="5" speed="100000"')
    assert slow != text
    assert describe_changes(old, parse_nccl_xml(slow, "slow")) == (
        f"{_called(old.nics[5])} runs at 100 Gb/s, it ran at 200 Gb/s.",
    )


def test_a_card_with_a_slower_bus_is_one_change() -> None:
    text = with_second_ports(shipped_text())
    old = parse_nccl_xml(text, "old")
    line = next(line for line in text.splitlines() if '"0000:32:00.0"' in line)
    new = parse_nccl_xml(text.replace(line, line.replace("16.0 GT", "8.0 GT")), "new")
    (card,) = (d.name for d in old.devices if d.bus_id == "0000:32:00.0" and "pcie" in d.name)
    (sentences,) = describe_changes(old, new)
    assert sentences.startswith(f"PCIe link {card} <-> n0/pcie")
    assert sentences.endswith("is slower: 12 GB/s, it did 24 (50%).")


@pytest.mark.parametrize("nodes", [16, 64])
def test_a_cluster_of_two_port_nics_is_compared_quickly(nodes: int) -> None:
    """16 x 8 GPUs with 256 ports take well under a second; the time grows linearly."""
    machine = two_port_a100()
    old = replicate(machine, nodes, Network(1.7))
    links = tuple(
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / 2)
        if link.src == "n3/gpu5" and link.kind is LinkKind.NVLINK
        else link
        for link in old.links
    )
    new = _without(replace(old, links=links), "n7/nic3")
    old.fingerprint(), new.fingerprint()
    begin = time.process_time()
    sentences = describe_changes(old, new)
    took_s = time.process_time() - begin
    assert sentences == (
        f"{_called(old.device['n7/nic3'])} is missing.",
        "NVLink n3/gpu5 -> n3/nvswitch0 is slower: 150 GB/s, it did 300 (50%).",
    )
    assert took_s < 0.1 * nodes
