"""A schedule is compiled once on its way from the synthesizer to the bundle."""

from collections import Counter
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.collective import Collective
from probes.files.read import read_topology, shipped_machines
from synthesizer.formats import msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.programs import compiler
from synthesizer.programs.compiler import check_programs
from synthesizer.programs.flow import Flow, run_on_symbols
from tests.tuccl.silent_progress import silent
from tuccl.reports.tuning_result import read_table
from tuccl.tuning.pipeline.preparing import Prepared
from tuccl.tuning.pipeline.stages import initialize
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.runs import Workspace


def test_no_schedule_is_read_from_xml_and_none_compiled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: Counter[str] = Counter()

    def refuse(text: str, source: str) -> None:
        raise AssertionError(f"{source} was read as XML: {text[:80]}")

    def counted(algorithm: Algorithm) -> Flow:
        compiled[algorithm.content_hash()] += 1
        return run_on_symbols(algorithm)

    monkeypatch.setattr(msccl_xml, "_parse", refuse)
    monkeypatch.setattr(compiler, "run_on_symbols", counted)
    topology = read_topology(shipped_machines()["h200-4gpu"])
    settings = RunSettings((Collective.ALLTOALL,), (65536,))
    done = initialize(Prepared(topology, settings), Workspace(tmp_path), silent)
    won = {schedule.content_hash: schedule for schedule in done.table.schedules}
    assert won
    assert all(schedule.program and schedule.msccl_xml for schedule in won.values())
    assert read_table(done.run) == done.table
    bundle = load_bundle(done.run.bundle)
    assert bundle.schedules == done.table.schedules
    assert compiled == dict.fromkeys(won, 1)
    check_programs(bundle.schedules, "bundle")
