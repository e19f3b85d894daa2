from pathlib import Path

import pytest

from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import LinkKind, Provenance
from probes.topology.json_form import topology_to_json
from tests.probes.machines import shipped
from tuccl.errors import MachineError


def test_both_forms_are_recognized_by_content(tmp_path: Path) -> None:
    xml = shipped_machines()["a100-8gpu-8nic"]
    assert read_topology(xml) == shipped()
    copy = tmp_path / "machine.txt"
    copy.write_text("\n  " + topology_to_json(shipped()), encoding="utf-8")
    assert read_topology(copy) == shipped()
    copy.write_bytes(b"\xef\xbb\xbf" + xml.read_bytes())
    assert read_topology(copy).devices == shipped().devices


def test_machines_that_come_with_the_package() -> None:
    assert list(shipped_machines()) == ["a100-8gpu-8nic", "h200-4gpu", "h200-4gpu-measured"]


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


@pytest.mark.parametrize("content", [b"", b" \n", b"hello", b"<system>\xff</system>", b"{", b"<"])
def test_a_file_that_is_no_topology(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "machine"
    path.write_bytes(content)
    with pytest.raises(MachineError) as caught:
        read_topology(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_huge_file_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.xml"
    with path.open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    with pytest.raises(MachineError, match="68,157,440 bytes; a topology has at most"):
        read_topology(path)
