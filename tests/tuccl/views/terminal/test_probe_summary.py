"""GPU figures of `tuccl probe`: JSON by host, a line by group of equal hosts."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from probes.cluster.merge import merge_hosts
from probes.files.read import machine_from_bytes
from probes.host.report import HostIdentity, HostReport
from probes.p2p.apply import apply_p2p
from probes.p2p.figures import P2pFigures, p2p_figures
from probes.p2p.report import P2pReport, read_p2p_report
from tests.probes.machines import shipped
from tests.probes.p2p.reports import report
from tuccl.cli.probe import SCHEMA_VERSION, probe_as_dict
from tuccl.crew.cluster_probe import ProbeResult
from tuccl.errors import MachineError
from tuccl.views.terminal.display import plain_console
from tuccl.views.terminal.probe_summary import figures_line, print_topology

GOLDEN = Path(__file__).parents[3] / "probes" / "p2p" / "golden" / "h200-4gpu.json"
H200 = [f"0000:00:0{i}.0" for i in (6, 7, 8, 9)]
MACHINE = shipped("h200-4gpu")
REAL = read_p2p_report(GOLDEN.read_text())
REAL_WORDS = (
    "a write and its fence 0.96 us; copies to host 55, from host 55.2, "
    "to all other GPUs at once 390, from all others 392 GB/s"
)


def host(name: str, measured: P2pReport | None) -> HostReport:
    topology = replace(MACHINE, name=name, hosts=(name,))
    if measured is None:
        return HostReport(HostIdentity(name), topology, ())
    figures = p2p_figures(topology, measured)
    topology = apply_p2p(topology, measured)
    return HostReport(HostIdentity(name), topology, (), gpu_figures=figures)


def probed(*reports: HostReport) -> ProbeResult:
    merged = merge_hosts(reports)
    return ProbeResult(
        merged.topology, (), None, (), merged.odd_hosts, {}, gpu_figures=merged.gpu_figures
    )


def shown(result: ProbeResult, columns: int = 132) -> list[str]:
    text = io.StringIO()
    print_topology(result.topology, plain_console(file=text, width=columns), result.gpu_figures)
    return text.getvalue().splitlines()


def test_no_figure_of_the_matrix_is_cut_where_there_is_little_room() -> None:
    result = probed(host("node7", REAL))
    wide, narrow = shown(result), shown(result, 40)
    rows = [line.split() for line in wide if line.strip()[:1].isdigit()]
    assert len(rows) >= 4
    assert all(len(line) <= 40 for line in narrow if "|" in line)
    told = re.findall(r"[\d.]+ \| [\d.]+", " ".join(narrow))
    assert told == re.findall(r"[\d.]+ \| [\d.]+", " ".join(wide))


def test_a_real_host_has_a_line_below_its_matrix() -> None:
    lines = shown(probed(host("node7", REAL)))
    assert lines[-1] == f"node7: {REAL_WORDS}"


def test_a_line_tells_ranges_over_all_pairs() -> None:
    figures = {
        ("kernel_write", (0, 1)): 369.0,
        ("kernel_write", (1, 0)): 371.2,
        ("kernel_read", (0, 1)): 372.0,
        ("write_latency", (0, 1)): 0.9,
        ("write_latency", (1, 0)): 0.95,
        ("gpu_to_host", (0,)): 55.0,
        ("gpu_to_host", (1,)): 12.4,
    }
    first = p2p_figures(MACHINE, report(H200, figures))
    assert figures_line([first]) == (
        "kernel copies 369 to 371 GB/s (write), 372 GB/s (read); a write and its fence "
        "0.9 to 0.95 us; copies to host 12.4 to 55 GB/s"
    )
    slow = p2p_figures(MACHINE, report(H200, {("kernel_read", (2, 3)): 150.0}))
    assert "GB/s (write), 150 to 372 GB/s (read); " in figures_line([first, slow])
    assert figures_line([P2pFigures((), ())]) == figures_line([]) == ""


def test_equal_hosts_share_a_line_and_hosts_that_were_not_measured_have_none() -> None:
    equal = shown(probed(host("node2", REAL), host("node1", REAL)))
    assert [line for line in equal if "fence" in line] == [f"node[1-2]: {REAL_WORDS}"]
    half = shown(probed(host("node1", None), host("node2", REAL)))
    assert [line for line in half if "fence" in line] == [f"node2: {REAL_WORDS}"]
    assert not any("fence" in line for line in shown(probed(host("node1", None))))


def test_json_has_the_figures_of_every_measured_host() -> None:
    document = probe_as_dict(probed(host("node3", REAL), host("node2", None), host("node1", REAL)))
    first_host, third_host = document["gpu_pairs"]
    assert (first_host["host"], third_host["host"]) == ("node1", "node3")
    assert len(third_host["pairs"]) == 12
    first = third_host["pairs"][0]
    assert (first["src"], first["dst"], first["kernel_write_gb_per_s"]) == (
        "n2/gpu0",
        "n2/gpu1",
        None,
    )
    assert first["write_latency_us"]["median"] == 0.96
    assert first["write_latency_us"]["spread"] >= 0
    assert [gpu["gpu"] for gpu in first_host["gpus"]] == [f"n0/gpu{i}" for i in range(4)]
    assert probe_as_dict(probed(host("node1", None)))["gpu_pairs"] == []


def test_json_that_is_given_as_a_machine_is_refused_by_name() -> None:
    document = {"schema_version": SCHEMA_VERSION, **probe_as_dict(probed(host("node1", None)))}
    with pytest.raises(MachineError) as caught:
        machine_from_bytes(json.dumps(document).encode(), "p.json")
    assert str(caught.value) == (
        "p.json: the report of `tuccl probe --json`; `tuccl probe -o FILE` writes a topology"
    )
