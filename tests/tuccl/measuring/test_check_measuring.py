"""scripts/check_measuring.py over stand-ins of CUDA and NCCL."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import check_measuring
import pytest

from tests.tuccl.engines.nccl_stand_ins import StandIns


def test_check_measuring_sees_wrong_data_and_that_all_else_is_right(
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    # Compiled once for all tests.
    monkeypatch.setattr(check_measuring, "build_libraries", lambda _: stand_ins.libraries)
    monkeypatch.setattr(check_measuring, "SIZES", (4096,))
    monkeypatch.setattr(check_measuring, "OPERATIONS", ("all_reduce", "all_gather"))
    monkeypatch.setattr(check_measuring, "DATA_TYPES", ("float16",))
    monkeypatch.setattr(check_measuring, "PROOF_BYTES", 8192)
    monkeypatch.setattr(check_measuring, "M", 4096)
    report = tmp_path / "verdict.json"
    words = ["--nccl", str(stand_ins.nccl), "--gpus", "2", "--largest", "4096"]
    monkeypatch.setattr(sys, "argv", ["check_measuring.py", *words, "--json", str(report)])
    monkeypatch.setenv("STAND_IN_CORRUPTS", "all_gather")
    assert check_measuring.main() == 1
    verdict = json.loads(report.read_text())
    proof = "one channel is more than twice as slow as 16 on 64 MB"
    # Times on a busy machine may say anything; the rest may not.
    assert [n for n, holds in verdict["checks"].items() if not (holds or n == proof)] == [
        "all data is right"
    ]
    assert len(verdict["checks"]) == 5
    wrong = {row["key"].split()[0] for row in verdict["rows"] if row.get("findings")}
    assert wrong == {"all_gather"}
    monkeypatch.setattr(sys, "argv", ["check_measuring.py", *words, "--share-gpus"])
    with pytest.raises(SystemExit):
        check_measuring.main()
    assert "--share-gpus is for --fake-nodes" in capsys.readouterr().err
