import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import NcclVersion
from lookup_tables.table import Shape
from tests.sketches.machines import cluster
from tests.tuccl.measuring.records.small_record import machine
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.errors import InputFileError, UsageError, WorkspaceError
from tuccl.measuring.backends.backend_choice import (
    BackendRequest,
    builtins_of,
    open_backend,
)
from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.records.recorded_run import RecordedSearch
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.models.figures import communicator_shape
from tuccl.options.run_options import RunOptions
from tuccl.search.trials.config import Task
from tuccl.tuning.pipeline.options_to_settings import (
    laboratory_of,
    read_options,
    record_of_options,
    settings_of_options,
    short_budget_note,
    with_shapes,
)
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.recorded_search import search_settings, takes_recorded_steps
from tuccl.tuning.settings import DEFAULT_FLOOR, RunSettings, make_settings

REPLAYED = RunOptions(topology=None, records="r.parquet")


def test_sizes_default_to_a_ladder_or_to_all_that_were_recorded() -> None:
    plain = settings_of_options(RunOptions(topology="x"), None)
    assert (plain.backend, plain.budget_s, plain.options.strategy) == ("simulated", None, "mraco")
    assert len(plain.operations) == 3
    assert plain.sizes_bytes == tuple(1024 * 4**i for i in range(11))
    replayed = settings_of_options(REPLAYED, tiny_grid())
    assert replayed.backend == "replay"
    assert replayed.operations == (Collective.ALL_GATHER, Collective.ALL_REDUCE)
    assert replayed.sizes_bytes == (4096, 65536)
    assert not replayed.schedules
    large = replace(REPLAYED, min_size="5K", operations="all_reduce")
    assert settings_of_options(large, tiny_grid()).sizes_bytes == (65536,)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"operations": ""}, "no operation given"),
        ({"min_size": ""}, "size '' is not understood"),
        ({"max_size": ""}, "size '' is not understood"),
        ({"fake_nodes": True}, "--fake-nodes is for workers"),
        ({"backend": "nccl", "share_gpus": True}, "name --fake-nodes, too"),
        (
            {"backend": "sockets", "fake_nodes": True, "share_gpus": True},
            "with --backend sockets leave it out",
        ),
        ({"plain": True}, "--plain says how NCCL is timed; --backend simulated"),
        (
            {"backend": "sockets", "in_place": True},
            "--in-place says how NCCL is timed; --backend sockets",
        ),
        *(({"floor": text}, "use a share of stock NCCL's speed") for text in ("99", "nan", "")),
        ({"weights": "all_reduce"}, "use a number from 0.001 to 1000"),
        ({"weights": "all_reduce=1e308"}, "use a number from 0.001 to 1000"),
        ({"weights": "all_reduce=1,all_reduce=2"}, "named twice"),
        ({"weights": "broadcast=2"}, "not tuned here"),
        ({"weights": "foo=3"}, "operation 'foo' is unknown"),
        ({"weights": " ,"}, "names no operation"),
        ({"weights": "pairs=2", "shapes": "whole,rail"}, "reduce_scatter, whole, rail"),
        ({"shapes": "hosts"}, "--shapes 'hosts' is unknown"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        settings_of_options(read_options({"topology": "x", **given}), None)


def test_only_sizes_that_all_operations_have_are_tuned() -> None:
    grid = tiny_grid()
    reduced = [row for row in grid.rows if row.task.operation is Collective.ALL_REDUCE]
    gathered = [row for row in grid.rows if row not in reduced]
    rows = [*reduced, *(row for row in gathered if row.task.size_bytes == 4096)]
    fewer = replace(grid, rows=tuple(rows))
    assert settings_of_options(REPLAYED, fewer).sizes_bytes == (4096,)
    alone = replace(REPLAYED, operations="all_reduce")
    assert settings_of_options(alone, fewer).sizes_bytes == (4096, 65536)
    apart = [row for row in rows if row in gathered or row.task.size_bytes > 4096]
    with pytest.raises(InputFileError, match="name fewer --operations"):
        settings_of_options(REPLAYED, replace(grid, rows=tuple(apart)))


def test_another_space_budget_strategy_or_record_is_another_run() -> None:
    topology = machine()
    grid = tiny_grid()
    base = settings_of_options(REPLAYED, grid)
    different = [
        settings_of_options(replace(REPLAYED, **change), grid)
        for change in (
            {"budget": "20s"},
            {"strategy": "tpe"},
            {"seed": 1},
            {"max_size": "4K"},
            {"max_channels": 8},
        )
    ]
    different.append(settings_of_options(REPLAYED, replace(grid, rows=grid.rows[1:])))
    newer = replace(grid.provenance, nccl_version=NcclVersion(2, 30, 3), details="NCCL 2.30.3")
    different.append(settings_of_options(REPLAYED, replace(grid, provenance=newer)))
    identities = {settings.identity(topology) for settings in (base, *different)}
    assert len(identities) == 8
    assert base.identity(topology) == settings_of_options(REPLAYED, tiny_grid()).identity(topology)


def test_options_of_an_older_run_are_read_and_damaged_ones_are_named() -> None:
    assert read_options({"topology": "x", "nodes": 2, "step": 4}).nodes == 2
    with pytest.raises(WorkspaceError, match="recorded options are damaged"):
        read_options({"topology": "x", "nodes": "many"})
    with pytest.raises(WorkspaceError, match="recorded options are damaged"):
        read_options({"topology": "x", "colour": "blue"})
    with pytest.raises(WorkspaceError, match="topology: not recorded"):
        read_options({"nodes": 2})


def test_a_record_is_read_only_by_a_backend_that_replays() -> None:
    assert record_of_options(RunOptions(topology="x"), None) is None
    with pytest.raises(UsageError, match="--records is for --backend replay"):
        record_of_options(RunOptions(topology="x", records="r", backend="nccl"), None)


@pytest.mark.parametrize("backend", ["nccl", "executor", "nccl,executor"])
def test_shared_gpus_make_another_run(backend: str) -> None:
    faked = RunOptions(topology="x", backend=backend, fake_nodes=True)
    shared = settings_of_options(replace(faked, share_gpus=True), None)
    apart = settings_of_options(faked, None)
    assert shared.identity(machine()) != apart.identity(machine())


def test_the_space_is_that_of_the_record_or_of_the_links() -> None:
    grid = tiny_grid()
    task = grid.tasks[0]
    request = BackendRequest(grid.topology, grid.shape, record=grid)
    assert builtins_of(request, task).size == 9
    topology = machine()
    shape = communicator_shape(topology)
    whole = builtins_of(BackendRequest(topology, shape), Task(task.operation, 4096, shape))
    assert {family.protocol for family in whole.families} >= {"LL", "LL128", "Simple"}


def test_the_timing_reaches_the_workers_and_makes_another_run() -> None:
    named = RunOptions(topology="x", backend="nccl")
    plain = settings_of_options(replace(named, plain=True), None)
    in_place = settings_of_options(replace(named, in_place=True), None)
    timing = Prepared(machine(), plain).request().timing
    assert (timing.graph, timing.in_place) == (False, False)
    timing = Prepared(machine(), in_place).request().timing
    assert (timing.graph, timing.in_place) == (True, True)
    settings = (settings_of_options(named, None), plain, in_place)
    assert len({variant.identity(machine()) for variant in settings}) == 3


@pytest.mark.parametrize(
    ("nodes", "gpus", "said"),
    [
        (2, 4, "these nodes have 8 GPUs, and 4 are here; --node-gpus 2,2 divides them"),
        (3, 4, "--node-gpus 2,1,1 divides them among the nodes, or --share-gpus lets each"),
        (2, 1, ""),
    ],
)
def test_faked_nodes_with_too_few_gpus_are_told_how_to_divide_them(
    monkeypatch: pytest.MonkeyPatch, nodes: int, gpus: int, said: str
) -> None:
    monkeypatch.setattr("tuccl.tuning.pipeline.options_to_settings.count_gpus", lambda: gpus)
    machine = cluster(nodes, 4, 1)
    options = RunOptions(backend="nccl", nodes=nodes, fake_nodes=True)
    if nodes > gpus:
        said = f"and {gpus} are here; --share-gpus lets each node have them all"
    with pytest.raises(UsageError, match=re.escape(said)):
        laboratory_of(options, machine)
    monkeypatch.setattr("tuccl.tuning.pipeline.options_to_settings.count_gpus", lambda: 4 * nodes)
    assert laboratory_of(options, machine).nodes == nodes


def test_a_request_names_its_backend_and_the_laboratory() -> None:
    settings = settings_of_options(RunOptions(topology="x", backend="executor"), None)
    request = Prepared(machine(), settings).request()
    assert (request.kind.tunes_nccl, request.kind.measures_nccl) == (False, True)
    assert request.laboratory == Laboratory()
    faked = replace(settings, laboratory=Laboratory(2))
    assert Prepared(machine(), faked).request().laboratory.nodes == 2


def test_replay_without_a_record_is_refused(tmp_path: Path) -> None:
    topology = machine()
    request = BackendRequest(topology, communicator_shape(topology))
    with pytest.raises(UsageError, match="needs --records"), open_backend("replay", request):
        pass


@pytest.mark.parametrize("alone", [False, True])
def test_a_replay_takes_over_whether_calls_were_timed_beside_computation(alone: bool) -> None:
    measured = settings_of_options(
        RunOptions(topology="x", backend="nccl", operations="all_reduce", alone=alone), None
    )
    first = replace(measured, sizes_bytes=(4096, 65536))
    search = RecordedSearch.of(search_settings(first), {}, {})
    grid = tiny_grid()
    record = replace(grid, of_run=replace(grid.of_run, search=search))
    again = settings_of_options(replace(REPLAYED, operations="all_reduce"), record)
    assert again.options.alone is alone
    assert takes_recorded_steps(record, again)
    assert not settings_of_options(REPLAYED, grid).options.alone


@pytest.mark.parametrize(
    ("backend", "takes_steps", "reserves"),
    [("nccl", True, True), ("nccl", False, False), ("simulated", True, False)],
)
def test_a_replay_step_by_step_reserves_the_seconds_of_jobs_as_the_run_did(
    backend: str, takes_steps: bool, reserves: bool
) -> None:
    """A run whose budget paid for no job has none in its record, and reserved seconds for them."""
    grid = tiny_grid()
    record = replace(grid, provenance=replace(grid.provenance, backend=backend))
    request = BackendRequest(
        grid.topology, grid.shape, record=record, takes_recorded_steps=takes_steps
    )
    with open_backend("replay", request) as opened:
        assert isinstance(opened, ReplayBackend)
        assert opened.runs_jobs is reserves


def test_a_budget_is_part_of_the_settings() -> None:
    given = RunOptions(topology="x", budget="20m")
    assert settings_of_options(given, None).budget_s == 1200.0
    assert RunSettings((Collective.ALL_REDUCE,), (1,)).budget_s is None


@pytest.mark.parametrize(
    ("text", "floor"),
    [(None, DEFAULT_FLOOR), ("0.97", 0.97), ("1", 1.0), ("none", None), ("0", None)],
)
def test_a_floor_is_a_share_or_none(text: str | None, floor: float | None) -> None:
    assert settings_of_options(RunOptions(topology="x", floor=text), None).floor == floor


def test_weights_are_by_operation_and_part_of_the_settings() -> None:
    def weights(text: str | None) -> tuple[tuple[Collective, float], ...]:
        return settings_of_options(RunOptions(topology="x", weights=text), None).weights

    assert weights(None) == ()
    parsed = weights("reduce_scatter=0.5, all_gather = 3")
    assert parsed == ((Collective.ALL_GATHER, 3.0), (Collective.REDUCE_SCATTER, 0.5))


def test_shapes_are_those_of_the_machine_with_their_weights() -> None:
    two_hosts = Shape(16, 2, 8)
    given = RunOptions(topology="x", shapes="whole,node,rail", weights="rail=2,all_gather=3")
    settings = settings_of_options(given, None)
    assert settings.weights == ((Collective.ALL_GATHER, 3.0),)
    tuned = with_shapes(settings, two_hosts)
    assert [(each.name, each.shape.ranks, each.weight) for each in tuned.shapes] == [
        ("whole", 16, 1.0), ("node", 8, 1.0), ("rail", 2, 2.0),
    ]  # fmt: skip
    assert tuned.shapes_of(two_hosts) == (two_hosts, Shape(8, 1, 8), Shape(2, 2, 1))
    assert settings.shapes_of(two_hosts) == (two_hosts,)
    with pytest.raises(UsageError, match="--shapes rail: 8 GPUs on 1 node"):
        with_shapes(settings, Shape(8, 1, 8))
    with pytest.raises(InputFileError, match="no times of communicators of shape pairs"):
        settings_of_options(replace(REPLAYED, shapes="whole,pairs"), tiny_grid())
    assert settings_of_options(replace(REPLAYED, shapes="whole"), tiny_grid()).shapes == ()


@pytest.mark.parametrize(
    ("whole", "options", "names"),
    [
        (Shape(16, 2, 8), RunOptions(), "whole,node,rail"),
        (Shape(16, 2, 8), RunOptions(budget="494s"), ""),
        (Shape(16, 2, 8), RunOptions(budget="495s"), "whole,node,rail"),
        (Shape(16, 2, 8), RunOptions(shapes="whole"), ""),
        (Shape(16, 2, 8), RunOptions(workload="W.json"), ""),
        (Shape(3, 2, 0), RunOptions(), ""),
        (Shape(4, 4, 1), RunOptions(), ""),
        (Shape(8, 1, 8), RunOptions(), ""),
        # Three operations at eleven sizes, on two shapes or three, 5 s for each.
        (Shape(8, 1, 8), RunOptions(budget="329s"), ""),
        (Shape(8, 1, 8), RunOptions(budget="330s"), "whole,pairs"),
        (Shape(2, 1, 2), RunOptions(budget="1h"), ""),
        (Shape(8, 1, 8), RunOptions(budget="330s", shapes="whole"), ""),
        # Rails are of one GPU a node, on which the executor runs no schedule of alltoall.
        (
            Shape(16, 2, 8),
            RunOptions(backend="nccl,executor", operations="all_gather,alltoall"),
            "whole,node",
        ),
    ],
)
def test_a_run_that_names_no_shapes_tunes_those_of_most_jobs(
    whole: Shape, options: RunOptions, names: str
) -> None:
    settings = make_settings(replace(options, topology="x"))
    assert ",".join(each.name for each in with_shapes(settings, whole).shapes) == names


def test_a_budget_that_is_too_short_for_them_says_so() -> None:
    two_hosts = Shape(16, 2, 8)

    def note(budget: str, whole: Shape = two_hosts, shapes: str | None = None) -> str | None:
        options = RunOptions(topology="x", budget=budget, shapes=shapes)
        return short_budget_note(make_settings(options), whole)

    assert note("2m") == (
        "--budget 2m is short for more than the communicator of all GPUs: node and rail are tuned "
        "from 495 s, or if --shapes names them"
    )
    assert note("10m") is None
    assert note("2m", shapes="whole") is None
    assert note("2m", Shape(8, 1, 8)) is None
    assert note("2m", Shape(3, 2, 0)) is None
    assert note("2m", Shape(4, 4, 1)) is None


def test_weights_are_of_the_shapes_that_are_tuned() -> None:
    settings = settings_of_options(RunOptions(topology="x", weights="rail=2"), None)
    tuned = with_shapes(settings, Shape(16, 2, 8))
    assert {each.name: each.weight for each in tuned.shapes}["rail"] == 2.0
    with pytest.raises(UsageError, match="rail is not tuned here"):
        with_shapes(settings, Shape(8, 1, 8))


def test_the_whole_machine_alone_is_the_run_that_names_no_shape() -> None:
    whole, topology = Shape(4, 1, 4), machine()
    plain = settings_of_options(RunOptions(topology="x"), None)
    identities = [
        with_shapes(settings_of_options(RunOptions(topology="x", shapes=text), None), whole)
        .identity(topology)
        for text in ("whole", "whole,node", "pairs", "whole,pairs")
    ]  # fmt: skip
    assert identities[:2] == [plain.identity(topology)] * 2
    assert len(set(identities)) == 3
