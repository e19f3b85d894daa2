from dataclasses import replace

from probes.topology.graph import (
    Device,
    DeviceKind,
    LinkKind,
    PairLimit,
    Provenance,
    Topology,
)
from probes.topology.replicate import Network, replicate
from tests.probes.machines import both_ways, gpu, rings, shipped
from tuccl.views.drawing.tree_view import tree_lines

H200 = shipped("h200-4gpu")


def _measured(machine: Topology, gb_per_s: float) -> Topology:
    links = tuple(
        replace(
            link,
            bandwidth_gb_per_s=gb_per_s,
            provenance=Provenance.MEASURED,
            latency_us=1.25,
            latency_provenance=Provenance.MEASURED,
        )
        if link.kind is LinkKind.NVLINK
        else link
        for link in machine.links
    )
    return replace(machine, links=links)


def test_a_host_is_a_tree_in_which_every_figure_names_its_source() -> None:
    assert tree_lines(H200) == [
        "h200-4gpu: 1 host, 4 GPUs",
        f"fingerprint {H200.fingerprint()}",
        "",
        "host n0",
        "├── cpu0",
        "│   ├── gpu0  10de:2335  sm 90  0000:00:06.0  x16 gen 5, 48 GB/s (sysfs)",
        "│   ├── gpu1  10de:2335  sm 90  0000:00:07.0  x16 gen 5, 48 GB/s (sysfs)",
        "│   ├── gpu2  10de:2335  sm 90  0000:00:08.0  x16 gen 5, 48 GB/s (sysfs)",
        "│   └── gpu3  10de:2335  sm 90  0000:00:09.0  x16 gen 5, 48 GB/s (sysfs)",
        "└── NVSwitch: 4 GPUs x 18 links, 450 GB/s (spec) each",
    ]


def test_measured_figures_limits_and_notes_show() -> None:
    machine = replace(
        _measured(H200, 386.0),
        notes=("Something was assumed.",),
        hosts=("node07",),
        limits=(PairLimit("n0/gpu0", "n0/gpu1", 19.5),),
    )
    lines = tree_lines(machine)
    assert "host node07" in lines
    assert "├── NVSwitch: 4 GPUs x 18 links, 386 GB/s (measured), 1.25 us (measured) each" in lines
    assert lines[-5:] == [
        "└── 1 pair measured slower than the links between them",
        "        n0/gpu0 -> n0/gpu1: 19.5 GB/s",
        "",
        "notes",
        "- Something was assumed.",
    ]


def test_a_mesh_is_a_matrix_of_link_counts() -> None:
    lines = tree_lines(rings([[0, 1, 2, 3]]))
    start = lines.index("└── NVLink between GPUs: 25 GB/s per link, spec")
    assert lines[start + 1 : start + 4] == [
        "          gpu0 gpu1 gpu2 gpu3",
        "    gpu0     -    1    -    1",
        "    gpu1     1    -    1    -",
    ]


def test_hosts_alike_are_shown_once_and_switches_by_their_ports() -> None:
    cluster = replicate(shipped(), 16, Network(1.7))
    cluster = replace(cluster, hosts=tuple(f"node{i:02}" for i in range(1, 17)))
    lines = tree_lines(cluster)
    assert "16 hosts alike: node[01-16]; the figures are those of node01" in lines
    assert lines[-1] == "- 8 switches with 16 NICs each, 25 GB/s (sysfs): rail[0-7]"
    assert len(lines) < 40


def test_c2c_and_a_machine_without_gpus() -> None:
    cpu = Device("cpu0", DeviceKind.CPU, 0)
    pcie = both_ways("n0/gpu0", "cpu0", LinkKind.PCIE, 48.0, lanes=16)
    c2c = both_ways("n0/gpu0", "cpu0", LinkKind.C2C, 450.0, lanes=10)
    lines = tree_lines(Topology("grace", (gpu(0), cpu), (*pcie, *c2c)))
    assert lines[-1] == "    └── gpu0  x16 gen 5, 48 GB/s (spec)  C2C 10 links, 450 GB/s (spec)"
    assert tree_lines(Topology("none", (cpu,), ()))[-2:] == ["host n0", "└── cpu0"]
