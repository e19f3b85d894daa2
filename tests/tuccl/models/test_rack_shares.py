"""What links between racks leave of the NICs, worked by hand for two racks of four nodes."""

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, Shape
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from synthesizer.programs.phase_plans import phased_plans
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.across_hosts.phased_model import wire_times
from tuccl.models.communicator_parts import is_touched
from tuccl.models.figures import machine_figures
from tuccl.models.nccl_choice import nccl_choice
from tuccl.models.nccl_model import builtin_time_us
from tuccl.models.rack_shares import NO_RACKS, RackShares
from tuccl.models.siblings import SiblingMachines
from tuccl.search.trials.config import STOCK

SIZE = 1 << 30


def a100(
    oversubscription: float = 1.0,
    racks: tuple[int, ...] = (4, 4),
    layout: NetworkLayout = NetworkLayout.RAILS,
) -> Topology:
    """Eight nodes; NICs of 25 GB/s send 24 GB/s, which PCIe lets through."""
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    network = Network(2.0, layout, racks=racks, oversubscription=oversubscription)
    return replicate(machine, sum(racks), network)


def stock_us(topology: Topology, operation: Collective) -> float:
    machine = machine_figures(topology)
    return builtin_time_us(operation, SIZE, nccl_choice(operation, SIZE, STOCK, machine), machine)


@pytest.mark.parametrize("layout", list(NetworkLayout))
def test_patterns_share_what_their_pairs_put_on_an_uplink(layout: NetworkLayout) -> None:
    # An uplink of 4 x 25 / 8 GB/s. A ring leaves a rack once, each tree twice with a quarter each
    # way, PAT 12 of 7 pieces, alltoall from four nodes to four of seven others.
    found = machine_figures(a100(8.0, layout=layout)).racks
    assert found.ring == pytest.approx(12.5 / 24)
    assert found.tree == pytest.approx(12.5 / 24)
    assert found.pat == pytest.approx(12.5 / (24 * 12 / 7))
    assert found.pairs == pytest.approx(12.5 / (24 * 16 / 7))
    grid = grid_figures(a100(8.0, layout=layout))
    assert grid.rail_gb_per_s == pytest.approx(24.0), "the racks are not counted twice"
    assert grid.rail.racks == found


def test_two_racks_at_half_slow_down_alltoall_alone() -> None:
    found = machine_figures(a100(2.0)).racks
    assert (found.ring, found.tree, found.pat) == (1.0, 1.0, 1.0)
    assert found.pairs == pytest.approx(50 / (24 * 16 / 7))
    assert machine_figures(a100(1.0)).racks == NO_RACKS
    assert machine_figures(a100(racks=(8,))).racks == NO_RACKS


def test_nodes_in_turn_cross_with_every_hop_of_a_ring() -> None:
    """A ring over nodes that alternate between two racks leaves a rack from each of its nodes."""
    machine = a100(4.0, (2, 2))
    # Nodes 1 and 2 change places: 0 and 2 are in one rack now.
    swap = {"n1": "n2", "n2": "n1"}

    def moved(name: str) -> str:
        host, _, rest = name.partition("/")
        return f"{swap.get(host, host)}/{rest}" if rest else name

    turned = replace(
        machine,
        links=tuple(
            replace(link, src=moved(link.src), dst=moved(link.dst)) for link in machine.links
        ),
    )
    assert machine_figures(machine).racks.ring == pytest.approx(12.5 / 24)
    assert machine_figures(turned).racks.ring == pytest.approx(12.5 / 48)


@pytest.mark.parametrize("operation", [Collective.ALLTOALL, Collective.ALL_GATHER])
def test_a_call_takes_what_the_uplink_takes(operation: Collective) -> None:
    whole, narrow = stock_us(a100(), operation), stock_us(a100(8.0), operation)
    share = machine_figures(a100(8.0)).racks.of(operation, NcclAlgorithm.RING)
    assert narrow / whole == pytest.approx(1 / share, rel=0.15)


def test_a_plan_promises_no_more_than_the_uplinks_carry() -> None:
    (plan, *_) = phased_plans(Collective.ALLTOALL, 8, 8)
    narrow = wire_times(plan, SIZE, grid_figures(a100(8.0))).in_turn_us
    # Half of the data of the 32 ranks of a rack leaves it over eight uplinks of 12.5 GB/s.
    assert narrow > 32 * SIZE / 2 / (8 * 12.5e3)


def test_rails_divide_the_uplink_of_one_fabric() -> None:
    rail = Shape(8, 8, 1)
    own = SiblingMachines(a100(8.0)).slowest_figures(rail)
    shared = SiblingMachines(a100(8.0, layout=NetworkLayout.FABRIC)).slowest_figures(rail)
    assert own.racks.ring == shared.racks.ring == pytest.approx(12.5 / 24)


def test_a_narrower_uplink_touches_what_crosses_it() -> None:
    before, now = a100(1.0), a100(4.0)
    assert is_touched(before, now, Shape(8, 8, 1))
    assert is_touched(before, now, Shape(64, 8, 8))
    assert not is_touched(before, now, Shape(8, 1, 8))


def test_the_best_share_is_that_of_the_algorithm_that_crosses_least() -> None:
    shares = RackShares(ring=0.5, tree=0.25, pat=0.75, pairs=0.125)
    assert shares.best(Collective.ALL_GATHER) == 0.75
    assert shares.best(Collective.ALLTOALL) == 0.125
    assert shares.of(Collective.ALL_REDUCE, NcclAlgorithm.TREE) == 0.25
