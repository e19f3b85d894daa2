"""Choices of a process for its preloaded executor, here a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lookup_tables import bundle_layout as layout
from tests.runtime.executor_tables import chosen_table
from tests.runtime.test_bundle_rules import start_of
from tests.tuccl.measuring.engines.nccl_stand_ins import ROOT, StandIns

CHOOSE = """
from lookup_tables.table import NcclProtocol, ScheduleConfig
from tuccl.runtime.executor_library import Choice, ExecutorLibrary
from tuccl.errors import EngineError

library = ExecutorLibrary()
for sizes, schedule in (((1, 65536), "0"), ((1, 65536), "1"), ((2, 1), "0"), ((1, 2), "5a5a")):
    choice = Choice(*sizes, ScheduleConfig(schedule, NcclProtocol.LL, 8, 512, 65536))
    try:
        library.choose(choice)
        print(library.record(choice).hex())
    except EngineError as error:
        print(error)
"""


def choose(stand_ins: StandIns, **variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CHOOSE],
        env=os.environ
        | {"LD_PRELOAD": str(stand_ins.executor), "PYTHONPATH": str(ROOT)}
        | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_choice_is_the_record_of_a_shipped_entry(stand_ins: StandIns, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tuccl"
    data = chosen_table()
    bundle.write_bytes(data)
    first, second, reversed_ends, unknown = choose(stand_ins, TUCCL_BUNDLE=str(bundle))
    place = start_of(data, layout.SectionKind.ENTRIES)
    without_times = layout.ENTRY.size - 8
    # The table's entry is of the same schedule with the same parameters.
    assert bytes.fromhex(first)[:without_times] == data[place : place + without_times]
    fields = layout.ENTRY.unpack(bytes.fromhex(second))
    assert (fields[:2], fields[6], fields[9:12]) == ((1, 65536), 1, (8, 512, 65536))
    assert reversed_ends.endswith("the entry contradicts itself")
    assert unknown == "TUCCL_BUNDLE has no schedule 5a5a: name a bundle with it"


def test_without_a_bundle_there_is_nothing_to_choose(stand_ins: StandIns, tmp_path: Path) -> None:
    assert set(choose(stand_ins, TUCCL_BUNDLE="")) == {
        f"TUCCL_BUNDLE has no schedule {name}: name a bundle with it" for name in ("0", "1", "5a5a")
    }
    (tmp_path / "text").write_text("all_reduce 1 8 one_phase ll 1 32 0\n")
    said = choose(stand_ins, TUCCL_BUNDLE=str(tmp_path / "text"))
    assert all("not a TuCCL bundle" in line for line in said)
