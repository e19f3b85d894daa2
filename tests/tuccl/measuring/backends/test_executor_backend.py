"""`--backend nccl,executor`: NCCL and schedules on the same workers, over stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path

import pytest

import tuccl.runtime
from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import Shape, Table
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.formats import msccl_xml
from synthesizer.programs.compiler import check_programs
from synthesizer.programs.layout import Pattern
from tests.sketches.machines import cluster
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tests.synthesizer.programs.phased_schedules import has_rounds
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry
from tests.tuccl.silent_progress import silent
from tuccl.crew.places import LocalPlaces, Place
from tuccl.errors import ConfigurationFailedError, MeasurementError, UsageError
from tuccl.measuring.backends import backend_choice
from tuccl.measuring.backends.backend_choice import (
    BackendRequest,
    builtins_of,
    open_backend,
    require_backend,
)
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.measuring.engines.nccl_workers import job_variables
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.siblings import SiblingMachines
from tuccl.options.run_options import RunOptions
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.executor_schedules import (
    executor_programs,
    executor_space,
    pattern_of_candidate,
    with_kernels,
)
from tuccl.schedules.phased_candidates import phased_candidates
from tuccl.schedules.staged_candidates import RoundsRequest, staged_candidates
from tuccl.search.trials.backend import Backend, JobCall, JobTable, RunsJobs
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.timing import Timing
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.stages import initialize
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

SHAPE = Shape(4, 1, 4)
ACROSS = Shape(4, 2, 2)
SIZES = (1024, 1 << 20)
TOPOLOGY = read_topology(shipped_machines()["h200-4gpu"])
TASK = Task(Collective.ALL_REDUCE, 1024, SHAPE)


@pytest.fixture(scope="module", autouse=True)
def no_schedule_is_read_from_xml() -> Iterator[None]:
    """From the experts to what workers measure a schedule has no form but its program."""

    def refuse(text: str, source: str) -> None:
        raise AssertionError(f"{source} was read as XML: {text[:80]}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(msccl_xml, "_parse", refuse)
        yield


@pytest.fixture(scope="module")
def sketches() -> tuple[Sketch, ...]:
    return sketch_candidates(TOPOLOGY)


@pytest.fixture(scope="module")
def candidates(sketches: tuple[Sketch, ...]) -> tuple[Candidate, ...]:
    machine = whole_machine(TOPOLOGY)
    return with_kernels(Collective.ALL_REDUCE, (), sketches, machine, SIZES)


def test_each_kernel_has_one_schedule_that_is_tried_at_every_size(
    candidates: tuple[Candidate, ...],
) -> None:
    patterns = [pattern_of_candidate(candidate) for candidate in candidates]
    assert patterns == [Pattern.ONE_PHASE, Pattern.TWO_PHASE]
    for candidate in candidates:
        assert [promise.size_bytes for promise in candidate.promises] == list(SIZES)
        assert all(0 < promise.ratio <= 1 + 1e-9 for promise in candidate.promises)
    space = executor_space(candidates, 1024)
    assert {family.protocol for family in space.families} == {"LL", "LL128"}
    assert space.size == 2 * 2 * 7 * 4


def test_schedules_of_no_kernel_stay_for_the_interpreter(
    candidates: tuple[Candidate, ...], sketches: tuple[Sketch, ...]
) -> None:
    machine = whole_machine(TOPOLOGY)
    again = with_kernels(Collective.ALL_REDUCE, candidates, sketches, machine, SIZES)
    assert [each.content_hash for each in again] == [each.content_hash for each in candidates]
    gathers = with_kernels(Collective.ALL_GATHER, (), sketches, machine, SIZES)
    assert [pattern_of_candidate(each) for each in gathers] == [Pattern.DIRECT]


def test_the_workers_bundle_names_every_program(candidates: tuple[Candidate, ...]) -> None:
    by_hash = {each.content_hash: each for each in candidates}
    programs = executor_programs(candidates)
    table = read_bundle(programs.bundle, "test")
    assert [schedule.program for schedule in table.schedules] == [
        by_hash[content_hash].program for content_hash in sorted(by_hash)
    ]
    order = [stored.content_hash for stored in table.schedules]
    assert order == sorted(by_hash)
    assert programs.content_hashes == set(by_hash)
    # They are chosen call by call: the executor serves such a bundle without an entry.
    assert table.entries == ()
    assert executor_programs(()).bundle == b""


@pytest.fixture
def stand_ins(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    monkeypatch.syspath_prepend(str(stand_ins.libraries))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    monkeypatch.setenv("STAND_IN_GPUS", "4")
    named = {LIBRARY_VARIABLE: str(stand_ins.nccl)}
    monkeypatch.setattr(backend_choice, "nccl_worker_variables", lambda *_, **__: named)
    return stand_ins


@pytest.fixture
def backend(stand_ins: StandIns, candidates: tuple[Candidate, ...]) -> Iterator[Backend]:
    assert stand_ins.executor.exists()
    schedules = {each.content_hash: each for each in candidates}
    request = BackendRequest(TOPOLOGY, SHAPE, schedules=schedules)
    with open_backend("nccl,executor", request) as opened:
        yield opened


def test_builtins_and_schedules_are_timed_and_checked_on_the_same_workers(
    backend: Backend, candidates: tuple[Candidate, ...]
) -> None:
    assert backend.name == "nccl,executor"
    assert len(backend.measure(TASK, STOCK, 0, 2).samples_us) == 2
    builtin = Config("tree", "Simple", 4, 256)
    assert backend.measure(TASK, builtin, 0, 1).samples_us[0] > 0
    schedule = Config(f"schedule:{candidates[0].content_hash}", "LL", 8, 256, 64 << 10)
    started_s = backend.restart_s
    assert backend.measure(TASK, schedule, 0, 1).samples_us[0] > 0
    # Schedules need no process profile: the workers of the last one go on.
    assert backend.restart_s == started_s
    backend.check(TASK, schedule)
    simple = Config(schedule.algorithm, "Simple", 8, 256, 64 << 10)
    with pytest.raises(ConfigurationFailedError, match="the executor cannot run"):
        backend.measure(TASK, simple, 0, 1)
    with pytest.raises(ConfigurationFailedError, match="has no program of schedule:none"):
        backend.measure(TASK, Config("schedule:none", "LL", 8), 0, 1)
    assert "executor" in backend.provenance.details
    assert os.environ.get("LD_PRELOAD", "") == ""


def test_alltoall_which_no_tuner_is_asked_about_is_timed_as_sends_and_as_a_schedule(
    stand_ins: StandIns, sketches: tuple[Sketch, ...]
) -> None:
    assert stand_ins.executor.exists()
    task = Task(Collective.ALLTOALL, 4096, SHAPE)
    (kernel,) = with_kernels(Collective.ALLTOALL, (), sketches, whole_machine(TOPOLOGY), SIZES)
    assert pattern_of_candidate(kernel) is Pattern.DIRECT
    schedules = {kernel.content_hash: kernel}
    request = BackendRequest(TOPOLOGY, SHAPE, schedules=schedules)
    assert all(config.is_default for config in builtins_of(request, task))
    direct = Config(f"schedule:{kernel.content_hash}", "LL", 8, 256)
    with open_backend("nccl,executor", request) as backend:
        for config in (STOCK, Config("default", "", 0, 256), direct):
            assert backend.measure(task, config, 0, 1).samples_us[0] > 0
            backend.check(task, config)


def test_without_an_executor_no_schedule_is_made_and_what_builds_it_is_named(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stand_ins.executor.exists()
    (tmp_path / "tuccl" / "runtime").mkdir(parents=True)
    request = BackendRequest(TOPOLOGY, SHAPE)
    require_backend("nccl,executor", request)
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path / "tuccl" / "runtime")])
    with pytest.raises(MeasurementError, match="`tuccl build-executor` compiles it"):
        require_backend("nccl,executor", request)
    require_backend("nccl", request)
    settings = RunSettings((Collective.ALL_REDUCE,), (1024,), RunOptions(backend="executor"))
    workspace = Workspace(tmp_path / "workspace")
    with pytest.raises(MeasurementError, match="`tuccl build-executor`"):
        initialize(Prepared(TOPOLOGY, settings), workspace, lambda *_: None)
    assert not list((tmp_path / "workspace").rglob("schedules"))


def plans(operation: Collective, topology: Topology) -> tuple[Candidate, ...]:
    grid, machine = grid_figures(topology), whole_machine(topology)
    return phased_candidates(operation, grid, machine, SIZES)


def test_a_schedule_across_hosts_runs_under_its_profile_and_lets_nccl_choose(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL's calls in it have no setting of the call that was timed before."""
    monkeypatch.setenv("STAND_IN_SLOW_MS", "50")
    monkeypatch.setenv("STAND_IN_COUNTS_TIME", "1")
    assert stand_ins.executor.exists()
    topology = cluster(2, 2, 1)
    (plan, *_) = plans(Collective.ALL_GATHER, topology)
    request = BackendRequest(
        topology,
        ACROSS,
        schedules={plan.content_hash: plan},
        laboratory=Laboratory(2),
        timing=Timing(calls_up_to=((1 << 20, 2),), graph=False),
    )
    task = Task(Collective.ALL_GATHER, 4096, ACROSS)
    slow = Config("ring", "Simple", 1)
    across = Config(f"phases:{plan.content_hash}", "LL", 8, 256, 1 << 30)
    threads = ProcessProfile(nthreads=256)
    with open_backend("nccl,executor", request) as backend:
        assert min(backend.measure(task, slow, 0, 2).samples_us) == 50_000.0
        assert min(backend.measure(task, across, 0, 2).samples_us) < 50_000.0
        backend.check(task, across)
        before_s = backend.restart_s
        backend.measure(task, replace(across, settings=threads.variables), 0, 1)
        assert backend.restart_s != before_s, "workers are started again for another profile"


def test_schedules_of_a_node_and_of_a_rail_run_beside_those_of_all_gpus(
    stand_ins: StandIns,
) -> None:
    """One start of the workers has the programs of all shapes, in one bundle."""
    assert stand_ins.executor.exists()
    topology = cluster(2, 2, 1)
    node, rail = Shape(2, 1, 2), Shape(2, 2, 1)
    machines = SiblingMachines(topology)
    (across, *_) = plans(Collective.ALL_REDUCE, topology)
    (along, *_) = plans(Collective.ALL_REDUCE, machines.slowest(rail))
    host = machines.slowest(node)
    (kernel, *_) = with_kernels(
        Collective.ALL_REDUCE, (), sketch_candidates(host), whole_machine(host), SIZES
    )
    request = BackendRequest(
        topology,
        ACROSS,
        schedules={across.content_hash: across},
        shapes={node: {kernel.content_hash: kernel}, rail: {along.content_hash: along}},
        laboratory=Laboratory(2),
        timing=Timing(graph=False),
    )
    configs = {
        ACROSS: Config(f"phases:{across.content_hash}", "LL", 8, 256, 1 << 30),
        node: Config(f"schedule:{kernel.content_hash}", "LL", 8, 256, 64 << 10),
        rail: Config(f"phases:{along.content_hash}", "LL", 16, 512, 1 << 30),
    }
    with open_backend("nccl,executor", request) as backend:
        for shape, config in configs.items():
            task = Task(Collective.ALL_REDUCE, 4096, shape)
            assert backend.measure(task, config, 0, 1).samples_us[0] > 0
            backend.check(task, config)
            builtin = Config("ring", "Simple", 4)
            assert backend.measure(task, builtin, 0, 1).samples_us[0] > 0
            backend.check(task, builtin)


class Hosts(LocalPlaces):
    """Hosts of so many devices, as ranks of an MPI job report them."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(sum(sizes))
        devices = ((str(host), device) for host, size in enumerate(sizes) for device in range(size))
        self.places = tuple(starmap(Place, devices))


def test_ranks_of_several_hosts_run_schedules(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stand_ins.executor.exists()
    monkeypatch.setenv(LIBRARY_VARIABLE, str(stand_ins.nccl))
    topology = cluster(2, 2, 1)
    (plan, *_) = plans(Collective.ALLTOALL, topology)
    task = Task(Collective.ALLTOALL, 4096, ACROSS)
    across = Config(f"phases:{plan.content_hash}", "LL", 8, 256, 1 << 30)
    request = BackendRequest(
        topology, ACROSS, schedules={plan.content_hash: plan}, places=Hosts(2, 2)
    )
    with open_backend("executor", request) as backend:
        assert backend.measure(task, across, 0, 1).samples_us[0] > 0
        backend.check(task, across)


def test_workers_of_other_hosts_get_the_programs_themselves(
    candidates: tuple[Candidate, ...], stand_ins: StandIns
) -> None:
    variables = executor_programs(candidates).packed
    program = (
        "import os; from tuccl.runtime.executor_library import ExecutorLibrary, unpack_bundle; "
        "unpack_bundle(); print(os.environ['TUCCL_BUNDLE'], len(ExecutorLibrary()._positions))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables, "LD_PRELOAD": str(stand_ins.executor)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    path, count = done.stdout.split()
    assert path.startswith("/proc/self/fd/")
    assert int(count) == len(candidates)


def test_the_executor_alone_leaves_nccl_as_it_is() -> None:
    request = BackendRequest(TOPOLOGY, SHAPE, RunOptions(backend="executor"))
    assert list(builtins_of(request, TASK)) == [STOCK]


def test_hosts_of_different_sizes_run_schedules_in_rounds(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stand_ins.executor.exists()
    monkeypatch.setenv(LIBRARY_VARIABLE, str(stand_ins.nccl))
    topology = Uneven((2, 1), 1, "mesh").topology()
    shape = Shape(3, 2, 0)
    machine = whole_machine(topology)
    (first, *_) = staged_candidates(RoundsRequest(Collective.ALL_REDUCE, topology, machine, SIZES))
    task = Task(Collective.ALL_REDUCE, 4096, shape)
    request = BackendRequest(
        topology, shape, schedules={first.content_hash: first}, places=Hosts(2, 1)
    )
    in_rounds = Config(f"phases:{first.content_hash}", "LL", 8, 256, 1 << 30)
    with open_backend("nccl,executor", request) as backend:
        for config in (in_rounds, STOCK):
            assert backend.measure(task, config, 0, 1).samples_us[0] > 0
            backend.check(task, config)


@pytest.mark.slow
def test_a_table_of_hosts_of_different_sizes_has_schedules_in_rounds(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From candidates to the bundle, whose shape has no number of ranks of each node."""
    assert stand_ins.executor.exists()
    monkeypatch.setenv(LIBRARY_VARIABLE, str(stand_ins.nccl))
    options = RunOptions(backend="executor", cycles=1, plain=True)
    settings = RunSettings((Collective.ALL_REDUCE,), (4096,), options)
    monkeypatch.setenv("STAND_IN_CHANNELS", "1")
    topology = Uneven((2, 1), 1, "mesh").topology()
    done = initialize(Prepared(topology, settings), Workspace(tmp_path), silent, places=Hosts(2, 1))
    (entry,) = done.table.entries
    assert entry.key.shape == Shape(3, 2, 0)
    assert entry.schedule is not None
    bundle = read_bundle(bundle_bytes(done.table), "bundle")
    check_programs(bundle.schedules, "bundle")
    stored = {schedule.content_hash: schedule for schedule in bundle.schedules}
    assert has_rounds(stored[entry.schedule.schedule].program)
    assert done.report.whole is not None
    assert not done.report.whole.failed
    assert done.report.whole.seconds > 0.0


def test_nodes_that_the_executor_does_not_serve_are_named() -> None:
    with pytest.raises(UsageError, match="this machine has 66 on 2, 33 on each"):
        require_backend("nccl,executor", BackendRequest(TOPOLOGY, Shape(66, 2, 33)))


@pytest.mark.long
def test_a_job_of_a_profile_alone_has_its_variables_and_no_table(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_SLOW_MS", "50")
    monkeypatch.setenv("STAND_IN_COUNTS_TIME", "1")
    monkeypatch.setenv("STAND_IN_SLOW_UNLESS", "NCCL_PACE=1")
    assert stand_ins.executor.exists()
    pair = Shape(2, 1, 2)
    task = Task(Collective.ALL_GATHER, 4096, pair)
    paced = JobTable.bare(ProcessProfile(settings=(("NCCL_PACE", "1"),)))
    assert job_variables(paced, None) == job_variables(None, None)
    request = BackendRequest(TOPOLOGY, pair, timing=Timing(((1 << 20, 2),), graph=False))
    with open_backend("nccl", request) as backend:
        assert isinstance(backend, RunsJobs)
        for table, is_slow in ((JobTable.bare(STOCK.profile), True), (paced, False)):
            ((_, time_us),) = backend.time_job({JobCall(task): 2}, table, 0).times_us
            assert (time_us == 50_000.0) is is_slow


def test_a_job_loads_plugin_table_and_executor_and_one_of_stock_nccl_none_of_them(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table wants one channel, which is slow on the stand-in."""
    monkeypatch.setenv("STAND_IN_SLOW_MS", "50")
    monkeypatch.setenv("STAND_IN_COUNTS_TIME", "1")
    assert stand_ins.executor.exists()
    pair = Shape(2, 1, 2)
    task, other = (Task(Collective.ALL_GATHER, size, pair) for size in (4096, 8192))
    entry = all_gather_entry(1, size_bytes=task.size_bytes, shape=pair)
    bundle = bundle_bytes(Table("test", "test", (), (entry,), {}, ()))
    calls, threads = {task: Config("ring", "Simple", 1)}, ProcessProfile(nthreads=256)
    table = JobTable(f"{bundle_crc(bundle):08x}", bundle, threads, calls, loads_executor=True)
    request = BackendRequest(TOPOLOGY, pair, timing=Timing(((1 << 20, 2),), graph=False))
    # As in a user's job, its executor is not prepared for choices of the process.
    dies = {"STAND_IN_CHOICE_ABORTS": "1"}
    monkeypatch.setattr(
        backend_choice, "job_variables", lambda table, **own: job_variables(table, **own) | dies
    )
    with open_backend("nccl,executor", request) as backend:
        assert isinstance(backend, RunsJobs)
        (own, also) = backend.time_job({JobCall(task): 2, JobCall(other): 2}, table, 0).times_us
        assert (own[0].task, also[0].task) == (task, other)
        assert own[1] == 50_000.0 > also[1]
        (stock,) = backend.time_job({JobCall(task): 2}, None, 0).times_us
        assert stock[1] < 50_000.0
        # The workers of the search are started again.
        assert min(backend.measure(task, STOCK, 0, 1).samples_us) < 50_000.0
    # Other hosts lack the bundle's file, so that variables hold it; and it is the table's.
    held = partial(job_variables, folder=None)
    monkeypatch.setattr(backend_choice, "job_variables", lambda table, **_: held(table))
    with open_backend("nccl", request) as backend:
        assert isinstance(backend, RunsJobs)
        table = replace(table, loads_executor=False)
        assert backend.time_job({JobCall(task): 2}, table, 0).times_us[0][1] == 50_000.0
        with pytest.raises(ConfigurationFailedError, match="the whole table: the job does not"):
            backend.time_job({JobCall(task): 2}, replace(table, name="00000000"), 1)
