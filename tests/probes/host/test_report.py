"""Reports of hosts as JSON: written reports are read, other texts are refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.files.read import read_topology, shipped_machines
from probes.host.report import HostIdentity, HostReport, report_from_json, report_to_json
from probes.network.ports import NetworkPort
from probes.p2p.figures import GpuFigures, P2pFigures, PairFigures
from probes.p2p.report import Figure
from probes.topology.graph import Topology
from tuccl.errors import MachineError

MACHINE = replace(read_topology(shipped_machines()["a100-8gpu-8nic"]), hosts=("node7",))
REPORT = HostReport(
    identity=HostIdentity("node7", "6f1c", "4026531840"),
    topology=MACHINE,
    ports=tuple(
        NetworkPort(0, "node7", nic.index, nic.os_name or f"mlx5_{nic.index}", address="10.0.0.7")
        for nic in MACHINE.nics
    ),
    missing_tools=("ib_write_bw",),
)
TEXT = report_to_json(REPORT)


def test_a_report_comes_back_as_it_was_sent() -> None:
    assert len(REPORT.ports) == 8
    read = report_from_json(TEXT, "node7")
    assert read == REPORT
    assert read.topology.notes == REPORT.topology.notes
    assert report_to_json(read) == TEXT
    assert "\n" not in TEXT


def test_rdma_subnets_travel_and_reports_from_before_them_are_read() -> None:
    ports = tuple(
        replace(
            port,
            management_address="192.168.0.7",
            rdma_subnet="InfiniBand fe80::/64",
            other_addresses=("10.1.0.7/24", "fe80::7%eth0/64"),
        )
        for port in REPORT.ports
    )
    sent = replace(REPORT, ports=ports)
    assert report_from_json(report_to_json(sent), "node7") == sent
    content = json.loads(TEXT)
    for port in content["ports"]:
        for field in ("management_address", "rdma_subnet", "other_addresses"):
            del port[field]
    assert report_from_json(json.dumps(content), "node7") == REPORT


def test_a_host_without_gpus_and_ports_has_a_report() -> None:
    bare = HostReport(HostIdentity("node8"), Topology("node8", (), ()), ())
    assert report_from_json(report_to_json(bare), "node8") == bare


MEASURED = replace(
    REPORT,
    gpu_figures=P2pFigures(
        pairs=(
            PairFigures("n0/gpu0", "n0/gpu1", Figure(270.5, 0.01), None, None, None, None),
            PairFigures(
                "n0/gpu1",
                "n0/gpu0",
                *(Figure(median, 0.0) for median in (270.0, 255.0, 256.0, 1.1, 0.7)),
            ),
        ),
        gpus=(GpuFigures("n0/gpu7", Figure(25.0, 0.02), Figure(24.0, 0.0), None, None),),
    ),
)


def test_figures_of_gpus_travel_and_a_report_without_them_is_read() -> None:
    text = report_to_json(MEASURED)
    assert report_from_json(text, "node7") == MEASURED
    assert json.loads(text)["gpu_figures"]["pairs"][0]["copy_engine_gb_per_s"] == {
        "median": 270.5,
        "spread": 0.01,
    }
    assert "gpu_figures" not in json.loads(TEXT)
    assert report_from_json(TEXT, "node7").gpu_figures is None


@pytest.mark.parametrize(
    ("where", "fields"),
    [
        ("pairs", {"dst": "n0/gpu8"}),
        ("pairs", {"dst": "n0/gpu0"}),
        ("pairs", {"src": "n0/gpu1", "dst": "n0/gpu0"}),
        ("pairs", {"flag_latency_us": {"median": -1.0, "spread": 0.0}}),
        ("pairs", {"speed": 1.0}),
        ("gpus", {"gpu": "n0/nic0"}),
        ("gpus", {"fan_out_gb_per_s": 3.0}),
    ],
)
def test_figures_that_cannot_be_are_refused(where: str, fields: dict[str, object]) -> None:
    content = json.loads(report_to_json(MEASURED))
    content["gpu_figures"][where][0] |= fields
    with pytest.raises(MachineError):
        report_from_json(json.dumps(content), "node7")


def changed(**parts: object) -> str:
    return json.dumps(json.loads(TEXT) | parts)


def port(**fields: object) -> str:
    content = json.loads(TEXT)
    content["ports"][0] |= fields
    return json.dumps(content)


def device(**fields: object) -> str:
    content = json.loads(TEXT)
    content["topology"]["devices"][0] |= fields
    return json.dumps(content)


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT[:-2],
        "[" * 100_000,
        "[]",
        changed(schema_version=2),
        changed(schema_version=True),
        changed(more=1),
        changed(identity={"hostname": "a"}),
        changed(topology=[]),
        changed(topology={"schema_version": 9}),
        device(name="n0/gpu1"),
        device(size=1),
        port(nic=8),
        port(host=1),
        port(nic=1),
        port(nic="0"),
        port(line_rate_gb_per_s=-1.0),
        port(line_rate_gb_per_s=float("nan")),
        port(host_name="a\nb"),
        port(prefix_length=129),
    ],
)
def test_a_text_that_is_not_a_report_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MachineError, match=r"^node7: ") as caught:
        report_from_json(text, "node7")
    assert "\n" not in str(caught.value)


@given(st.data())
def test_a_cut_or_changed_report_is_refused_or_read_and_nothing_else(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(TEXT) - 1))
    letter = data.draw(st.sampled_from('0"{}[],: -ex'))
    for text in (TEXT[:index], TEXT[:index] + letter + TEXT[index + 1 :]):
        try:
            report_from_json(text, "node7")
        except MachineError:
            continue
