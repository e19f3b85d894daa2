"""`tuccl retune`: tunes again only when the machine changed, and keeps the old table."""

import json
from pathlib import Path

from tests.tuccl.conftest import SMALL_RUN, Run


def test_the_same_machine_renumbered_needs_nothing(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    machine = tmp_path / "machine.xml"
    machine.write_text(h200.read_text())
    assert run_tuccl("init", "--topology", machine, *SMALL_RUN).returncode == 0
    bundle = (tmp_path / "tuccl-workspace" / "bundle.tuccl").read_bytes()
    machine.write_text(h200.read_text().replace("0000:0", "0000:a"))
    done = run_tuccl("retune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["changes"] == []
    assert document["tuned"] is False
    assert (tmp_path / "tuccl-workspace" / "bundle.tuccl").read_bytes() == bundle


def test_a_slower_link_is_named_the_old_table_kept_and_a_new_one_made(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    machine = tmp_path / "machine.xml"
    machine.write_text(h200.read_text())
    assert run_tuccl("init", "--topology", machine, *SMALL_RUN).returncode == 0
    root = tmp_path / "tuccl-workspace"
    old_bundle = (root / "bundle.tuccl").read_bytes()
    machine.write_text(h200.read_text().replace('count="18"', 'count="9"', 1))
    done = run_tuccl("retune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert any("gpu0" in change for change in document["changes"])
    assert document["tuned"] is True
    assert document["before"] != document["now"] == document["fingerprint"]
    assert (tmp_path / document["kept"] / "bundle.tuccl").read_bytes() == old_bundle
    assert (root / "bundle.tuccl").read_bytes() != old_bundle
    again = json.loads(run_tuccl("retune", "--json").stdout)
    assert again["changes"] == []


def test_nothing_to_retune_is_one_line(run_tuccl: Run, tmp_path: Path) -> None:
    done = run_tuccl("retune")
    assert done.returncode == 3
    assert "run `tuccl init` there first" in done.stderr
    assert list(tmp_path.iterdir()) == []
