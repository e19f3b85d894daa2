"""A tuner's library is asked for its choices: stand-ins of each ABI, and TuCCL's own plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.kept_builds import ROOT
from tests.runtime.builds import RUNTIME, compile_native
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.errors import InputFileError
from tuccl.measuring.engines.tuner_library import ask_library, is_library
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.presets import nccl_space

ALL_REDUCE, ALL_GATHER = Collective.ALL_REDUCE, Collective.ALL_GATHER
TWO_NODES = Shape(8, 2, 4)
SOURCE = ROOT / "tests" / "runtime" / "native" / "stand_in_tuner.c"


def built(folder: Path, abi: int) -> Path:
    path = folder / f"libtuner{abi}.so"
    return compile_native(path, [SOURCE], "-O1", "-shared", "-fPIC", f"-DABI={abi}", f"-I{RUNTIME}")


@pytest.mark.parametrize("abi", [3, 4, 5, 6, 7])
def test_the_choices_of_each_abi(abi: int, tmp_path: Path) -> None:
    library = built(tmp_path, abi)
    assert is_library(library)
    tasks = [Task(ALL_REDUCE, size, FOUR_GPUS) for size in (1024, 65536, 65538, 1 << 33)]
    tasks += [Task(ALL_GATHER, 1024, FOUR_GPUS), Task(Collective.BROADCAST, 1024, FOUR_GPUS)]
    tasks += [Task(ALL_REDUCE, 1024, TWO_NODES), Task(Collective.ALLTOALL, 1024, FOUR_GPUS)]
    found = ask_library(library, tasks)
    assert found.name == library.name
    chosen = [
        [(row.algorithm.value, row.protocol.value, row.nchannels, row.registered) for row in rows]
        for rows in map(found.rows_of, tasks)
    ]
    small, ring = [("tree", "LL", 4, None)], ("ring", "Simple", 64)
    # ABI 3 does not say whether buffers are registered.
    large = [(*ring, None)] if abi == 3 else [(*ring, False), ("nvls", "Simple", 0, True)]
    assert chosen == [small, small, large, large, [("ring", "LL128", 0, None)], [], [], []]
    space = nccl_space(ALL_REDUCE, FOUR_GPUS, knobs=())
    assert found.configs(tasks[0], space) == (Config("tree", "LL", 4),)


def test_tuccls_own_plugin_answers_from_its_bundle(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = tuned(FOUR_GPUS)
    bundle = bundle_bytes(table)
    (tmp_path / "b.tuccl").write_bytes(bundle)
    monkeypatch.setenv("TUCCL_BUNDLE", str(tmp_path / "b.tuccl"))
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{bundle_crc(bundle):08x}")
    tasks = [Task(ALL_REDUCE, size, FOUR_GPUS) for size in (512, 1024, 2048, 4096, 8190, 8192)]
    found = ask_library(stand_ins.plugin, tasks)
    ring = ("ring", "LL", 4)
    wanted = {
        task.size_bytes: [ring]
        for entry in table.entries
        for task in tasks
        if entry.builtin and entry.key.min_bytes <= task.size_bytes <= entry.key.max_bytes
    }
    assert {
        task.size_bytes: [(row.algorithm.value, row.protocol.value, row.nchannels) for row in rows]
        for task in tasks
        if (rows := found.rows_of(task))
    } == wanted
    assert sorted(wanted) == [1024, 4096, 8190]


@pytest.mark.long
def test_a_library_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, tasks = built(tmp_path, 5), [Task(ALL_REDUCE, 1024, FOUR_GPUS)]
    for fault, said in (
        ("init", "cannot be asked as a tuner: its init returned 5 for 4 ranks on 1 node(s)"),
        ("ask", "cannot be asked as a tuner: its getCollInfo returned 5 for 1024 bytes"),
        ("crash", "ended its process by SIGABRT when it was asked"),
        ("hang", "did not answer within 0 s"),
    ):
        monkeypatch.setenv("STAND_IN_TUNER", fault)
        monkeypatch.setattr(
            "tuccl.measuring.engines.tuner_library._LIMIT_S", 0.4 if fault == "hang" else 60.0
        )
        with pytest.raises(InputFileError) as refused:
            ask_library(library, tasks)
        assert str(refused.value).startswith(f"{library} {said}")
        assert str(refused.value).isprintable()
    monkeypatch.setenv("STAND_IN_TUNER", "")
    with pytest.raises(InputFileError, match="chooses nothing for any of 1 calls: that of aws-ofi"):
        ask_library(library, [Task(ALL_REDUCE, 1024, TWO_NODES)])
    other = compile_native(tmp_path / "libother.so", [_empty(tmp_path)], "-shared")
    with pytest.raises(InputFileError, match=r"as a tuner: no ncclTunerPlugin_v3 to v7 in it"):
        ask_library(other, tasks)
    (tmp_path / "cut.so").write_bytes(library.read_bytes()[:100])
    with pytest.raises(InputFileError, match=r"cut\.so cannot be asked as a tuner: .*cut\.so: "):
        ask_library(tmp_path / "cut.so", tasks)


def _empty(folder: Path) -> Path:
    (folder / "empty.c").write_text("int nothing;\n")
    return folder / "empty.c"


def test_a_csv_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("allreduce,0,1,ring,ll,1,1,1\n")
    assert not is_library(tmp_path / "t.csv")
    with pytest.raises(
        InputFileError, match="No such file or directory; name a tuner's CSV or lib"
    ):
        is_library(tmp_path / "missing")
