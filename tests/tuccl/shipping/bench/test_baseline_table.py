"""A tuner's file as a contender: the entries of its bundle, and the notes on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape
from tests.kept_builds import ROOT
from tests.runtime.builds import RUNTIME, compile_native
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.tuned_tables import FINGERPRINT, FOUR_GPUS, tuned
from tuccl.errors import UsageError
from tuccl.runtime.executor_library import BUNDLE_VARIABLE, PACKED_BUNDLE_VARIABLE
from tuccl.search.trials.baseline import parse_baseline
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.baseline_table import (
    BaselineFile,
    baseline_notes,
    baseline_table,
    counts_as_registered,
)
from tuccl.shipping.bench.contenders import ShippedTable

ALL_REDUCE, ALL_GATHER = Collective.ALL_REDUCE, Collective.ALL_GATHER
SIX = Shape(6, 1, 6)
TUNER = ROOT / "tests" / "runtime" / "native" / "stand_in_tuner.c"


@pytest.fixture
def beside(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> ShippedTable:
    """A table of the machine, beside which the installation has a plugin."""
    monkeypatch.setattr(
        "tuccl.measuring.engines.nccl_workers.plugin_path", lambda: stand_ins.plugin
    )
    table, _ = tuned(FOUR_GPUS)
    return ShippedTable("a", {}, Path("a"), read_bundle(bundle_bytes(table), "a"), table)


def file_of(*lines: str) -> BaselineFile:
    return BaselineFile(Path("site.csv"), parse_baseline("\n".join(lines), "site.csv"))


def test_entries_are_the_rows_choices_for_exactly_the_keys(beside: ShippedTable) -> None:
    file = file_of(
        "allreduce,0,-1,pat,simple,1,-1,-1",  # NCCL has no such all_reduce.
        "allreduce,0,4096,tree,ll,12,-1,-1",
        "allreduce,4097,-1,collnet_chain,simple,99,-1,-1",
        "allgather,0,-1,nvls,simple,99,1,6",
    )
    tasks = [Task(ALL_REDUCE, size, FOUR_GPUS) for size in (1024, 4096, 8192)]
    # 1,000 and 1,001 bytes are no whole elements of six ranks: 960 are called for both.
    tasks += [Task(ALL_GATHER, size, SIX) for size in (1000, 1001)]
    tasks += [replace(task, placement=Placement(1, (0,))) for task in tasks]
    found = baseline_table(file, tasks, beside, registered=False)
    entries = {
        (entry.key.operation, entry.key.min_bytes, entry.key.max_bytes): entry.builtin
        for entry in found.bundle.entries
    }
    tree = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL, 12)
    nvls = BuiltinConfig(NcclAlgorithm.NVLS, NcclProtocol.SIMPLE, 64)
    assert entries == {
        (ALL_REDUCE, 1024, 1024): tree,
        (ALL_REDUCE, 4096, 4096): tree,
        (ALL_REDUCE, 8192, 8192): BuiltinConfig(
            NcclAlgorithm.COLLNET_CHAIN, NcclProtocol.SIMPLE, 0
        ),
        (ALL_GATHER, 960, 1000): nvls,
        (ALL_GATHER, 1001, 1001): nvls,
    }
    assert all(entry.key.fingerprint == FINGERPRINT for entry in found.bundle.entries)
    assert [found.stated(task) for task in tasks] == [None] * len(tasks)
    assert found.variables[BUNDLE_VARIABLE] == ""
    assert found.variables[PACKED_BUNDLE_VARIABLE] != "", "other hosts need no file"
    assert (found.name, found.is_baseline, found.has_executor) == ("site.csv", True, False)


def test_rows_by_registration_are_those_that_nccl_tells_a_tuner_of(beside: ShippedTable) -> None:
    file = file_of("allreduce,0,-1,ring,ll,1,-1,-1,-1,1", "allreduce,0,4096,ring,ll,2,-1,-1,1,0")
    tasks = [Task(ALL_REDUCE, size, FOUR_GPUS) for size in (4096, 8192)]
    graphs, calls = (counts_as_registered(Timing(graph=graph), {}) for graph in (True, False))
    assert (graphs, calls) == (True, False)
    assert not counts_as_registered(Timing(), {"NCCL_GRAPH_REGISTER": "0"})
    for registered, channels in ((True, [1, 1]), (False, [2])):
        found = baseline_table(file, tasks, beside, registered=registered)
        assert [e.builtin.nchannels for e in found.bundle.entries if e.builtin] == channels
    assert list(baseline_notes(file, tasks, registered=False)) == [
        "site.csv has no choice for 1 of 2 keys, which are left to NCCL",
        (
            "site.csv has choices by regBuff: those for 0 are taken, which is what NCCL tells a "
            "tuner of calls that are timed so"
        ),
    ]


def test_a_file_without_a_row_for_any_key_is_refused(beside: ShippedTable) -> None:
    file = file_of("allreduce,0,-1,ring,ll,1,4,-1")
    with pytest.raises(UsageError, match=r"--baseline site\.csv: no row is for a key that is ti"):
        baseline_table(file, [Task(ALL_REDUCE, 8, FOUR_GPUS)], beside, registered=True)
    assert list(baseline_notes(file, [], registered=True)) == []


@pytest.mark.long
def test_a_library_is_asked_for_the_keys_that_are_timed(
    beside: ShippedTable, tmp_path: Path
) -> None:
    library = compile_native(
        tmp_path / "libtuner.so", [TUNER], "-O1", "-shared", "-fPIC", "-DABI=5", f"-I{RUNTIME}"
    )
    tasks = [Task(ALL_REDUCE, size, FOUR_GPUS) for size in (1024, 1 << 20)]
    file = BaselineFile.read(library)
    assert file.baseline.rows == ()
    asked = file.for_keys(tasks)
    assert asked.for_keys(tasks) is asked
    found = baseline_table(asked, tasks, beside, registered=True)
    assert [entry.builtin for entry in found.bundle.entries] == [
        BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL, 4),
        BuiltinConfig(NcclAlgorithm.NVLS, NcclProtocol.SIMPLE, 0),
    ]
