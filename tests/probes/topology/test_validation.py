from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    PairLimit,
    Provenance,
    Topology,
)
from probes.topology.validation import check_structure, validate
from tests.probes.machines import both_ways, gpu, ring, shipped
from tuccl.errors import InvalidTopologyError

PAIR = ring([0, 1], name="pair")


class _LinkFields(TypedDict, total=False):
    dst: str
    bandwidth_gb_per_s: float
    latency_us: float
    lanes: int


def _with_link(**fields: Unpack[_LinkFields]) -> Topology:
    first = replace(PAIR.links[0], **fields)
    return replace(PAIR, links=(first, *PAIR.links[1:]))


def test_a_good_machine_passes() -> None:
    validate(PAIR)
    validate(shipped())
    validate(shipped("h200-4gpu"))


@pytest.mark.parametrize(
    "topology",
    [
        replace(PAIR, devices=(*PAIR.devices, gpu(1))),
        _with_link(dst="n0/gpu9"),
        _with_link(dst="n0/gpu0"),
        _with_link(bandwidth_gb_per_s=0.0),
        _with_link(bandwidth_gb_per_s=-3.0),
        _with_link(bandwidth_gb_per_s=float("nan")),
        _with_link(bandwidth_gb_per_s=float("inf")),
        _with_link(latency_us=-0.5),
        _with_link(latency_us=float("nan")),
        _with_link(lanes=0),
        replace(PAIR, devices=(replace(PAIR.devices[0], node=NETWORK_NODE), *PAIR.devices[1:])),
        replace(PAIR, devices=(*PAIR.devices, Device("far", DeviceKind.CPU, -2))),
        replace(PAIR, devices=(*PAIR.devices, Device("two\nlines", DeviceKind.CPU, 0))),
        replace(
            PAIR,
            devices=(*PAIR.devices, Device("x", DeviceKind.NIC, 0, line_rate_gb_per_s=-1.0)),
        ),
        replace(PAIR, name="two\nlines"),
        replace(PAIR, name="x" * 257),
        replace(PAIR, devices=(*PAIR.devices, Device("x" * 257, DeviceKind.CPU, 0))),
        replace(PAIR, devices=(replace(PAIR.devices[0], model="abc:1"), *PAIR.devices[1:])),
    ],
)
def test_a_broken_rule_is_named_in_one_line(topology: Topology) -> None:
    with pytest.raises(InvalidTopologyError) as caught:
        check_structure(topology)
    assert "\n" not in str(caught.value)


def test_one_gpu_is_nothing_to_tune_but_sound() -> None:
    alone = Topology("alone", (gpu(0),), ())
    check_structure(alone)
    with pytest.raises(InvalidTopologyError, match="a topology with one GPU: nothing to tune"):
        validate(alone)


def test_unreachable_gpus_are_both_named() -> None:
    apart = Topology("apart", (gpu(0), gpu(1), gpu(2)), tuple(both_ways("n0/gpu0", "n0/gpu1")))
    with pytest.raises(InvalidTopologyError, match="'n0/gpu0' cannot reach GPU 'n0/gpu2'"):
        validate(apart)


def test_a_one_way_street_is_unreachable_backwards() -> None:
    forward = Link("n0/gpu0", "n0/gpu1", LinkKind.NVLINK, 25.0, 0.7, Provenance.SPEC)
    with pytest.raises(InvalidTopologyError, match="'n0/gpu1' cannot reach GPU 'n0/gpu0'"):
        validate(Topology("one way", (gpu(0), gpu(1)), (forward,)))


@pytest.mark.long
def test_too_many_devices_are_refused_at_once() -> None:
    cpus = tuple(Device(f"c{i}", DeviceKind.CPU, 0) for i in range(65_537))
    with pytest.raises(InvalidTopologyError, match="65,537 devices, at most 65,536"):
        check_structure(Topology("huge", cpus, ()))


@pytest.mark.parametrize(
    "limit",
    [
        PairLimit("n0/gpu0", "n0/gpu9", 1.0),
        PairLimit("n0/gpu0", "n0/gpu0", 1.0),
        PairLimit("n0/gpu0", "n0/gpu1", 0.0),
        PairLimit("n0/gpu0", "n0/gpu1", 1.0, -1.0),
    ],
)
def test_a_measured_limit_that_cannot_be_is_refused(limit: PairLimit) -> None:
    with pytest.raises(InvalidTopologyError):
        check_structure(replace(PAIR, limits=(limit,)))


def test_devices_of_one_host_are_bounded() -> None:
    nics = tuple(Device(f"nic{i}", DeviceKind.NIC, i % 2, i) for i in range(2048))
    check_structure(Topology("two hosts", nics, ()))
    crowded = (*nics, Device("one more", DeviceKind.NIC, 1))
    with pytest.raises(InvalidTopologyError, match="1,025 devices on host 1, at most 1,024"):
        check_structure(Topology("crowded", crowded, ()))
