"""The picture: valid XML, complete, self-contained and deterministic."""

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from probes.files.read import read_topology
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    LinkKind,
    PairLimit,
    Provenance,
    Topology,
)
from probes.topology.replicate import Network, NetworkLayout, replicate
from tests.probes.machines import both_ways, gpu, ring, shipped
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError
from tuccl.views.drawing.svg import draw_svg

GOLDEN = Path(__file__).with_name("golden") / "two_gpus_one_nic.svg"
SVG = "{http://www.w3.org/2000/svg}"

Rectangle = tuple[float, float, float, float]


def _two_gpus_one_nic() -> Topology:
    """A machine with every element that a picture distinguishes."""
    devices = (
        gpu(0, model="10de:20b2", memory_bytes=80 * 10**9),
        gpu(1, model="10de:20b2", memory_bytes=80 * 10**9),
        Device("n0/nic0", DeviceKind.NIC, 0, line_rate_gb_per_s=25.0, os_name="mlx5_0"),
        Device("n0/pcie0", DeviceKind.PCIE_SWITCH, 0, model="1000:c010"),
        Device("n0/cpu0", DeviceKind.CPU, 0),
        Device("n0/cpu1", DeviceKind.CPU, 0, 1),
        Device("leaf", DeviceKind.NETWORK_SWITCH, NETWORK_NODE),
    )
    nvlink = both_ways("n0/gpu0", "n0/gpu1", gb_per_s=86.0, lanes=4)
    links = [
        *both_ways("n0/gpu0", "n0/pcie0", LinkKind.PCIE, 24.0, lanes=16),
        *both_ways("n0/nic0", "n0/pcie0", LinkKind.PCIE, 24.0, lanes=16),
        *both_ways("n0/pcie0", "n0/cpu0", LinkKind.PCIE, 24.0, lanes=16),
        *both_ways("n0/gpu1", "n0/cpu1", LinkKind.PCIE, 24.0, lanes=16),
        *both_ways("n0/cpu0", "n0/cpu1", LinkKind.UPI, 16.0),
        *both_ways("n0/nic0", "leaf", LinkKind.NETWORK, 25.0),
        *(replace(link, provenance=Provenance.MEASURED) for link in nvlink),
    ]
    links = [
        replace(link, provenance=Provenance.ASSUMED) if link.kind is LinkKind.UPI else link
        for link in links
    ]
    return Topology('two <GPUs> & "one" NIC', devices, tuple(links), hosts=("node01",))


def _texts(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in ET.fromstring(picture).iter(f"{SVG}text")]  # noqa: S314 - written a line above


def _rectangle(element: ET.Element) -> Rectangle:
    x, y, width, height = (float(element.get(key, "0")) for key in ("x", "y", "width", "height"))
    return (x, y, x + width, y + height)


def _check(picture: str) -> ET.Element:
    """Check that the XML is valid, shapes lie inside the picture, and devices do not overlap."""
    root = ET.fromstring(picture)  # noqa: S314 - our own text
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for rect in root.iter(f"{SVG}rect"):
        left, top, right, bottom = _rectangle(rect)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "-1")) <= width
        assert 0 <= float(text.get("y", "-1")) <= height
    devices = [
        _rectangle(group[1])
        for group in root.iter(f"{SVG}g")
        if len(group) > 1 and group[1].tag == f"{SVG}rect"
    ]
    for a, b in itertools.combinations(devices, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (a, b)
    return root


def test_the_picture_of_a_small_machine_is_the_golden_one() -> None:
    picture = draw_svg(_two_gpus_one_nic())
    _check(picture)
    assert picture == GOLDEN.read_text(encoding="utf-8")


def test_names_are_escaped_and_figures_written_by_their_source() -> None:
    picture = draw_svg(_two_gpus_one_nic())
    texts = _texts(picture)
    assert 'two <GPUs> & "one" NIC' in texts
    assert {"host node01", "gpu0", "80 GB", "mlx5_0", "200 Gb/s", "pcie0", "leaf: 1 NIC"} <= {
        *texts
    }
    assert '<text class="speed measured"' in picture
    assert "86 GB/s" in texts
    assert 'stroke-dasharray="5 4"' in picture.split('class="title"')[1].split("class=")[0]


@pytest.mark.long
@pytest.mark.parametrize("layout", NetworkLayout)
def test_hosts_alike_are_drawn_once_on_their_switches(layout: NetworkLayout) -> None:
    small = draw_svg(replicate(shipped(), 4, Network(1.7, layout)))
    large = draw_svg(replicate(shipped(), 128, Network(1.7, layout)))
    _check(large)
    assert "4 hosts alike: n[0-3]" in _texts(small)
    assert "128 hosts alike: n[0-127]" in _texts(large)
    assert abs(len(large) - len(small)) < 200
    ports = [text.partition(": ")[2] for text in _texts(large) if text.endswith(" NICs")]
    assert ports == (["128 NICs"] * 8 if layout is NetworkLayout.RAILS else ["1,024 NICs"])


def test_different_hosts_are_drawn_side_by_side_and_omissions_are_noted() -> None:
    cluster = replicate(shipped(), 6, Network(1.7))
    gone = {f"n{node}/nic{nic}" for node in range(6) for nic in range(node)}
    machine = replace(
        cluster,
        devices=tuple(device for device in cluster.devices if device.name not in gone),
        links=tuple(link for link in cluster.links if not {link.src, link.dst} & gone),
        limits=(PairLimit("n0/gpu0", "n0/gpu1", 20.0),),
    )
    texts = _texts(draw_svg(machine))
    assert [text for text in texts if text.startswith("host ")] == [f"host n{i}" for i in range(4)]
    assert "2 hosts of 2 more kinds not drawn." in texts
    assert texts[-1].startswith("1 pair measured slower than the links between them; slowest: ")
    assert texts[-1].endswith(": n0/gpu0 to n0/gpu1, 20 GB/s.")


def test_no_cpu_no_gpu_no_link() -> None:
    bare = replace(ring([0, 1, 2]), devices=ring([0, 1, 2]).gpus)
    mesh = tuple(link for link in bare.links if link.kind is LinkKind.NVLINK)
    root = _check(draw_svg(replace(bare, links=mesh)))
    assert sum("C" in path.get("d", "") for path in root.iter(f"{SVG}path")) == 3
    _check(draw_svg(Topology("cpu", (Device("cpu", DeviceKind.CPU, 0),), ())))
    _check(draw_svg(Topology("empty", (), ())))


def test_a_host_with_too_many_devices_is_refused() -> None:
    nics = tuple(Device(f"nic{i}", DeviceKind.NIC, 0, i) for i in range(300))
    with pytest.raises(MachineError, match="host big has 300 devices, a picture shows 256"):
        draw_svg(Topology("big", nics, ()))


@pytest.mark.long
@requires_shared_data
def test_every_real_machine_can_be_drawn() -> None:
    drawn = 0
    for path in sorted((SHARED_DATA / "nccl_topo").rglob("*.xml")):
        try:
            machine = read_topology(path)
        except MachineError:
            continue
        picture = draw_svg(machine)
        texts = _texts(picture)
        _check(picture)
        assert {device.name.partition("/")[2] for device in machine.gpus} <= {*texts}
        drawn += 1
    assert drawn == 53
