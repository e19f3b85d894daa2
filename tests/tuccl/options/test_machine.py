"""Racks of a machine that the command line describes."""

import pytest

from tuccl.errors import UsageError
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions

A100 = "shipped:a100-8gpu-8nic"


def test_racks_and_oversubscription_describe_the_network() -> None:
    machine = load_machine(MachineOptions(A100, 8, racks="4, 4", oversubscription=2.0))
    (uplink,) = machine.links_between["rail3-leaf1", "rail3-spine"]
    assert (uplink.bandwidth_gb_per_s, uplink.lanes) == (50.0, 4)


@pytest.mark.parametrize("racks", ["4,5", "8,0", "4;4", "", "-4,12", "4,4,"])
def test_racks_that_do_not_hold_the_nodes_are_refused(racks: str) -> None:
    with pytest.raises(UsageError, match="give the number of nodes in each rack, all --nodes 8"):
        load_machine(MachineOptions(A100, 8, racks=racks))


def test_oversubscription_needs_racks() -> None:
    with pytest.raises(UsageError, match="give them, as --racks 4,4"):
        load_machine(MachineOptions(A100, 8, oversubscription=2.0))
    with pytest.raises(UsageError, match=r"--oversubscription 0.5 is out of range"):
        load_machine(MachineOptions(A100, 8, racks="4,4", oversubscription=0.5))
