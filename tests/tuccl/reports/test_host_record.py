"""The record of a measured host: what it holds, and that `ship` puts it into the manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from probes.files.read import read_topology, shipped_machines
from probes.host import probe
from probes.host.probe import HostProbeOptions
from probes.nvidia import nvml
from probes.pci.tree import DirectoryTree
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tests.probes.host.sysfs_host import GPUS, write_host
from tests.probes.nvidia.nvml_session import RecordedNvml, session
from tests.tuccl.shipping.job_roots import run_of_one_rank
from tests.tuccl.shipping.watching.watched_tables import GPU, recorded
from tuccl.errors import MachineError
from tuccl.reports import host_record
from tuccl.reports.host_record import (
    HostRecord,
    host_record_text,
    is_of_machine,
    read_host_record,
    record_host,
    record_node,
)
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.shipping.shipment import ship
from tuccl.tuning.pipeline import stages
from tuccl.workspace.runs import Run

H200 = {"10de:2335"}


@pytest.fixture(scope="module")
def machine() -> Topology:
    return read_topology(shipped_machines()["h200-4gpu-measured"])


@pytest.fixture
def record(machine: Topology) -> HostRecord:
    return recorded(machine, GPU, GPU, GPU, GPU)


def test_a_record_is_read_as_it_was_written(
    record: HostRecord, machine: Topology, tmp_path: Path
) -> None:
    path = tmp_path / "host.json"
    path.write_text(host_record_text(record))
    found = read_host_record(path)
    assert found == record
    assert found.topology() == machine
    path.write_text('{"host": 1}')
    assert read_host_record(path) is None
    assert read_host_record(tmp_path / "none") is None


def test_a_damaged_structure_is_an_error(record: HostRecord) -> None:
    with pytest.raises(MachineError, match="schema_version"):
        replace(record, structure={}).topology()


def test_this_host_is_recorded_as_a_probe_gives_it() -> None:
    first, second = record_host(), record_host()
    assert first is not None
    assert second is not None
    assert first.topology().fingerprint() == second.topology().fingerprint()


def test_a_host_of_other_gpus_is_not_of_the_machine(record: HostRecord) -> None:
    assert is_of_machine(record, H200, (4,))
    assert not is_of_machine(record, H200, (8,))
    assert not is_of_machine(record, {"10de:20b2"}, (4,))


def test_a_rank_that_sees_one_gpu_records_all_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_host(tmp_path / "root")
    inventory = probe.read_inventory(DirectoryTree(root), HostProbeOptions(root))
    monkeypatch.setattr(probe, "read_inventory", lambda *_: inventory)
    monkeypatch.setattr(nvml, "NvmlCalls", lambda: RecordedNvml(session()))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    found = record_node(H200, (4, 8))
    assert found is not None
    assert [gpu.bus_id for gpu in found.topology().gpus] == list(GPUS)
    seen = record_node(H200, (1, 2))
    assert seen is not None
    assert [gpu.bus_id for gpu in seen.topology().gpus] == [GPUS[2]]
    assert record_node(H200, (8,)) is None


def test_a_run_records_its_host_once_and_ship_puts_it_into_the_manifest(
    record: HostRecord, machine: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_one_rank(tmp_path / "run")
    run.topology.write_text(topology_to_json(machine))
    monkeypatch.setattr(host_record, "record_host", lambda **_: record)
    stages._record_host(run, machine)
    later = replace(record, driver="590.1")
    monkeypatch.setattr(host_record, "record_host", lambda **_: later)
    stages._record_host(run, machine)
    assert read_host_record(run.host) == record
    ship(run, tmp_path / "shipped")
    listed = read_manifest(tmp_path / "shipped")
    assert listed is not None
    assert (listed.host, listed.graphs, listed.in_place) == (record, True, False)
    assert read_topology(tmp_path / "shipped" / "machine.json") == machine


def test_a_host_of_another_machine_is_not_recorded(
    record: HostRecord, machine: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    fewer = replace(machine, devices=tuple(d for d in machine.devices if d.name != "n0/gpu3"))
    monkeypatch.setattr(host_record, "record_host", lambda **_: record)
    stages._record_host(run, fewer)
    assert not run.host.exists()


def test_a_machine_that_a_later_table_lacks_is_removed(machine: Topology, tmp_path: Path) -> None:
    run = run_of_one_rank(tmp_path / "run")
    run.topology.write_text(topology_to_json(machine))
    ship(run, tmp_path / "shipped")
    run.topology.unlink()
    ship(run, tmp_path / "shipped")
    assert not (tmp_path / "shipped" / "machine.json").exists()
    listed = json.loads((tmp_path / "shipped" / MANIFEST_NAME).read_text())
    assert listed["host"] is None
