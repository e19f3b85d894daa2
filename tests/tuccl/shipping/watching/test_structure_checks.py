"""The structure of a host against the host that was measured, or the table's machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import DeviceKind, LinkKind, Provenance, Topology
from probes.topology.hosts import split_hosts
from tests.tuccl.shipping.watching.watched_tables import recorded
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.shipping.doctor.findings import Finding, Severity
from tuccl.shipping.watching.structure_checks import check_structure


@pytest.fixture(scope="module")
def measured() -> Topology:
    return read_topology(shipped_machines()["h200-4gpu-measured"])


@pytest.fixture(scope="module")
def plain(measured: Topology) -> Topology:
    """The same as a probe without measurements gives it: PCIe links say less than they do."""
    links = (
        replace(
            link,
            bandwidth_gb_per_s=link.bandwidth_gb_per_s / (4 if link.kind is LinkKind.PCIE else 1),
            provenance=Provenance.SYSFS,
        )
        if link.provenance is Provenance.MEASURED
        else link
        for link in measured.links
    )
    return replace(measured, links=tuple(links), limits=())


def a100(tmp_path: Path, nodes: int) -> Topology:
    path = tmp_path / "a100.xml"
    path.write_text(shipped_machines()["a100-8gpu-8nic"].read_text())
    return load_machine(MachineOptions(str(path), nodes=nodes))


def changes(findings: list[Finding]) -> list[str]:
    return [each.text for each in findings if each.severity is Severity.WARNING]


def nic_at(machine: Topology, name: str, gb_per_s: float) -> Topology:
    devices = (
        replace(d, line_rate_gb_per_s=gb_per_s) if d.name == name else d for d in machine.devices
    )
    return replace(machine, devices=tuple(devices))


def with_lanes(machine: Topology, lanes: int) -> Topology:
    links = (
        replace(link, lanes=lanes, bandwidth_gb_per_s=link.bandwidth_gb_per_s * lanes / link.lanes)
        if link.kind is LinkKind.NVLINK and "n0/gpu0" in {link.src, link.dst}
        else link
        for link in machine.links
    )
    return replace(machine, links=tuple(links))


def without(machine: Topology, *names: str) -> Topology:
    return replace(
        machine,
        devices=tuple(d for d in machine.devices if d.name not in names),
        links=tuple(e for e in machine.links if not {e.src, e.dst} & set(names)),
    )


def older_pcie(machine: Topology) -> Topology:
    links = (
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / 4)
        if link.kind is LinkKind.PCIE and "n0/gpu1" in {link.src, link.dst}
        else link
        for link in machine.links
    )
    return replace(machine, links=tuple(links))


def test_the_same_host_is_no_change(plain: Topology, measured: Topology) -> None:
    for record, machine in (
        (recorded(plain), measured),
        (recorded(plain), None),
        (None, plain),
    ):
        (finding,) = check_structure(record, machine, plain)
        assert finding.severity is Severity.OK
        assert finding.text.startswith("4 GPUs, ")


def test_measured_figures_are_not_held_against_those_of_a_data_sheet(
    plain: Topology, measured: Topology
) -> None:
    assert plain.fingerprint() != measured.fingerprint()
    (finding,) = check_structure(None, measured, plain)
    assert finding.severity is Severity.OK


@pytest.mark.parametrize(
    ("change", "said", "remedy"),
    [
        (lambda m: nic_at(m, "n0/nic0", 0.125), "runs at 1 Gb/s, it ran at 10 Gb/s", "`ethtool`"),
        (lambda m: with_lanes(m, 9), "has 9 lanes, it had 18", "nvidia-smi nvlink -s"),
        (lambda m: without(m, "n0/gpu3"), "GPU n0/gpu3", "nvidia-smi"),
        (lambda m: without(m, "n0/nic0"), "NIC n0/nic0", "`ip link`"),
        (older_pcie, "PCIe link n0/gpu1", "lspci -vv"),
    ],
)
@pytest.mark.parametrize("by_record", [True, False])
def test_each_change_is_named_with_its_remedy(
    plain: Topology,
    measured: Topology,
    change: Callable[[Topology], Topology],
    said: str,
    remedy: str,
    by_record: bool,
) -> None:
    record = recorded(plain) if by_record else None
    findings = list(check_structure(record, measured, change(plain)))
    if change is older_pcie and not by_record:
        assert changes(findings) == [], "what was measured says nothing about the data sheet"
        return
    assert any(said in text for text in changes(findings)), findings
    assert all(remedy in each.mend for each in findings if said in each.text)
    assert all("tuccl retune" in each.mend for each in findings)


def test_a_host_without_gpus_has_one_line(plain: Topology, measured: Topology) -> None:
    """Its NVLinks, switches and PCIe links go with the GPUs."""
    bare = plain
    for gpu in plain.gpus:
        bare = without(bare, gpu.name)
    for record in (recorded(plain), None):
        (finding,) = check_structure(record, measured, bare)
        assert finding.text == "no GPU is seen here, and the table is for a host of 4"
        assert "nvidia-smi" in finding.mend


def test_changes_with_one_remedy_share_a_line(tmp_path: Path) -> None:
    host = a100(tmp_path, 1)
    slow = host
    for nic in host.nics:
        slow = nic_at(slow, nic.name, nic.line_rate_gb_per_s / 2)
    (text,) = changes(list(check_structure(None, host, slow)))
    assert text.count("runs at 100 Gb/s") == 6
    assert text.endswith("and 2 more")


def test_a_host_of_a_cluster_is_held_against_the_cluster(tmp_path: Path) -> None:
    cluster, host = a100(tmp_path, 4), a100(tmp_path, 1)
    (finding,) = check_structure(None, cluster, host)
    assert finding.severity is Severity.OK
    nic = next(device for device in host.devices if device.kind is DeviceKind.NIC)
    slow = nic_at(host, nic.name, nic.line_rate_gb_per_s / 2)
    (text,) = changes(list(check_structure(None, cluster, slow)))
    assert text.startswith(f"NIC {nic.name} ")


def test_a_host_of_an_uneven_cluster_is_held_against_its_own_node(tmp_path: Path) -> None:
    cluster = replace(a100(tmp_path, 3), hosts=("a", "b", "c"))
    host = a100(tmp_path, 1)
    nic = next(device for device in host.devices if device.kind is DeviceKind.NIC)
    odd = nic_at(cluster, nic.name.replace("n0/", "n1/"), nic.line_rate_gb_per_s / 2)
    for name, said in (("a", 0), ("b", 1), ("c", 0), ("elsewhere", 0)):
        found = changes(list(check_structure(None, odd, replace(host, hosts=(name,)))))
        assert len(found) == said, name
    own = split_hosts(odd)[1]
    assert len(own.nics) == len(host.nics)


def test_a_table_without_a_machine_is_said_to_be_unknown(plain: Topology) -> None:
    (finding,) = check_structure(None, None, plain)
    assert finding.severity is Severity.NOTE
    assert "does not name its machine" in finding.text
