"""Data is printed as it is: a bus id with `:ab:` in it is no emoji, `[red]` no colour."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from probes.host.preflight import Check, CheckStatus
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology
from probes.topology.json_form import topology_to_json
from tests.tuccl.conftest import Run
from tuccl.crew.cluster_probe import ProbeResult
from tuccl.views.terminal import display
from tuccl.views.terminal.probe_summary import print_checks, print_probe

BUS_IDS = tuple(f"0000:{bus:02x}:00.0" for bus in range(256))
MARKED = "[red]:smiley:[/red]"


def _machine(rate_gb_per_s: float = 25.0) -> Topology:
    """A NIC on each bus there is, and two GPUs."""
    nics = tuple(
        Device(
            f"n0/nic{bus}",
            DeviceKind.NIC,
            0,
            bus,
            bus_id=bus_id,
            line_rate_gb_per_s=rate_gb_per_s,
            os_name=f"{MARKED}{bus}",
        )
        for bus, bus_id in enumerate(BUS_IDS)
    )
    gpus = tuple(Device(f"n0/gpu{rank}", DeviceKind.GPU, 0, rank) for rank in range(2))
    cpu = Device("n0/cpu0", DeviceKind.CPU, 0)
    links = tuple(
        Link(*ends, LinkKind.PCIE, 24.0, 0.1, Provenance.SYSFS, 16)
        for device in (*gpus, *nics)
        for ends in ((device.name, cpu.name), (cpu.name, device.name))
    )
    notes = (f"Buses: {' '.join(BUS_IDS)}", MARKED)
    host = f"host-{BUS_IDS[0xAB]}"
    return Topology("machine", (*gpus, *nics, cpu), links, notes, (host,))


def _holds_every_bus_id(text: str) -> bool:
    return set(BUS_IDS) <= set(re.findall(r"0000:[0-9a-f]{2}:00\.0", text))


@pytest.mark.long
def test_trees_and_differences_hold_every_bus_id(run_inside: Run, tmp_path: Path) -> None:
    for name, rate in (("old", 25.0), ("new", 12.5)):
        (tmp_path / f"{name}.json").write_text(topology_to_json(_machine(rate)))
    shown = run_inside("topology", "show", "old.json")
    assert shown.returncode == 0
    assert _holds_every_bus_id(shown.stdout.partition("notes")[0])
    assert _holds_every_bus_id(shown.stdout.partition("notes")[2])
    changed = run_inside("topology", "diff", "old.json", "new.json")
    assert changed.returncode == 1
    sentences = changed.stdout.splitlines()
    assert len(sentences) == len(BUS_IDS)
    assert all(bus_id in line for bus_id, line in zip(BUS_IDS, sentences, strict=True))


def test_notes_and_complaints_hold_every_bus_id(
    run_inside: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for bus_id in BUS_IDS:
        display.say(f"note: {bus_id} {MARKED}")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"note: {bus_id} {MARKED}" for bus_id in BUS_IDS]
    (tmp_path / "machine.json").write_text(topology_to_json(_machine()))
    document = json.loads((tmp_path / "machine.json").read_text())
    assert document["notes"][1] == MARKED
    done = run_inside("topology", "import", "machine.json", "-o", "again.json")
    assert f"note: {MARKED}\n" in done.stderr
    assert _holds_every_bus_id(done.stderr)
    unknown = run_inside("topology", "show", f"shipped:{BUS_IDS[0xAB]}")
    assert unknown.returncode == 2
    assert BUS_IDS[0xAB] in unknown.stderr


def test_tables_hold_every_bus_id(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        Check(f"{bus_id}", CheckStatus.OK, f"[red]{bus_id}", f":ab:{bus_id}", bus_id)
        for bus_id in BUS_IDS
    ]
    print_checks(checks)
    table = capsys.readouterr().out
    for bus_id in BUS_IDS:
        assert table.count(bus_id) >= 3
    assert "[red]0000" in table
    machine = replace(_machine(), name=f"{BUS_IDS[0xAB]} {MARKED}")
    print_probe(ProbeResult(machine, (), None, (), (), {f"{BUS_IDS[0xAB]}{MARKED}": 1.0}))
    said = capsys.readouterr().out
    assert said.startswith(f"{BUS_IDS[0xAB]} {MARKED}: 1 host, ")
    assert f"  host-{BUS_IDS[0xAB]}: " in said
    assert f"- {MARKED}\n" in said
    assert f"{BUS_IDS[0xAB]}{MARKED} 1.0 s; 0 measurements" in said
    assert _holds_every_bus_id(said)
