"""Machines from Python."""

from pathlib import Path

import pytest

import tuccl


def test_a_machine_is_read_written_and_read_again(tmp_path: Path) -> None:
    machine = tuccl.read_topology("shipped:h200-4gpu")
    for name in ("machine.json", "machine.xml"):
        path = tuccl.write_topology(machine, str(tmp_path / name))
        assert tuccl.read_topology(path).fingerprint() == machine.fingerprint()


def test_several_of_a_machine_are_joined() -> None:
    two = tuccl.read_topology("shipped:a100-8gpu-8nic", nodes=2, network_gbps=200)
    assert (two.node_count, len(two.gpus)) == (2, 16)


def test_a_network_for_one_node_is_refused() -> None:
    with pytest.raises(tuccl.UsageError, match="--network-gbps"):
        tuccl.read_topology("shipped:h200-4gpu", network_gbps=200)


def test_a_file_that_is_no_machine_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text("<system>")
    for path in (tmp_path / "none.xml", tmp_path / "x.xml"):
        with pytest.raises(tuccl.MachineError, match=path.name):
            tuccl.read_topology(path)


def test_a_change_is_a_sentence_and_none_is_none() -> None:
    old, new = "shipped:h200-4gpu", "shipped:h200-4gpu-measured"
    assert tuccl.compare(old, old) == ()
    changes = tuccl.compare(old, tuccl.read_topology(new))
    assert changes
    assert len(tuccl.compare(old, new, figures=True)) > len(changes)


def test_this_host_is_probed_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    stages: list[tuccl.Stage] = []
    found = tuccl.probe(tuccl.ProbeOptions(p2p=False, network=False), on_stage=stages.append)
    assert found.topology.devices
    assert found.missing == ()
    assert set(found.seconds)
    assert all(stage.done <= (stage.total or stage.done) for stage in stages)
    assert capfd.readouterr() == ("", "")


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tuccl.UsageError, match="is not a directory"):
        tuccl.probe(tuccl.ProbeOptions(root=tmp_path / "none"))
    with pytest.raises(tuccl.UsageError, match="--launcher"):
        tuccl.probe(tuccl.ProbeOptions(launcher="ssh {host}"))


def test_the_tasks_of_a_launcher_are_for_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    for call in (tuccl.probe, tuccl.tune):
        with pytest.raises(tuccl.UsageError, match="within 4 tasks of a launcher"):
            call()
    monkeypatch.delenv("OMPI_COMM_WORLD_RANK")
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(tuccl.UsageError, match=r"tuccl.tune within 8 tasks of a launcher"):
        tuccl.tune()
