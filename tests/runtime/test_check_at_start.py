"""`check_at_start.py` over stand-ins of CUDA and NCCL, with the plugin and the executor's host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape
from tests.kept_builds import ROOT
from tests.lookup_tables.tables import make_entry, make_table
from tests.runtime.builds import EXECUTOR, NATIVE, compile_all, link
from tests.runtime.test_executor import host_sources
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns, build_stand_ins
from tuccl.runtime import EXECUTOR_NAME

pytestmark = [pytest.mark.long, pytest.mark.slow]

RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 8)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return build_stand_ins(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("executor")
    objects = compile_all(folder, [*host_sources(), NATIVE / "executor_device.cc"])
    exports = f"-Wl,--version-script={EXECUTOR / 'exports.map'}"
    return link(folder / EXECUTOR_NAME, objects, "-shared", exports)


@pytest.fixture
def shipped(tmp_path: Path, stand_ins: StandIns, executor: Path) -> Path:
    """A directory as of `tuccl ship`, whose table has settings of NCCL for two ranks."""
    entries = [
        replace(
            make_entry(operation, size_bytes, 2 * size_bytes - 1, RING, shape=Shape(2, 1, 2)),
            default_time_us=1000.0,
        )
        for operation in (Collective.ALL_GATHER, Collective.ALL_REDUCE)
        for size_bytes in (1024, 16384)
    ]
    table = make_table(entries, gpu_models=(), profile={}, schedules=())
    folder = tmp_path / "shipped"
    folder.mkdir()
    bundle = folder / "bundle.tuccl"
    bundle.write_bytes(bundle_bytes(table))
    (folder / "table.parquet").write_bytes(table_to_parquet_bytes(table))
    (folder / "tuccl.env").write_text(
        f"export NCCL_TUNER_PLUGIN={stand_ins.plugin} TUCCL_BUNDLE={bundle}\n"
        f"export TUCCL_BUNDLE_CRC={bundle_crc(bundle.read_bytes()):08x} LD_PRELOAD={executor}\n"
    )
    return folder


def found_by(
    script: str, shipped: Path, words: Sequence[str], stand_ins: StandIns, slow_ms: int
) -> tuple[dict[str, Any], str]:
    """Run a check on a shipped directory; return the JSON that it writes and what it prints."""
    written = shipped.parent / "found"
    path = ROOT / "scripts" / "check" / script
    gpus = {"STAND_IN_GPUS": "2", "STAND_IN_SLOW_MS": str(slow_ms)}
    done = subprocess.run(
        [sys.executable, str(path), str(shipped), *words, "--json", str(written)],
        env={**os.environ, **stand_ins.variables, **gpus},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert written.exists(), done.stderr
    return json.loads(written.read_text()), done.stdout


def test_slow_settings_are_left_out_of_a_table_that_is_wrong(
    shipped: Path, stand_ins: StandIns
) -> None:
    words = "--rounds", "1", "--limit", "60s"
    found, out = found_by("check_at_start.py", shipped, words, stand_ins, slow_ms=30)
    verdict, jobs = found["verdict"], found["jobs"]
    # One channel takes milliseconds here, many take next to nothing.
    assert len(verdict["keys"]) == 4
    assert all(key["wrong"] > 1.2 and key["left_out"] == 1 for key in verdict["keys"])
    assert verdict["wrong_missed"] == []
    assert verdict["after_check"] < verdict["wrong_slower"] / 2
    assert [len(jobs[name][0]["timed"]) for name in jobs] == [0, 0, 2, 0, 2]
    assert "4 of 4 in " in out
