"""The tuner plugin on a rail's communicator: it obeys the executor's requests, and nothing else."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.builds import NATIVE, compile_native
from tests.runtime.plugin_abi import ALGORITHMS, IGNORED, PROTOCOLS, VERSIONS, Plugin
from tests.runtime.write_bundles import write_bundles

ALL_REDUCE, NO_REQUEST, RING, LL = 4, 0xFF, 1, 0


class Request(ctypes.Structure):
    """struct tuccl_rail_request."""

    _fields_ = (
        ("word", ctypes.c_uint64),
        ("nodes", ctypes.c_uint32),
        ("takers", ctypes.c_uint32),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("rail") / "liboffer_rail.so"
    compile_native(output, [NATIVE / "offer_rail.c"], "-shared")
    return ctypes.CDLL(str(output), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def request_of_executor(library: ctypes.CDLL) -> Iterator[Request]:
    """The request that the executor offers during the test."""
    offered = ctypes.c_int.in_dll(library, "is_offered")
    found = Request.in_dll(library, "request")
    found.word, found.nodes, found.takers = NO_REQUEST, 2, 0
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
