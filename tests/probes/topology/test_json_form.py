import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.topology.graph import (
    Device,
    DeviceKind,
    Link,
    LinkKind,
    PairLimit,
    Provenance,
    Topology,
)
from probes.topology.json_form import topology_from_json, topology_to_json
from tests.probes.machines import ring, shipped
from tuccl.errors import MachineError

_lines = st.text(max_size=12).filter(str.isprintable)
_names = _lines.filter(bool)
_figures = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
_small = st.integers(0, 1000)
_devices = st.builds(
    Device,
    name=_names,
    kind=st.sampled_from(DeviceKind),
    node=st.integers(-1, 100),
    index=_small,
    model=st.just("") | st.from_regex("[0-9a-f]{4}:[0-9a-f]{4}", fullmatch=True),
    bus_id=_lines,
    compute_capability=_small,
    line_rate_gb_per_s=_figures,
    os_name=_lines,
    memory_bytes=st.integers(0, 2**48),
)
_links = st.builds(
    Link,
    src=_names,
    dst=_names,
    kind=st.sampled_from(LinkKind),
    bandwidth_gb_per_s=_figures,
    latency_us=_figures,
    provenance=st.sampled_from(Provenance),
    lanes=_small,
    latency_provenance=st.sampled_from(Provenance),
    spread=_figures,
)
_limits = st.builds(PairLimit, src=_names, dst=_names, bandwidth_gb_per_s=_figures, spread=_figures)
_topologies = st.builds(
    Topology,
    name=_lines,
    devices=st.lists(_devices, max_size=5).map(tuple),
    links=st.lists(_links, max_size=5).map(tuple),
    notes=st.lists(_lines, max_size=3).map(tuple),
    hosts=st.lists(_lines, max_size=3).map(tuple),
    limits=st.lists(_limits, max_size=3).map(tuple),
)


@pytest.mark.long
@given(_topologies)
def test_what_is_written_is_read_back(topology: Topology) -> None:
    text = topology_to_json(topology)
    again = topology_from_json(text, "here")
    assert again == topology
    assert again.notes == topology.notes
    assert topology_to_json(again) == text


def test_the_form_is_stable() -> None:
    content = json.loads(topology_to_json(ring([0, 1])))
    assert list(content) == [
        "schema_version",
        "name",
        "hosts",
        "devices",
        "links",
        "limits",
        "notes",
    ]
    assert content["schema_version"] == 2
    assert content["links"][0] == {
        "src": "n0/gpu0",
        "dst": "n0/gpu1",
        "kind": "nvlink",
        "bandwidth_gb_per_s": 25.0,
        "latency_us": 0.7,
        "provenance": "spec",
        "lanes": 1,
        "latency_provenance": "assumed",
        "spread": 0.0,
    }


def test_a_real_machine_survives() -> None:
    assert topology_from_json(topology_to_json(shipped()), "here") == shipped()


def _changed(**changes: object) -> str:
    return json.dumps(json.loads(topology_to_json(ring([0, 1]))) | changes)


def _gpu(**changes: object) -> str:
    return _changed(devices=[{"name": "n0/gpu0", "kind": "gpu", "node": 0} | changes])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[1]", "holds no object"),
        ("[" * 100_000, "not valid JSON"),
        ("{}", "no schema_version; this release reads topologies of schema_version 2"),
        (_changed(schema_version=3), "schema_version 3; this release reads"),
        (_changed(schema_version=True), "schema_version True"),
        (_changed(colour="red"), "colour: Extra inputs are not permitted"),
        (_changed(devices=[{"name": "x", "kind": "toaster", "node": 0}]), "devices.0.kind: "),
        (_changed(devices=[{"kind": "gpu", "node": 0}]), "devices.0.name: Field required"),
        (_changed(devices=[{"name": "x", "kind": "gpu", "node": "0"}]), "devices.0.node: "),
        (_changed(name="two\nlines"), "name: 'two\\nlines' must have printable characters only"),
        (_changed(name="x" * 257), "name: String should have at most 256 characters"),
        (_changed(notes=["\x1b[31m"]), "notes.0: '\\x1b[31m' must have printable"),
        (_gpu(name="gpu\r0"), "devices.0.name: 'gpu\\r0' must have printable"),
        (_gpu(model="H200"), "devices.0: device 'n0/gpu0': its model must be PCI vendor:device"),
        (_gpu(model="10DE:20B2"), "lower-case hex like 10de:20b2, or empty, not '10DE:20B2'"),
        (_gpu(model="10de:20b2\n"), "device"),
        (_changed(links=[{}]), "(and 5 more)"),
    ],
)
def test_an_unreadable_text_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(MachineError) as caught:
        topology_from_json(text, "m.json")
    assert str(caught.value).startswith("m.json: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_figure_that_json_cannot_hold_is_not_written() -> None:
    link = Link("a", "b", LinkKind.PCIE, float("inf"), 0.0, Provenance.SPEC)
    with pytest.raises(ValueError, match="JSON"):
        topology_to_json(Topology("t", (), (link,)))
