"""What nobody measured of a machine, and a model computes with all the same."""

from __future__ import annotations

from dataclasses import replace

from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Provenance, Topology
from probes.topology.json_form import topology_from_json, topology_to_json
from probes.topology.replicate import Network, replicate
from probes.topology.unmeasured import unmeasured

HEAD = "Assumed and not measured, though these times rest on it: "


def machine(name: str) -> Topology:
    return read_topology(shipped_machines()[name])


def test_a_nic_that_states_no_speed_is_named_where_a_network_joins_it() -> None:
    """The probe took 10 Gbit/s for it, as NCCL does; inside the host no call uses it."""
    measured = machine("h200-4gpu-measured")
    (nic,) = measured.nics
    assert nic.line_rate_provenance is Provenance.ASSUMED
    assert unmeasured(measured) == ""
    two = replicate(measured, 2, Network(latency_us=2.0))
    assert unmeasured(two) == f"{HEAD}10 Gbit/s for eth0; 2 us from NIC to NIC."
    again = topology_from_json(topology_to_json(two), "two")
    assert again == two
    named = replicate(measured, 2, Network(latency_us=2.0, bandwidth_gb_per_s=25.0))
    assert unmeasured(named) == f"{HEAD}2 us from NIC to NIC."


def test_a_nic_that_states_its_speed_is_not_assumed() -> None:
    stated = machine("a100-8gpu-8nic")
    assert {nic.line_rate_provenance for nic in stated.nics} == {Provenance.SYSFS}
    assert unmeasured(stated) == ""
    two = replicate(stated, 2, Network(latency_us=2.0))
    assert unmeasured(two) == f"{HEAD}2 us from NIC to NIC."
    links = tuple(replace(link, latency_provenance=Provenance.MEASURED) for link in two.links)
    assert unmeasured(replace(two, links=links)) == ""


def test_gpus_of_an_unknown_generation_are_told() -> None:
    stated = machine("h200-4gpu")
    devices = tuple(replace(device, compute_capability=0) for device in stated.devices)
    unknown = replace(stated, devices=devices)
    found = unmeasured(unknown, of_nccl=True)
    assert found == f"{HEAD}GPUs as fast as an A100, as no compute capability is stated."
    assert unmeasured(unknown) == unmeasured(stated, of_nccl=True) == ""


def test_assumed_links_of_gpus_are_named_by_their_kind() -> None:
    stated = machine("a100-8gpu-8nic")
    links = tuple(replace(link, provenance=Provenance.ASSUMED) for link in stated.links)
    assert unmeasured(replace(stated, links=links)) == f"{HEAD}300 GB/s of NVLink for GPUs."
