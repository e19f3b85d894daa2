"""Every topology file of real machines, read as the golden file states line by line."""

from collections import Counter
from pathlib import Path

import pytest

from probes.files.read import read_topology
from probes.topology.graph import LinkKind, Topology
from probes.topology.validation import validate
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError

FILES = SHARED_DATA / "nccl_topo"
GOLDEN = Path(__file__).parents[1] / "golden" / "real_topologies.txt"

pytestmark = requires_shared_data


def _paths() -> list[Path]:
    return [*sorted(FILES.rglob("*.xml")), SHARED_DATA / "replay" / "h200x4_topo.xml"]


def _verdict(path: Path) -> str:
    name = path.relative_to(SHARED_DATA).as_posix()
    try:
        topology = read_topology(path)
        validate(topology)
    except MachineError as error:
        return f"{name}: refused: {str(error).removeprefix(str(path)).lstrip(': ')}"
    return f"{name}: {_summary(topology)}"


def _summary(topology: Topology) -> str:
    fast = Counter(
        f"{link.bandwidth_gb_per_s:g} {link.kind}"
        for link in topology.links
        if link.kind not in (LinkKind.PCIE, LinkKind.UPI)
    )
    links = ", ".join(f"{count} x {name}" for name, count in sorted(fast.items())) or "PCIe only"
    return (
        f"{len(topology.gpus)} GPUs, {len(topology.nics)} NICs, {len(topology.devices)} devices, "
        f"{len(topology.notes)} notes; {links}"
    )


def test_verdicts_are_those_of_the_golden_file() -> None:
    assert [_verdict(path) for path in _paths()] == GOLDEN.read_text("utf-8").splitlines()


@pytest.mark.long
def test_fingerprints_are_equal_only_for_equal_machines() -> None:
    by_fingerprint: dict[str, list[str]] = {}
    for path in _paths():
        try:
            by_fingerprint.setdefault(read_topology(path).fingerprint(), []).append(path.stem)
        except MachineError:
            continue
    alike = sorted(sorted(names) for names in by_fingerprint.values() if len(names) > 1)
    # Four GPU-NIC quartets at two clouds; RCCL models that differ in names or CPU model at most.
    assert alike == [
        ["azure-ndv4-a100x8", "oci-a100x8-b4-flattened"],
        ["topo_4p3l_n2_1", "topo_collnet_n1"],
        ["topo_8p1h", "topo_8p1h_n1"],
        ["topo_8p_4nics", "topo_8p_rome_4nics"],
    ]
