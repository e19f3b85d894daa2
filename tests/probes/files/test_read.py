import io
import os
import tarfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.files.read import machine_from_bytes, read_topology, shipped_machines
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.topology.graph import LinkKind, Provenance, Topology
from probes.topology.json_form import topology_to_json
from probes.topology.paths import Proximity, local_path, pcie_distance
from probes.topology.validation import check_structure
from tests.probes.machines import shipped, shipped_text
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError

GOLDEN = Path(__file__).parents[1] / "golden" / "machine_files.txt"
DELL = SHARED_DATA / "pci_sysfs/lspci/dell-xe9680-h100x8-8cx7.lspci-vvv.txt"

LSPCI = """\
00:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
\tNUMA node: 0
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0

01:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev a1)
\tNUMA node: 0
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <4us
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)

"""
MATRIX = """\
\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPIX\t0-31\t0
GPU1\tNV4\t X \tSYS\t32-63\t1
mlx5_0\tPIX\tSYS\t X
"""
HWLOC = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" nodeset="0x00000001" cpuset="0x00000001">
    <info name="HostName" value="node7"/>
    <object type="NUMANode" os_index="0" nodeset="0x00000001" cpuset="0x00000001"/>
    <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-01]">
      <object type="PCIDev" pci_busid="0000:00:02.0" pci_type="0302 [10de:20b2] [0:0] a1"/>
    </object>
  </object>
</topology>
"""


def snapshot() -> bytes:
    """A tar of /sys with one GPU on the root bus."""
    folder = "sys/devices/pci0000:00/0000:00:02.0"
    values = {"class": "0x030200", "vendor": "0x10de", "device": "0x20b2", "numa_node": "0"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, value in values.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(value)
            archive.addfile(member, io.BytesIO(value.encode()))
        link = tarfile.TarInfo("sys/bus/pci/devices/0000:00:02.0")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../devices/pci0000:00/0000:00:02.0"
        archive.addfile(link)
    return packed.getvalue()


@cache
def contents() -> dict[str, bytes]:
    """A small file of every form."""
    return {
        "lspci": LSPCI.encode(),
        "matrix": MATRIX.encode(),
        "hwloc": HWLOC.encode(),
        "nccl": shipped_text().encode(),
        "json": topology_to_json(shipped()).encode(),
        "tar": snapshot(),
    }


@pytest.mark.parametrize(
    ("form", "gpus", "nics"),
    [
        ("lspci", 1, 0),
        ("matrix", 2, 1),
        ("hwloc", 1, 0),
        ("nccl", 8, 8),
        ("json", 8, 8),
        ("tar", 1, 0),
    ],
)
def test_every_form_is_known_by_its_content(
    form: str, gpus: int, nics: int, tmp_path: Path
) -> None:
    path = tmp_path / "machine.dat"
    path.write_bytes(contents()[form])
    topology = read_topology(path)
    assert (len(topology.gpus), len(topology.nics)) == (gpus, nics)


def test_a_byte_order_mark_is_no_content() -> None:
    plain = machine_from_bytes(MATRIX.encode(), "a")
    assert machine_from_bytes(b"\xef\xbb\xbf" + MATRIX.encode(), "a") == plain


def test_machines_that_come_with_the_package() -> None:
    assert list(shipped_machines()) == [
        "a100-8gpu-8nic",
        "h100-8gpu-8nic",
        "h200-4gpu",
        "h200-4gpu-measured",
    ]


@pytest.mark.parametrize("form", ["json", "xml"])
def test_a_machine_without_multicast_is_known_to_have_none(form: str) -> None:
    write = topology_to_json if form == "json" else topology_to_nccl_xml
    for name in ("h100-8gpu-8nic", "h200-4gpu", "h200-4gpu-measured"):
        machine = read_topology(shipped_machines()[name])
        again = machine_from_bytes(write(machine).encode(), f"again.{form}")
        for found in (machine, again):
            assert {gpu.lacks_multicast for gpu in found.gpus} == {name != "h100-8gpu-8nic"}
        assert ("multicast" in write(machine)) == (name != "h100-8gpu-8nic")


@pytest.mark.parametrize("form", ["json", "xml"])
def test_a_network_that_sums_is_known_from_what_nccl_writes(form: str) -> None:
    write = topology_to_json if form == "json" else topology_to_nccl_xml
    text = shipped_machines()["a100-8gpu-8nic"].read_text()
    for value, sums in (("", False), (' coll="0"', False), (' coll="1"', True)):
        file = text.replace('gdr="1"/>', f'gdr="1"{value}/>')
        machine = machine_from_bytes(file.encode(), "a.xml")
        again = machine_from_bytes(write(machine).encode(), f"again.{form}")
        for found in (machine, again):
            assert {nic.network_sums for nic in found.nics} == {sums}
            assert found.fingerprint() == machine_from_bytes(text.encode(), "a.xml").fingerprint()


def test_the_measured_machine_is_what_a_probe_of_four_h200_gave() -> None:
    machine = read_topology(shipped_machines()["h200-4gpu-measured"])
    fast = [link for link in machine.links if link.kind is LinkKind.NVLINK]
    assert len(machine.gpus) == 4
    assert len(fast) == 8
    for link in fast:
        assert link.lanes == 18
        assert link.provenance is link.latency_provenance is Provenance.MEASURED
        # Nominal 450 GB/s; a copy engine reaches 386 (NVIDIA nvbandwidth on the same board).
        assert link.bandwidth_gb_per_s == pytest.approx(386, rel=0.05)


def test_a_machine_is_called_as_its_host_or_else_its_file() -> None:
    assert machine_from_bytes(HWLOC.encode(), "mail/box.xml").name == "node7"
    assert machine_from_bytes(LSPCI.encode(), "mail/box.lspci.txt").name == "box"


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _big(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(65 << 20)


def _nothing(path: Path) -> None:
    """Create no file."""


@pytest.mark.parametrize("make", [_nothing, _folder, _pipe, _big])
def test_a_path_that_is_not_a_file_is_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "machine"
    make(path)
    with pytest.raises(MachineError) as caught:
        read_topology(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n\t\n",
        "GPU0".encode("utf-16"),
        b"GPU0 \xff\xfe",
        b"a\0b",
        b"Dear all, the cluster is fine.\n",
        b"<system>\xff</system>",
        b"{",
        b"<",
        b"node1\nnode2 slots=8\n",
        b"CA 'mlx5_0'\n\tCA type: MT4129\n",
        b"PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n",
        b'{"test_info": {"test": "RDMA_Write_BW_Test"}}',
        b"GPU 0: NVIDIA H200\n\t Link 0: 26.562 GB/s\n",
        b"-+-[0000:00]-+-00.0  Intel\n",
        b"<html><body>404</body></html>",
    ],
)
def test_other_texts_are_refused_by_name(content: bytes) -> None:
    with pytest.raises(MachineError) as caught:
        machine_from_bytes(content, "mail")
    assert str(caught.value).startswith("mail")
    assert "\n" not in str(caught.value)


def test_json_without_devices_and_links_is_no_topology() -> None:
    for content in (b"{}", b'{"schema_version": 1}', b'{"schema_version": 2, "topology": {}}'):
        said = refusal(content)
        assert said.startswith("mail: not a topology, which has devices and links; give a topology")
    newer = b'{"schema_version": 3, "devices": [], "links": []}'
    assert refusal(newer).endswith("this release reads schema_version 2: probe the machine again")


P2P = "\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
SHOWTOPO = """\
============================ ROCm System Management Interface ============================
=============================== Link Type between two GPUs ===============================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
================================== End of ROCm SMI Log ===================================
"""


@pytest.mark.parametrize(
    ("text", "tool", "instead"),
    [
        (SHOWTOPO, "rocm-smi --showtopo", "give RCCL's topology dump"),
        (SHOWTOPO.split("\n", 1)[1], "rocm-smi --showtopo", "give RCCL's topology dump"),
        ("LINK TYPE TABLE:\n    0000:0c:00.0\n0000:0c:00.0 SELF\n", "amd-smi topology", "RCCL's"),
        (P2P, "nvidia-smi topo -p2p", "give `nvidia-smi topo -m`"),
        (
            P2P.split("Legend", maxsplit=1)[0].replace("OK", "NS"),
            "nvidia-smi topo -p2p",
            "topo -m`",
        ),
    ],
)
def test_a_table_of_another_tool_is_refused_by_its_name(text: str, tool: str, instead: str) -> None:
    for shown in (text, "".join(f"0: {line}" for line in text.splitlines(keepends=True))):
        said = refusal(shown.encode())
        assert said.startswith(f"mail: this is output of `{tool}`: ")
        assert instead in said


def refusal(content: bytes) -> str:
    """Reason for the refusal of a file; empty for a valid machine."""
    try:
        check_structure(machine_from_bytes(content, "mail"))
    except MachineError as error:
        return str(error)
    return ""


FORMS = st.sampled_from(["lspci", "matrix", "hwloc", "nccl", "json", "tar"])


@given(FORMS, st.floats(0, 1))
def test_a_cut_file_is_refused_or_noted_as_cut(form: str, share: float) -> None:
    content = contents()[form]
    cut = content[: int(share * len(content))]
    if refusal(cut):
        return
    whole, topology = (machine_from_bytes(read, "mail") for read in (content, cut))
    is_noted = any(word in note for note in topology.notes for word in ("cut", "damaged"))
    between_functions = form == "lspci" and cut.endswith(b"\n\n")
    assert is_noted or between_functions or topology == whole


@given(FORMS, st.data())
def test_a_file_with_a_changed_byte_raises_nothing_else(form: str, data: st.DataObject) -> None:
    content = bytearray(contents()[form])
    index = data.draw(st.integers(0, len(content) - 1))
    content[index] = data.draw(st.integers(0, 255))
    assert "\n" not in refusal(bytes(content))


def _summary(topology: Topology) -> str:
    kinds = Counter(device.kind.value for device in topology.devices)
    fast = Counter(
        f"{link.bandwidth_gb_per_s:g} {link.kind}"
        for link in topology.links
        if link.kind not in (LinkKind.PCIE, LinkKind.UPI)
    )
    devices = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    links = ", ".join(f"{count} x {name}" for name, count in sorted(fast.items()))
    return f"{devices}; {links or 'PCIe only'}; {len(topology.notes)} notes"


def _verdict(path: Path) -> str:
    name = path.relative_to(SHARED_DATA).as_posix()
    try:
        topology = read_topology(path)
    except MachineError as error:
        return f"{name}: refused{str(error).removeprefix(str(path))}"
    check_structure(topology)
    return f"{name}: {_summary(topology)}"


def _files() -> list[Path]:
    folders = ("nccl_topo", "nvidia_smi_topo", "pci_sysfs", "probes")
    found = (path for folder in folders for path in (SHARED_DATA / folder).rglob("*"))
    files = sorted(path for path in found if path.is_file() and path.name != "README.md")
    return [*files, SHARED_DATA / "replay" / "h200x4_topo.xml"]


@pytest.mark.long
@requires_shared_data
def test_verdicts_on_real_files_are_those_of_the_golden_file() -> None:
    verdicts = [_verdict(path) for path in _files()]
    assert verdicts == GOLDEN.read_text("utf-8").splitlines()


@pytest.mark.long
@requires_shared_data
def test_fingerprints_are_equal_only_for_equal_machines() -> None:
    by_fingerprint: dict[str, list[str]] = {}
    for path in sorted((SHARED_DATA / "nccl_topo").rglob("*.xml")):
        with suppress(MachineError):
            by_fingerprint.setdefault(read_topology(path).fingerprint(), []).append(path.stem)
    alike = sorted(sorted(names) for names in by_fingerprint.values() if len(names) > 1)
    # Four GPU-NIC quartets at two clouds; RCCL models that differ in names or CPU model at most.
    assert alike == [
        ["azure-ndv4-a100x8", "oci-a100x8-b4-flattened"],
        ["topo_4p3l_n2_1", "topo_collnet_n1"],
        ["topo_8p1h", "topo_8p1h_n1"],
        ["topo_8p_4nics", "topo_8p_rome_4nics"],
    ]


@pytest.mark.long
@requires_shared_data
@pytest.mark.parametrize("share", [0.01, 0.1, 0.33, 0.5, 0.77, 0.9, 0.999])
def test_real_files_cut_anywhere_raise_nothing_else(share: float) -> None:
    for path in _files():
        content = path.read_bytes()
        assert "\n" not in refusal(content[: int(share * len(content))]), path


PAIRS = {
    "0000:19:00.0": "0000:1a:00.0",
    "0000:3b:00.0": "0000:3c:00.0",
    "0000:4c:00.0": "0000:4d:00.0",
    "0000:5d:00.0": "0000:5e:00.0",
    "0000:9b:00.0": "0000:9c:00.0",
    "0000:bb:00.0": "0000:bc:00.0",
    "0000:cb:00.0": "0000:cc:00.0",
    "0000:db:00.0": "0000:dc:00.0",
}
"""GPU and ConnectX-7 of the XE9680, by hand from its bus numbers."""
DECOYS = {"0000:1b:00.0", "0000:1b:00.1", "0000:9d:00.0", "0000:9d:00.1"}
"""Its ConnectX-6 Dx: two ports each, on the switches of the first and the fifth GPU."""


@requires_shared_data
def test_each_h100_of_an_xe9680_pairs_with_the_connectx_7_on_its_switch() -> None:
    topology = read_topology(DELL)
    pairs = {}
    for gpu in topology.gpus:
        near = [
            nic
            for nic in topology.nics
            if pcie_distance(topology, gpu.name, nic.name) is Proximity.SWITCH
        ]
        # On two of the switches hangs a ConnectX-6 Dx, too: half as fast, for storage.
        widths = {}
        for nic in near:
            path = local_path(topology, gpu.name, nic.name)
            assert path is not None
            widths[nic.bus_id] = path.bandwidth_gb_per_s
        best = [bus_id for bus_id, width in widths.items() if width == max(widths.values())]
        assert len(best) == 1
        assert widths.keys() - best <= DECOYS
        pairs[gpu.bus_id] = best[0]
    assert pairs == PAIRS
