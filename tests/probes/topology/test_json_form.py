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

_lines = st.text('ab/0: "\\é漢😀', max_size=6)
_names = st.text('ab/0: "\\é漢😀', min_size=1, max_size=6)
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
    devices=st.lists(_devices, max_size=3).map(tuple),
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
    "text",
    [
        "",
        "[1]",
        "[" * 100_000,
        "{}",
        _changed(schema_version=3),
        _changed(schema_version=True),
        _changed(colour="red"),
        _changed(devices=[{"name": "x", "kind": "toaster", "node": 0}]),
        _changed(devices=[{"kind": "gpu", "node": 0}]),
        _changed(devices=[{"name": "x", "kind": "gpu", "node": "0"}]),
        _changed(name="two\nlines"),
        _changed(name="x" * 257),
        _changed(notes=["\x1b[31m"]),
        _gpu(name="gpu\r0"),
        _gpu(model="H200"),
        _gpu(model="10DE:20B2"),
        _gpu(model="10de:20b2\n"),
        _changed(links=[{}]),
    ],
)
def test_an_unreadable_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MachineError) as caught:
        topology_from_json(text, "m.json")
    assert str(caught.value).startswith("m.json: ")
    assert "\n" not in str(caught.value)


def test_a_figure_that_json_cannot_hold_is_not_written() -> None:
    link = Link("a", "b", LinkKind.PCIE, float("inf"), 0.0, Provenance.SPEC)
    with pytest.raises(ValueError, match="JSON"):
        topology_to_json(Topology("t", (), (link,)))
