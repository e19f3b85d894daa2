"""Times of schedules in stages and rounds: worked by hand, and beside the same plan of phases."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import NcclProtocol
from probes.topology.graph import Link, LinkKind, Topology
from sketches.candidates import whole_machine
from synthesizer.experts import expert_algorithms
from synthesizer.programs.cutting import cut
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import PhasedSchedule
from tests.sketches.machines import cluster
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tuccl.errors import ConfigurationFailedError
from tuccl.models.across_hosts.gpu_ways import gpu_ways
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.across_hosts.phased_model import PhasedModel, PhaseParameters
from tuccl.models.across_hosts.staged_load import StagedLoad, StageLoad, staged_load
from tuccl.models.across_hosts.staged_model import StagedModel
from tuccl.models.executor_model import KernelParameters
from tuccl.models.model_constants import SHIPPED
from tuccl.schedules.staged_candidates import node_sizes_of

RUNTIME = Path(__file__).resolve().parents[4] / "tuccl" / "runtime" / "executor"
KIB, MIB = 1 << 10, 1 << 20
LL, LL128 = NcclProtocol.LL, NcclProtocol.LL128
KERNELS = KernelParameters(LL, 4, 512)
MACHINE = Uneven((2, 1), 1, "mesh").topology()
"""A100 with NVLink of 50 GB/s between ranks 0 and 1, and a NIC of 12.5 GB/s a node."""
CLOCK, LATENCY_US = 0.71, 2 * 0.85


def staged_of(collective: Collective, name: str, topology: Topology = MACHINE) -> PhasedSchedule:
    machine = whole_machine(topology)
    (found,) = (each for each in expert_algorithms(collective, machine) if each.name == name)
    return cut(found, node_sizes_of(machine))


def exchange() -> PhasedSchedule:
    """Rank 1 sends to 0, 0 and 2 exchange, both add, and 0 sends the sum to 1."""
    return staged_of(Collective.ALL_REDUCE, "all_reduce_recursive_doubling")


def load(staged: PhasedSchedule, topology: Topology = MACHINE) -> StagedLoad:
    return staged_load(staged, gpu_ways(topology))


def round_us(protocol: NcclProtocol, size_bytes: int, messages: int = 1) -> float:
    costs = SHIPPED.of(protocol)
    channel = 1e3 * CLOCK * costs.ring_gb_per_s * 512 / (512 + costs.half_threads)
    payload = 0.5 if protocol is LL else 1.0
    limits = (size_bytes / 2 / channel, messages * size_bytes / (12.5e3 * 1.07 * payload))
    hops = messages * SHIPPED.network_hop_us + SHIPPED.network_latencies * LATENCY_US
    return costs.base_us / CLOCK + hops + hypot(*limits)


def test_an_exchange_asks_for_chains_of_chunks_and_one_message() -> None:
    found = load(exchange())
    assert found.stages == (StageLoad(1.0, 1 / 50e3), StageLoad(1.5, 1 / 50e3))
    (sent,) = found.rounds
    assert (sent.messages, sent.message_chunks, sent.rank_chunks, sent.peer_chunks) == (1, 1, 1, 1)
    assert sent.network_us_per_byte == pytest.approx(1 / 12.5e3)
    assert found.arrivals == 1


def test_a_message_waits_until_its_receiver_needs_it() -> None:
    """Rank 0 of three sends to 1 and 2, and takes what they sent to it afterwards."""
    topology = Uneven((3, 1), 1, "mesh").topology()
    gather = staged_of(Collective.ALL_GATHER, "all_gather_all_pairs", topology)
    stage = load(gather, topology).rounds[0].beside
    # Two chunks are sent and two received, half a handover each, and a copy of a rank's own.
    assert stage is not None
    assert stage.handovers == 2.5
    assert stage.wire_us_per_byte == pytest.approx(2 / 50e3)


@pytest.mark.parametrize(
    ("size_bytes", "protocol"), [(4 * KIB, LL), (16 * KIB, LL), (64 * KIB, NcclProtocol.SIMPLE)]
)
def test_an_exchange_takes_its_stages_and_its_round(
    size_bytes: int, protocol: NcclProtocol
) -> None:
    # Four blocks of 512 threads copy 37.9 GB/s; of the NVLink LL reaches 0.4.
    first = 2.5 + 0.45 + size_bytes / 20e3
    last = 2.5 + 1.5 * 0.45 + size_bytes / 20e3
    taken = StagedModel(exchange(), MACHINE).time_us(size_bytes, KERNELS)
    assert taken == pytest.approx(first + round_us(protocol, size_bytes) + last)


def _narrow(link: Link) -> Link:
    is_nvlink = link.kind is LinkKind.NVLINK
    return replace(link, bandwidth_gb_per_s=0.005) if is_nvlink else link


def test_each_further_message_of_a_rank_costs_a_hop() -> None:
    gather = staged_of(Collective.ALL_GATHER, "all_gather_all_pairs")
    found = load(gather)
    # Rank 2 sends to 0 and to 1, and receives from both, over its node's one NIC.
    (sent,) = found.rounds
    assert (sent.messages, sent.rank_chunks, sent.peer_chunks) == (2, 2, 1)
    chunk = 1 * KIB
    assert found.stages == (None, None), "the round sends inputs, and receives results"
    # Beside that ranks 0 and 1 send to each other, and all copy their own.
    beside = found.rounds[0].beside
    assert beside is not None
    assert (beside.handovers, beside.wire_us_per_byte) == (1.5, 1 / 50e3)
    taken = StagedModel(gather, MACHINE).time_us(3 * chunk, KERNELS)
    assert taken == pytest.approx(2.5 + round_us(LL, chunk, messages=2))
    slow = replace(MACHINE, links=tuple(_narrow(link) for link in MACHINE.links))
    assert StagedModel(gather, slow).time_us(3 * chunk, KERNELS) == pytest.approx(
        2.5 + 2.5 + 1.5 * 0.45 + chunk / (0.4 * 5.0)
    )


def test_over_tcp_two_ranks_have_a_share_of_a_thread_in_each_communicator() -> None:
    """3.2 GB/s a thread, 0.4 of it for two ranks; NICs carry 12.5 GB/s."""
    nics = [replace(nic, os_name="eth0") for nic in MACHINE.nics]
    others = [device for device in MACHINE.devices if device not in MACHINE.nics]
    tcp = replace(MACHINE, devices=(*others, *nics))
    fast = KernelParameters(LL128, 64, 512)
    size, chunk = 96 * MIB, 32 * MIB
    # Both chunks that rank 2 sends go to another rank each: 1.28 GB/s for one, not 3.2 for both.
    gather = StagedModel(staged_of(Collective.ALL_GATHER, "all_gather_all_pairs"), tcp)
    one = gather.time_us(size, fast)
    assert one == pytest.approx(chunk / 1.28e3, rel=0.01)
    assert gather.time_us(size, fast, size // 4, lanes=4) == pytest.approx(one / 4, rel=0.15)


def test_what_the_staging_memory_does_not_hold_takes_further_launches() -> None:
    model = StagedModel(exchange(), MACHINE)
    fast = KernelParameters(LL128, 64, 512)
    # A half holds 15 MiB of data with LL128: 64 MiB are five launches of both stages.
    data = [model.time_us(size, fast) - 5 * 2.5 for size in (15 * MIB, 15 * MIB + 16)]
    assert data[1] - data[0] == pytest.approx(2 * 2.5 + 2.5 * 0.60, rel=0.01)
    assert model.time_us(64 * MIB, fast) > 4 * model.time_us(15 * MIB, fast)


def test_the_executor_has_such_a_staging_memory() -> None:
    need = (RUNTIME / "staging_need.cc").read_text()
    programs = (RUNTIME / "program_staging.h").read_text()
    assert "#define TUCCL_MOST_STAGE_LINES_BYTES (16 << 20)" in need
    assert "kMostHalfBytes[TUCCL_PROTOCOLS] = {size_t{8} << 20, size_t{16} << 20," in programs


def test_slices_overlap_rounds_with_stages() -> None:
    model, fast = StagedModel(exchange(), MACHINE), KernelParameters(LL128, 64, 512)
    size = 16 * MIB
    whole, halves = (model.time_us(size, fast, slice_bytes) for slice_bytes in (size, size // 2))
    # Two slices: the round of one is beside the stages of the second but for the first and last.
    half = 2.5 + 0.60 + size / 2 / (0.73 * 50e3)
    last = half + 0.5 * 0.60
    rounds = 2 * round_us(NcclProtocol.SIMPLE, size // 2)
    assert halves == pytest.approx(half + rounds + last, rel=0.01)
    assert halves < 0.85 * whole
    # Slices of three adjacent chunks are messages of their own.
    chunks = replace(exchange(), chunks=3)
    assert load(chunks).rounds[0].messages == 1
    with_hops = StagedModel(chunks, MACHINE).time_us(4 * KIB, KERNELS, 1 * KIB)
    assert with_hops > StagedModel(chunks, MACHINE).time_us(4 * KIB, KERNELS)


def test_lanes_carry_the_rounds_of_several_slices_at_once() -> None:
    fast, size = KernelParameters(LL128, 64, 512), 16 * MIB
    model = StagedModel(exchange(), MACHINE)
    # The second round starts when its stage has ended, and has the network behind the first.
    half = 2.5 + 0.60 + size / 2 / (0.73 * 50e3)
    last = half + 0.5 * 0.60
    data = size / 2 / (12.5e3 * 1.07)
    one = round_us(NcclProtocol.SIMPLE, size // 2)
    assert model.time_us(size, fast, size // 2, 2) == pytest.approx(
        half + max(half + one, 2 * data) + last, rel=0.01
    )
    assert StagedModel(replace(exchange(), lanes=2), MACHINE).time_us(
        size, fast, size // 2
    ) == model.time_us(size, fast, size // 2, 2)
    assert half + 2 * one + last == pytest.approx(model.time_us(size, fast, size // 2), rel=0.01)


def test_more_scratch_memory_than_there_is_and_simple_are_refused() -> None:
    model = StagedModel(exchange(), MACHINE)
    assert model.time_us(256 * MIB, KERNELS) > 0
    with pytest.raises(ConfigurationFailedError, match="scratch memory"):
        model.time_us(256 * MIB + 16, KERNELS)
    with pytest.raises(ConfigurationFailedError, match="stages do not run with Simple"):
        model.time_us(KIB, KernelParameters(NcclProtocol.SIMPLE, 4, 512))


@pytest.mark.parametrize("size_bytes", [KIB, 16 * KIB, 256 * KIB, 4 * MIB])
def test_a_plan_of_phases_in_rounds_takes_little_more(size_bytes: int) -> None:
    """The same exchange; a pattern's kernel serves all peers at once, a stage one by one."""
    topology = cluster(2, 4, 4)
    staged = StagedModel(
        staged_of(Collective.ALL_REDUCE, "all_reduce_three_step", topology), topology
    )
    plan = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 4)
    phased = PhasedModel(grid_figures(topology), SHIPPED)
    kernels = KernelParameters(LL128, 8, 512)
    of_phases = phased.time_us(plan, size_bytes, PhaseParameters(kernels, 1))
    assert 0.9 < staged.time_us(size_bytes, kernels) / of_phases < 1.6


@pytest.mark.long
@pytest.mark.parametrize("collective", [Collective.ALL_REDUCE, Collective.ALL_GATHER])
@pytest.mark.parametrize("topology", [MACHINE, cluster(2, 4, 1), cluster(3, 2, 2)])
def test_no_schedule_is_faster_than_its_transfers(
    collective: Collective, topology: Topology
) -> None:
    machine = whole_machine(topology)
    for algorithm in expert_algorithms(collective, machine):
        model = StagedModel(cut(algorithm, node_sizes_of(machine)), topology)
        for size_bytes in (KIB, MIB, 16 * MIB):
            wires = model.wires_us(size_bytes)
            assert wires > LATENCY_US
            # Payload of Simple was fitted to 1.07 of the NIC's figure.
            assert wires < 1.07 * model.time_us(size_bytes, KernelParameters(LL128, 64, 512))
