"""The tuner plugin on communicators of the executor's: it obeys requests for them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from tests.lookup_tables.tables import make_entry, make_table
from tests.runtime.builds import NATIVE, compile_native
from tests.runtime.plugin_abi import ALGORITHMS, IGNORED, PROTOCOLS, VERSIONS, Plugin
from tests.runtime.write_bundles import write_bundles

ALL_REDUCE, NO_OPERATION = 4, 0xFF
LEARNED = 0x100
"""Beside an operation: the answer was learned by the job."""
NO_REQUEST, TABLE, ENTRY, RING, NVLS, LL = 0xFF, 0xFE, 0xFD, 1, 4, 0


class LeftOut(ctypes.Structure):
    """struct tuccl_left_out."""

    _fields_ = (
        ("min_bytes", ctypes.c_uint64),
        ("max_bytes", ctypes.c_uint64),
        ("operation", ctypes.c_uint32),
        ("word", ctypes.c_uint32),
    )


class Request(ctypes.Structure):
    """struct tuccl_request."""

    _fields_ = (
        ("word", ctypes.c_uint64),
        ("nodes", ctypes.c_uint32),
        ("takers", ctypes.c_uint32),
        ("left_out", ctypes.POINTER(LeftOut)),
        ("learns", ctypes.c_uint32),
        ("refused", ctypes.c_uint32),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("rail") / "liboffer_request.so"
    compile_native(output, [NATIVE / "offer_request.c"], "-shared")
    return ctypes.CDLL(str(output), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def request_of_executor(library: ctypes.CDLL) -> Iterator[Request]:
    """The request that the executor offers during the test."""
    offered = ctypes.c_int.in_dll(library, "is_offered")
    found = Request.in_dll(library, "request")
    found.word, found.nodes, found.takers = NO_REQUEST, 2, 0
    found.left_out = None
    found.learns = found.refused = 0
    offered.value = 1
    yield found
    offered.value = 0


def costs() -> list[float]:
    table = [IGNORED] * (ALGORITHMS * PROTOCOLS)
    table[0:6] = [30.0, 31.0, 32.0, 20.5, 21.0, 22.0]  # Tree and ring.
    return table


@pytest.mark.parametrize("version", [v for v in VERSIONS if v > 2])
def test_a_rail_obeys_requests_alone(
    plugin: Plugin,
    version: int,
    request_of_executor: Request,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle, _ = write_bundles(tmp_path)
    monkeypatch.setenv("TUCCL_BUNDLE", str(bundle))
    result, rail = plugin.init(version, 2, 2, domain_ranks=(1, 1))
    assert (result, request_of_executor.takers) == (0, 1)
    assert "a rail of its own" in plugin.messages[-1][1]
    assert rail.call(ALL_REDUCE, 4096, costs(), nchannels=7).cost == costs()
    request_of_executor.word = RING | LL << 8 | 3 << 16
    call = rail.call(ALL_REDUCE, 4096, costs(), nchannels=7)
    assert (call.cost[3], call.nchannels) == (0.0, 3)
    # CollNet cannot run there: NCCL's own choice stays.
    request_of_executor.word = 2 | LL << 8 | 3 << 16
    call = rail.call(ALL_REDUCE, 4096, costs(), nchannels=7)
    assert (call.cost, call.nchannels) == (costs(), 7)
    request_of_executor.word = NO_REQUEST
    assert rail.call(ALL_REDUCE, 4096, costs()).cost == costs()
    rail.end()


def test_tuner_abi_v2_obeys_too(plugin: Plugin, request_of_executor: Request) -> None:
    result, rail = plugin.init(2, 2, 2)
    assert (result, request_of_executor.takers) == (0, 1)
    request_of_executor.word = RING | LL << 8 | 2 << 16
    call = rail.call(ALL_REDUCE, 4096, costs(), nchannels=7)
    assert (call.algorithm, call.protocol, call.nchannels) == (RING, LL, 2)
    rail.end()


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 2), (4, 4), (2, 1)])
def test_other_communicators_do_not_take_the_request(
    plugin: Plugin, request_of_executor: Request, ranks: int, nodes: int
) -> None:
    per_node = ranks // nodes
    result, _ = plugin.init(6, ranks, nodes, domain_ranks=(per_node, per_node))
    assert (result, request_of_executor.takers) == (0, 0)


@pytest.fixture
def ring_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in which all_reduces of 8 ranks are rings."""
    entry = make_entry(
        Collective.ALL_REDUCE, 1024, 8192, BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 3)
    )
    path = tmp_path / "ring.tuccl"
    path.write_bytes(bundle_bytes(make_table([entry], gpu_models=(), schedules=())))
    monkeypatch.setenv("TUCCL_BUNDLE", str(path))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("ring_table")
def test_a_jobs_communicator_leaves_to_nccl_what_it_is_told(
    plugin: Plugin,
    version: int,
    request_of_executor: Request,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUCCL_EXPLAIN", "1")
    request_of_executor.nodes, request_of_executor.word = 0, TABLE
    result, job = plugin.init(version, 8, 1, domain_ranks=(8, 8))
    assert (result, request_of_executor.takers) == (0, 1)

    def channels() -> int:
        return job.call(ALL_REDUCE, 4096, costs(), nchannels=7).nchannels

    assert channels() == 3
    request_of_executor.word = NO_REQUEST
    assert channels() == 7
    request_of_executor.word = TABLE
    assert channels() == 3
    end = LeftOut(0, 0, NO_OPERATION)
    another = LeftOut(0, 1 << 40, 0, NO_REQUEST)
    same = LeftOut(1024, 8192, ALL_REDUCE, NO_REQUEST)
    request_of_executor.left_out = (LeftOut * 3)(another, same, end)
    assert channels() == 7
    said = plugin.messages[-1][1]
    assert said.endswith("4096 bytes: left out by the check at start or the guard, NCCL decides")
    request_of_executor.word = ENTRY  # Of a trial.
    assert channels() == 3
    request_of_executor.word = TABLE
    request_of_executor.left_out = (LeftOut * 2)(another, end)
    assert channels() == 3
    job.end()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ranks", [8, 4])
@pytest.mark.usefixtures("ring_table")
def test_a_job_that_learns_runs_by_the_settings_that_it_is_told(
    plugin: Plugin, version: int, ranks: int, request_of_executor: Request
) -> None:
    request_of_executor.nodes, request_of_executor.word = 0, TABLE
    request_of_executor.learns = 1
    result, job = plugin.init(version, ranks, 1, domain_ranks=(ranks, ranks))
    assert (result, request_of_executor.takers) == (0, 1)

    def channels() -> int:
        return job.call(ALL_REDUCE, 4096, costs(), nchannels=7).nchannels

    # The table has an entry for 8 ranks alone.
    assert channels() == (3 if ranks == 8 else 7)
    request_of_executor.word = RING | LL << 8 | 5 << 16
    assert (channels(), request_of_executor.refused) == (5, 0)
    # NVLS is what NCCL rules out here,.
    request_of_executor.word = NVLS | 2 << 8 | 5 << 16
    assert (channels(), request_of_executor.refused) == (7, 1)
    request_of_executor.word = TABLE
    learned = LeftOut(4096, 4096, ALL_REDUCE, RING | LL << 8 | 9 << 16)
    request_of_executor.left_out = (LeftOut * 2)(learned, LeftOut(0, 0, NO_OPERATION, 0))
    assert channels() == 9
    job.end()


@pytest.mark.usefixtures("ring_table")
def test_a_communicator_without_entries_is_nccls_unless_it_learns(
    plugin: Plugin, request_of_executor: Request
) -> None:
    request_of_executor.nodes, request_of_executor.word = 0, TABLE
    result, _ = plugin.init(6, 4, 1, domain_ranks=(4, 4))
    assert (result, request_of_executor.takers) == (0, 0)


@pytest.mark.usefixtures("ring_table")
def test_the_executor_is_told_what_was_answered(
    plugin: Plugin, library: ctypes.CDLL, request_of_executor: Request
) -> None:
    answers = (ctypes.c_uint32 * (2 * LEARNED)).in_dll(library, "answers")
    before = list(answers)
    request_of_executor.nodes, request_of_executor.word = 0, TABLE
    _, job = plugin.init(5, 8, 1, domain_ranks=(8, 8))
    for size in (1024, 8192, 8193, 4096):
        job.call(ALL_REDUCE, size, costs())
    learned = LeftOut(4096, 4096, ALL_REDUCE, RING | LL << 8 | 9 << 16)
    request_of_executor.left_out = (LeftOut * 2)(learned, LeftOut(0, 0, NO_OPERATION, 0))
    for size in (1024, 4096):
        job.call(ALL_REDUCE, size, costs())
    job.end()
    told = {i: number - before[i] for i, number in enumerate(answers) if number != before[i]}
    assert told == {ALL_REDUCE: 4, ALL_REDUCE | LEARNED: 1}


@pytest.mark.usefixtures("ring_table")
def test_without_entries_a_jobs_communicator_takes_no_request(
    plugin: Plugin, request_of_executor: Request
) -> None:
    request_of_executor.nodes = 0
    result, _ = plugin.init(5, 7, 1, domain_ranks=(7, 7))
    assert (result, request_of_executor.takers) == (0, 0)
