"""The simulated backend: what it charges, and what its model sees of a configuration."""

from dataclasses import replace
from statistics import median, quantiles

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import NcclProtocol, Shape
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Topology
from probes.topology.replicate import Network, replicate
from sketches.candidates import whole_machine
from sketches.sketch import EdgeKind
from synthesizer.experts import expert_algorithms
from tests.sketches.machines import cluster, hybrid_mesh
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.measuring.backends.simulated import SimulatedBackend, noisy_samples
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.across_hosts.phased_model import PhasedModel, PhaseParameters
from tuccl.models.across_hosts.staged_model import StagedModel
from tuccl.models.executor_model import KernelParameters, with_network_hops
from tuccl.models.figures import machine_figures
from tuccl.models.model_constants import SHIPPED
from tuccl.models.nccl_choice import COLLNET_ON, NVLS_OFF
from tuccl.models.placements import PlacementClass, placements
from tuccl.models.siblings import SiblingMachines
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.phased_candidates import phased_candidates
from tuccl.schedules.staged_candidates import RoundsRequest, staged_candidates
from tuccl.search.trials.backend import RunningProfiles
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.timing import Computation, Timing

SHAPE = Shape(4, 1, 4)
MIB = 1 << 20


@pytest.fixture(scope="module")
def h200() -> Topology:
    return read_topology(shipped_machines()["h200-4gpu"])


def time_us(
    backend: SimulatedBackend, size_bytes: int, config: Config, shape: Shape = SHAPE
) -> float:
    task = Task(Collective.ALL_REDUCE, size_bytes, shape)
    return backend.measure(task, config, 0, 1).samples_us[0]


def test_samples_cost_their_calls_and_the_telling(h200: Topology) -> None:
    backend = SimulatedBackend(h200, {}, seed=0, spread=0.0)
    started = backend.measure(Task(Collective.ALL_REDUCE, 1 * MIB, SHAPE), STOCK, 0, 1).seconds
    assert started == pytest.approx(backend.restart_s, rel=0.01)
    for size_bytes, calls in ((1 * MIB, 20), (64 * MIB, 5), (256 * MIB, 2)):
        measured = backend.measure(Task(Collective.ALL_REDUCE, size_bytes, SHAPE), STOCK, 0, 3)
        assert measured.seconds == pytest.approx(0.002 + 3 * calls * measured.samples_us[0] * 1e-6)
    assert backend.restart_s == 3.0


def test_every_part_of_a_process_profile_shows(h200: Topology) -> None:
    backend = SimulatedBackend(h200, {}, seed=0, spread=0.0)
    stock = {size: time_us(backend, size, STOCK) for size in (64 << 10, MIB, 256 * MIB)}
    fewer_threads = ProcessProfile(nthreads=128).default
    assert time_us(backend, 64 << 10, fewer_threads) < stock[64 << 10]
    assert time_us(backend, 256 * MIB, fewer_threads) > 1.1 * stock[256 * MIB]
    more_channels = ProcessProfile(min_nchannels=32).default
    assert time_us(backend, MIB, more_channels) < 0.95 * stock[MIB]
    few = Config("ring", "Simple", 8)
    small_buffer = replace(few, buffer_bytes=256 << 10)
    assert time_us(backend, 256 * MIB, small_buffer) > 1.2 * time_us(backend, 256 * MIB, few)


def test_beside_computation_more_channels_cost_what_they_take_of_the_gpu(h200: Topology) -> None:
    """An H200 has 132 multiprocessors."""
    task = Task(Collective.ALL_REDUCE, 4 * MIB, SHAPE)
    beside = Timing(computations=(Computation(task.operation, SHAPE, 4 * MIB, 1000.0),))
    alone = SimulatedBackend(h200, {}, seed=0, spread=0.0)
    together = SimulatedBackend(h200, {}, seed=0, spread=0.0, timing=beside)
    for channels in (2, 16):
        config = Config("ring", "Simple", channels)
        expected = 1000.0 + time_us(alone, 4 * MIB, config) * channels / 132
        assert time_us(together, 4 * MIB, config) == pytest.approx(expected)
    sketch = whole_machine(h200)
    algorithm = next(iter(expert_algorithms(Collective.ALL_REDUCE, sketch)))
    blocks = max(len(gpu.threadblocks) for gpu in algorithm.programs)
    own = {algorithm.content_hash(): Candidate(algorithm, sketch, "")}
    alone = SimulatedBackend(h200, own, seed=0, spread=0.0)
    together = SimulatedBackend(h200, own, seed=0, spread=0.0, timing=beside)
    config = Config(f"schedule:{algorithm.content_hash()}", "Simple", 2, 512, 1 << 20)
    expected = 1000.0 + time_us(alone, 4 * MIB, config) * 2 * blocks / 132
    assert time_us(together, 4 * MIB, config) == pytest.approx(expected)


def test_constants_of_a_calibrated_machine_are_used_and_said(h200: Topology) -> None:
    slower = replace(SHIPPED, ll=replace(SHIPPED.ll, base_us=SHIPPED.ll.base_us + 10.0))
    backends = [SimulatedBackend(h200, {}, 0, 0.0, constants) for constants in (SHIPPED, slower)]
    times = [time_us(backend, 4096, STOCK) for backend in backends]
    assert times[1] == pytest.approx(times[0] + 10.0)
    assert [backend.provenance.details.endswith(", calibrated") for backend in backends] == [
        False,
        True,
    ]


def test_a_variable_that_the_model_does_not_know_is_no_free_gain(h200: Topology) -> None:
    backend = SimulatedBackend(h200, {}, seed=0, spread=0.0)
    config = Config("ring", "LL", 4, settings=(("NCCL_CGA_CLUSTER_SIZE", "2"),))
    with pytest.raises(ConfigurationFailedError, match="does not know NCCL_CGA_CLUSTER_SIZE"):
        time_us(backend, MIB, config)


def test_an_hgx_h100_allows_nvls_and_knows_the_variable_that_switches_it_off(
    h200: Topology,
) -> None:
    h100 = read_topology(shipped_machines()["h100-8gpu-8nic"])
    backend = SimulatedBackend(h100, {}, seed=0, spread=0.0)

    def names(machine: Topology, shape: Shape) -> str:
        asked = SimulatedBackend(machine, {}, seed=0, spread=0.0)
        table = asked.cost_table(Task(Collective.ALL_REDUCE, MIB, shape))
        assert table is not None
        return table.names

    whole = Shape(8, 1, 8)
    assert "nvls Simple" in names(h100, whole)
    assert "nvls Simple" in names(h100, Shape(2, 1, 2)), "pairs"
    assert "nvls" not in names(h200, SHAPE), "its virtual machine has no multicast"
    off = Config("default", settings=NVLS_OFF)
    ring = Config("ring", "Simple")
    stock_us, off_us, ring_us = (time_us(backend, 64 * MIB, c, whole) for c in (STOCK, off, ring))
    assert stock_us < off_us == ring_us
    with pytest.raises(ConfigurationFailedError, match="nvls is not in the model"):
        time_us(backend, MIB, Config("nvls", "Simple", settings=NVLS_OFF), whole)


def test_a_cluster_whose_network_sums_has_collnet_under_a_variable() -> None:
    machine = load_machine(MachineOptions("shipped:a100-8gpu-8nic", nodes=2))
    nics = {nic.name for nic in machine.nics}
    devices = (replace(d, network_sums=d.name in nics) for d in machine.devices)
    sums, whole = replace(machine, devices=tuple(devices)), Shape(16, 2, 8)
    stock, base = (
        SimulatedBackend(sums, {}, seed=0, spread=0.0, base=base) for base in ((), COLLNET_ON)
    )

    def names(backend: SimulatedBackend, shape: Shape) -> str:
        table = backend.cost_table(Task(Collective.ALL_REDUCE, MIB, shape))
        assert table is not None
        return table.names

    assert "collnet" not in names(stock, whole)
    assert "collnet_direct Simple, collnet_chain Simple" in names(base, whole)
    assert "collnet" not in names(base, Shape(2, 2, 1)), "which rails get streams is not known"
    on = replace(STOCK, settings=COLLNET_ON)
    stock_us, on_us = (time_us(stock, 64 * MIB, config, whole) for config in (STOCK, on))
    direct = Config("collnet_direct", "Simple")
    base_us, direct_us = (time_us(base, 64 * MIB, config, whole) for config in (STOCK, direct))
    assert on_us == base_us == direct_us < 0.7 * stock_us
    plain = SimulatedBackend(machine, {}, seed=0, spread=0.0)
    assert time_us(plain, 64 * MIB, on, whole) == stock_us


def test_a_plan_of_phases_takes_what_its_model_says_under_its_profile() -> None:
    topology = replicate(
        read_topology(shipped_machines()["a100-8gpu-8nic"]), 2, Network(latency_us=2.0)
    )
    grid, whole = grid_figures(topology), Shape(16, 2, 8)
    found = phased_candidates(Collective.ALL_REDUCE, grid, whole_machine(topology), (MIB,))
    plan = next(each for each in found if each.name == "all_reduce_rail_all_reduce*2")
    backend = SimulatedBackend(topology, {plan.content_hash: plan}, seed=0, spread=0.0)
    sliced = Config(f"phases:{plan.content_hash}", "LL128", 8, 512, 512 << 10)
    profile = ProcessProfile(min_nchannels=16)
    for config in (sliced, replace(sliced, settings=profile.variables)):
        kernels = KernelParameters(NcclProtocol.LL128, 8, 512)
        parameters = PhaseParameters(kernels, slices=2, profile=config.profile)
        assert plan.phases is not None
        expected = PhasedModel(grid, SHIPPED).time_us(plan.phases, MIB, parameters)
        assert time_us(backend, MIB, config, whole) == pytest.approx(expected)
    assert time_us(backend, MIB, sliced, whole) < 0.7 * time_us(backend, MIB, STOCK, whole)
    with pytest.raises(MeasurementError, match="schedule 0123 is not among those of this run"):
        time_us(backend, MIB, replace(sliced, algorithm="phases:0123"), whole)
    unknown = replace(sliced, settings=(("NCCL_NSOCKS_PERTHREAD", "2"),))
    with pytest.raises(ConfigurationFailedError, match="does not know NCCL_NSOCKS_PERTHREAD"):
        time_us(backend, MIB, unknown, whole)


def test_stages_and_rounds_take_what_their_model_says() -> None:
    topology = Uneven((2, 1), 1, "mesh").topology()
    machine, whole = whole_machine(topology), Shape(3, 2, 0)
    (found, *_) = staged_candidates(RoundsRequest(Collective.ALL_REDUCE, topology, machine, (MIB,)))
    assert found.phased is not None
    constants = replace(SHIPPED, network_hop_us=20.0, phase_launch_us=3.0)
    schedules = {found.content_hash: found}
    backend = SimulatedBackend(topology, schedules, seed=0, spread=0.0, constants=constants)
    config = Config(f"phases:{found.content_hash}", "LL128", 8, 512, 1 << 30)
    model = StagedModel(found.phased, topology, constants)
    kernels = KernelParameters(NcclProtocol.LL128, 8, 512)
    expected = model.time_us(MIB, kernels)
    assert time_us(backend, MIB, config, whole) == pytest.approx(expected)
    sliced = replace(config, buffer_bytes=256 << 10)
    in_slices = model.time_us(MIB, kernels, 256 << 10)
    assert time_us(backend, MIB, sliced, whole) == pytest.approx(in_slices) != expected
    # Sends and receives are no collectives: what a profile asks of these changes nothing.
    profile = ProcessProfile(min_nchannels=16)
    profiled = replace(config, settings=profile.variables)
    assert time_us(backend, MIB, profiled, whole) == pytest.approx(expected)
    with pytest.raises(ConfigurationFailedError, match="scratch memory"):
        time_us(backend, 1 << 34, config, whole)


def test_schedules_pay_for_the_network_what_nccl_pays() -> None:
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    sketch = whole_machine(replicate(machine, 2, Network(latency_us=2.0)))
    figures = machine_figures(replicate(machine, 2, Network(latency_us=2.0)))
    dear = with_network_hops(sketch, figures, SHIPPED)
    added = SHIPPED.network_hop_us + (SHIPPED.network_latencies - 1.0) * 2.0
    for before, after in zip(sketch.edges, dear.edges, strict=True):
        extra = added if before.kind is EdgeKind.NETWORK else 0.0
        assert after.alpha_us == pytest.approx(before.alpha_us + extra)
    assert any(edge.kind is EdgeKind.NETWORK for edge in sketch.edges)


def test_a_shape_has_the_machine_that_its_siblings_leave_it() -> None:
    hosts = cluster(2, 8, 2)
    backend = SimulatedBackend(hosts, {}, seed=0, spread=0.0)

    def taken_us(shape: Shape) -> float:
        task = Task(Collective.ALL_GATHER, 64 * MIB, shape)
        return backend.measure(task, STOCK, 0, 1).samples_us[0]

    whole, node, rail = Shape(16, 2, 8), Shape(8, 1, 8), Shape(2, 2, 1)
    alone = SimulatedBackend(SiblingMachines(hosts).slowest(node), {}, seed=0, spread=0.0)
    task = Task(Collective.ALL_GATHER, 64 * MIB, node)
    assert taken_us(node) == alone.measure(task, STOCK, 0, 1).samples_us[0]
    assert taken_us(node) < taken_us(whole)
    # Eight rails share two NICs; a machine of one GPU a node has a NIC for itself.
    single = SimulatedBackend(cluster(2, 1, 1), {}, seed=0, spread=0.0)
    task = Task(Collective.ALL_GATHER, 64 * MIB, rail)
    assert taken_us(rail) > 3.0 * single.measure(task, STOCK, 0, 1).samples_us[0]


def test_one_schedule_takes_other_times_on_other_shapes() -> None:
    """Two ranks exchange halves over NVLink in a node, over the network along a rail."""
    hosts = cluster(2, 2, 2)
    pairs, rails = Shape(2, 1, 2), Shape(2, 2, 1)
    sketches = {s: whole_machine(SiblingMachines(hosts).slowest(s)) for s in (pairs, rails)}
    algorithm = next(iter(expert_algorithms(Collective.ALL_GATHER, sketches[pairs])))
    content_hash = algorithm.content_hash()
    backend = SimulatedBackend(
        *(hosts, {}, 0, 0.0),
        of_shapes={s: {content_hash: Candidate(algorithm, sketches[s], "")} for s in sketches},
    )
    config = Config(f"schedule:{content_hash}", "Simple", 4, 256, 1 << 20)
    node_us, rail_us = (
        backend.measure(Task(Collective.ALL_GATHER, 16 * MIB, s), config, 0, 1).samples_us[0]
        for s in (pairs, rails)
    )
    assert rail_us > 2.0 * node_us
    with pytest.raises(MeasurementError, match="is not among those of this run"):
        backend.measure(Task(Collective.ALL_GATHER, MIB, Shape(4, 2, 2)), config, 0, 1)


def test_a_schedule_takes_other_times_where_ranks_sit_elsewhere() -> None:
    """GPUs 0 and 1 of a DGX-1 have one NVLink, GPUs 2 and 3 two; a ring of four is no ring of
    every other GPU."""
    mesh, pairs, quads = hybrid_mesh(), Shape(2, 1, 2), Shape(4, 1, 4)
    sketches = {s: whole_machine(SiblingMachines(mesh).slowest(s)) for s in (pairs, quads)}
    made = {s: next(iter(expert_algorithms(Collective.ALL_GATHER, sketches[s]))) for s in sketches}
    hashes = {s: algorithm.content_hash() for s, algorithm in made.items()}
    backend = SimulatedBackend(
        *(mesh, {}, 0, 0.0),
        of_shapes={s: {hashes[s]: Candidate(made[s], sketches[s], "")} for s in sketches},
    )

    def time_on(own: PlacementClass, shape: Shape) -> float:
        config = Config(f"schedule:{hashes[shape]}", "Simple", 4, 256, 1 << 20)
        task = Task(Collective.ALL_GATHER, 64 * MIB, shape, own.placement)
        (us,) = backend.measure(task, config, 0, 1).samples_us
        return us

    one_link, two_links = placements(mesh, pairs)
    assert time_on(one_link, pairs) > 1.5 * time_on(two_links, pairs)
    neighbours, every_other = placements(mesh, quads)
    assert time_on(neighbours, quads) > 0
    with pytest.raises(ConfigurationFailedError, match="not on these links"):
        time_on(every_other, quads)


def test_a_schedule_runs_on_whatever_workers_are_up() -> None:
    running = RunningProfiles()
    few_threads = Config("ring", "LL", 4, 128)
    configs = (few_threads, Config("schedule:a", "LL", 4, 256), few_threads, STOCK)
    assert [running.run(config) for config in configs] == [True, False, False, True]


@pytest.mark.parametrize("config", [Config("ring", "LL", 64), Config("default", min_nchannels=64)])
def test_beyond_what_the_model_was_fitted_to_it_says_nothing(
    h200: Topology, config: Config
) -> None:
    with pytest.raises(ConfigurationFailedError, match="no more than 32 channels"):
        time_us(SimulatedBackend(h200, {}, seed=0, spread=0.0), 4096, config)


def test_noise_has_the_asked_spread_around_the_true_time_and_follows_seed_and_subject() -> None:
    samples = noisy_samples(100.0, "subject", 0, 0.01, 0, 4000)
    assert abs(median(samples) - 100.0) < 0.1
    low, _, high = quantiles(samples, n=4)
    assert abs((high - low) / 1.35 - 1.0) < 0.1
    assert noisy_samples(100.0, "subject", 0, 0.01, 11, 19) == samples[11:30]
    for seed, subject in ((1, "subject"), (0, "another")):
        assert noisy_samples(100.0, subject, seed, 0.01, 0, 5) != samples[:5]
