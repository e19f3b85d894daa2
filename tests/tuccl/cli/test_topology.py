"""`tuccl topology show`, `diff`, `import`, `export` and `draw` as a user runs them."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from probes.files.read import read_topology
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.graph import LinkKind, Provenance
from probes.topology.json_form import topology_from_json, topology_to_json
from probes.topology.replicate import Network, replicate
from tests.probes.two_port_machines import with_second_ports
from tests.tuccl.conftest import Run

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(a100: Path, tmp_path: Path) -> Path:
    """Three named hosts on rails."""
    machine = replicate(read_topology(a100), 3, Network(1.7))
    path = tmp_path / "cluster.json"
    path.write_text(topology_to_json(replace(machine, hosts=("red", "green", "blue"))))
    return path


def test_show_prints_a_tree_or_the_whole_in_json(run_inside: Run, h200: Path) -> None:
    done = run_inside("topology", "show", h200)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("h200-4gpu: 1 host, 4 GPUs\nfingerprint ")
    assert "NVSwitch: 4 GPUs x 18 links, 450 GB/s (spec) each" in done.stdout
    document = json.loads(run_inside("topology", "show", "shipped:h200-4gpu", "--json").stdout)
    back = topology_from_json(json.dumps(document["topology"]), "back")
    assert back.fingerprint() == document["fingerprint"] == read_topology(h200).fingerprint()
    assert document["hosts_alike"] == [[0]]


def test_show_without_a_file_lists_what_is_shipped(run_inside: Run) -> None:
    done = run_inside("topology", "show")
    assert done.returncode == 0
    assert "shipped:a100-8gpu-8nic  1 host, 8 GPUs, 8 NICs, 4 PCIe switches\n" in done.stdout
    document = json.loads(run_inside("topology", "show", "--json").stdout)
    assert {"a100-8gpu-8nic", "h200-4gpu"} <= {entry["name"] for entry in document["shipped"]}
    unknown = run_inside("topology", "show", "shipped:dgx9")
    assert unknown.returncode == 2
    assert "there are shipped:a100-8gpu-8nic, " in unknown.stderr


def test_diff_tells_changes_by_its_exit_code_and_figures_on_request(
    run_inside: Run, h200: Path, tmp_path: Path
) -> None:
    machine = read_topology(h200)

    def with_nvlink_at(gb_per_s: float) -> Path:
        links = (
            replace(link, bandwidth_gb_per_s=gb_per_s, provenance=Provenance.MEASURED)
            if link.kind is LinkKind.NVLINK and "n0/gpu2" in (link.src, link.dst)
            else link
            for link in machine.links
        )
        path = tmp_path / f"{gb_per_s}.json"
        path.write_text(topology_to_json(replace(machine, links=tuple(links))))
        return path

    same = run_inside("topology", "diff", h200, with_nvlink_at(386.0))
    assert (same.returncode, same.stdout) == (0, "")
    assert "the same kind of machine" in same.stderr
    figures = run_inside("topology", "diff", h200, with_nvlink_at(386.0), "--figures")
    assert figures.returncode == 0
    assert figures.stdout == (
        "NVLink n0/gpu2 <-> n0/nvswitch0 does 386 GB/s (measured), it did 450 GB/s (spec).\n"
    )
    slower = run_inside("topology", "diff", h200, with_nvlink_at(193.0))
    assert slower.returncode == 1
    assert slower.stdout == (
        "NVLink n0/gpu2 <-> n0/nvswitch0 is slower: 193 GB/s, it did 450 (43%).\n"
    )
    document = json.loads(
        run_inside("topology", "diff", h200, with_nvlink_at(193.0), "--json").stdout
    )
    assert document["same"] is False
    assert len(document["changes"]) == 1


def test_import_writes_json_and_notes_apart(run_inside: Run, tmp_path: Path) -> None:
    table = (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tNV4\t0-7\t0\n"
        "GPU1\tNV4\t X \t0-7\t0\n"
    )
    source, target = tmp_path / "topo.txt", tmp_path / "out" / "machine.json"
    source.write_text(table)
    done = run_inside("topology", "import", source, "-o", target)
    assert (done.returncode, done.stdout) == (0, "")
    assert "note: " in done.stderr
    machine = topology_from_json(target.read_text(), "out")
    assert len(machine.gpus) == 2
    piped = run_inside("topology", "import", source, "-o", "-")
    assert piped.stdout == run_inside("topology", "import", source).stdout == target.read_text()
    told = json.loads(run_inside("topology", "import", source, "-o", target, "--json").stdout)
    assert told["fingerprint"] == machine.fingerprint()
    assert told["remarks"] == list(machine.notes)


def test_export_takes_one_host_of_a_cluster(run_inside: Run, cluster: Path, a100: Path) -> None:
    refused = run_inside("topology", "export", cluster)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "export one of its 3 hosts (--host)" in refused.stderr
    by_name = run_inside("topology", "export", cluster, "--host", "green")
    assert by_name.returncode == 0
    assert "note: The make of 2 CPUs was chosen" in by_name.stderr
    assert by_name.stdout == run_inside("topology", "export", cluster, "--host", "1").stdout
    back = parse_nccl_xml(by_name.stdout, "back")
    assert back.fingerprint() == read_topology(a100).fingerprint()
    for wrong in ("3", "-1", "yellow", "1" * 5000):
        unknown = run_inside("topology", "export", cluster, f"--host={wrong}")
        assert unknown.returncode == 2
        assert "give a number from 0 to 2, or a name" in unknown.stderr


def test_draw_writes_a_picture(run_inside: Run, cluster: Path, tmp_path: Path) -> None:
    done = run_inside("topology", "draw", cluster, "-o", tmp_path / "cluster.svg")
    assert done.returncode == 0
    picture = (tmp_path / "cluster.svg").read_text(encoding="utf-8")
    assert ET.fromstring(picture).tag.endswith("svg")  # noqa: S314 - our own text
    assert "3 hosts alike: red, green, blue" in picture
    refused = run_inside("topology", "draw", cluster, "-o", tmp_path / "cluster.png")
    assert refused.returncode == 2
    assert "a drawing is SVG" in refused.stderr
    assert not (tmp_path / "cluster.png").exists()
    assert run_inside("topology", "draw", cluster, "-o", tmp_path / "v1.2").returncode == 0
    before = cluster.read_bytes()
    same = run_inside("topology", "draw", cluster, "-o", cluster)
    assert same.returncode == 2
    assert "is read by this command" in same.stderr
    assert cluster.read_bytes() == before


def test_bad_files_are_one_line_and_leave_no_output(run_inside: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema_version": 99}')
    for command in ("import", "export", "draw"):
        done = run_inside("topology", command, bad, "-o", tmp_path / "out")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "out").exists()
    folder = run_inside("topology", "export", "shipped:h200-4gpu", "-o", tmp_path)
    assert folder.returncode == 2
    assert "is a directory: name a file in it" in folder.stderr
    mixed = run_inside("topology", "draw", "shipped:h200-4gpu", "--json")
    assert mixed.returncode == 2
    assert "give one with -o" in mixed.stderr


def test_one_slower_nvlink_beside_nics_with_two_ports_is_one_line(
    run_inside: Run, a100: Path, tmp_path: Path
) -> None:
    text = with_second_ports(a100.read_text())
    (tmp_path / "old.xml").write_text(text)
    (tmp_path / "new.xml").write_text(text.replace('count="12"', 'count="6"', 1))
    done = run_inside("topology", "diff", "old.xml", "new.xml")
    assert done.returncode == 1
    assert done.stdout == (
        "NVLink n0/gpu0 <-> n0/nvswitch0 has 6 lanes, it had 12: 150 GB/s, it did 300 (50%).\n"
    )
