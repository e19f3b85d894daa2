"""Entries of every algorithm in jobs: the plugin asks for them where NCCL allows them, else not."""

from pathlib import Path

import pytest

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.lookup import lookup
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape
from tests.lookup_tables.tables import make_entry, make_table
from tests.runtime.plugin_abi import Call, Plugin
from tests.tuccl.search.trials.allowed_pairs import (
    A100_WITH_SHARP,
    DOMAIN,
    DOMAINS,
    HGX_H100,
    HGX_H100_NODES,
    NODE,
    NODES,
    PLAIN_TCP,
    cost_row,
)

APART = Shape(8, 8, 1)
V2_28, V2_30 = 5, 6
"""The newest tuner ABI of NCCL 2.28, and that of 2.30 to 2.32."""


@pytest.mark.parametrize("version", [V2_28, V2_30])
@pytest.mark.parametrize(
    ("machine", "shape", "operation", "algorithm", "nchannels"),
    [
        (HGX_H100, NODE, Collective.ALL_REDUCE, NcclAlgorithm.NVLS, 16),
        (HGX_H100, NODE, Collective.ALL_GATHER, NcclAlgorithm.NVLS, 8),
        (HGX_H100, DOMAIN, Collective.ALL_REDUCE, NcclAlgorithm.NVLS, 24),
        (HGX_H100_NODES, NODES, Collective.ALL_REDUCE, NcclAlgorithm.NVLS_TREE, 16),
        (HGX_H100_NODES, DOMAINS, Collective.ALL_REDUCE, NcclAlgorithm.NVLS_TREE, 32),
        (A100_WITH_SHARP, NODES, Collective.ALL_REDUCE, NcclAlgorithm.COLLNET_CHAIN, 0),
        (A100_WITH_SHARP, NODES, Collective.REDUCE_SCATTER, NcclAlgorithm.COLLNET_DIRECT, 0),
        (f"{PLAIN_TCP} pat/Simple", APART, Collective.ALL_GATHER, NcclAlgorithm.PAT, 4),
    ],
)
def test_an_entry_is_asked_for_where_nccl_allows_it_and_nowhere_else_on_any_rank(
    version: int,
    machine: str,
    shape: Shape,
    operation: Collective,
    algorithm: NcclAlgorithm,
    nchannels: int,
    plugin: Plugin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = BuiltinConfig(algorithm, NcclProtocol.SIMPLE, nchannels)
    table = make_table([make_entry(operation, 0, 2**40, wanted, shape=shape)])
    entry = lookup(table.entries, operation, 4096, shape)
    assert entry is not None
    assert entry.builtin == wanted
    (tmp_path / "b.tuccl").write_bytes(bundle_bytes(table))
    monkeypatch.setenv("TUCCL_BUNDLE", str(tmp_path / "b.tuccl"))
    ranks = [plugin.init(version, shape.ranks, shape.nodes)[1] for _ in range(shape.ranks)]
    function = {Collective.ALL_GATHER: 2, Collective.REDUCE_SCATTER: 3, Collective.ALL_REDUCE: 4}
    index = list(NcclAlgorithm).index(algorithm) * 3 + 2
    with_it, without = cost_row(machine, operation), cost_row(PLAIN_TCP, operation)
    forced = [*with_it[:index], 0.0, *with_it[index + 1 :]]
    for rank in ranks:
        assert rank.call(function[operation], 4096, with_it, nchannels=5) == Call(
            forced, nchannels or 5
        )
        # A host without multicast, switches or such a network: table and channels stay NCCL's.
        assert rank.call(function[operation], 4096, without, nchannels=5) == Call(without, 5)
        rank.end()
