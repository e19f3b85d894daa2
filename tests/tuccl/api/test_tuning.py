"""Tuning, tables and shipping from Python, on the simulated backend and a record."""

from dataclasses import replace
from pathlib import Path

import pytest

import tuccl
from tests.tuccl.conftest import TunedWorkspace
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.measuring.records.record_file import write_record
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

MACHINE = "shipped:h200-4gpu"
OPTIONS = tuccl.RunOptions(operations="all_gather", min_size="64K", max_size="4M", step=8)


def workspace_of(result: tuccl.TuningResult) -> Path:
    return result.run.root.parents[1]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuccl.TuningResult:
    return tuccl.tune(
        tuccl.read_topology(MACHINE), OPTIONS, workspace=tmp_path_factory.mktemp("api") / "w"
    )


def test_it_is_the_run_of_the_command(
    finished_init: TunedWorkspace, tmp_path: Path, h200: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    stages: list[tuccl.Stage] = []
    mine = tuccl.tune(
        h200,
        replace(OPTIONS, operations="all_reduce,all_gather"),
        workspace=str(tmp_path),
        on_stage=stages.append,
        tell=told.append,
    )
    theirs = Workspace(finished_init.root).current()
    assert mine.run.root.name == theirs.root.name
    assert mine.run.bundle.read_bytes() == theirs.bundle.read_bytes()
    assert not mine.already_done
    assert {stage.name for stage in stages} >= {"schedules", "confirmation"}
    assert told[0].startswith("h200-4gpu: 4 GPUs on 1 node(s)")
    assert capfd.readouterr() == ("", "")


def test_a_machine_at_hand_is_kept_for_retune_and_tuned_once(result: tuccl.TuningResult) -> None:
    machine = tuccl.read_topology(MACHINE)
    again = tuccl.tune(machine, OPTIONS, workspace=workspace_of(result))
    assert again.already_done
    assert again.table == result.table
    record = Workspace(workspace_of(result)).current().record()
    assert record is not None
    kept = Path(str(record.options["topology"]))
    assert tuccl.read_topology(kept).fingerprint() == machine.fingerprint()


def test_a_table_says_what_wins_and_what_a_job_gets(result: tuccl.TuningResult) -> None:
    assert result.times == "modelled"
    assert result.caveats[0].startswith("Computed by a model")
    assert [key.size_bytes for key in result.keys] == [64 << 10, 512 << 10, 4 << 20]
    gains = [key.gain.ratio for key in result.keys if key.gain is not None]
    assert result.speedup == pytest.approx((gains[0] * gains[1] * gains[2]) ** (1 / 3))
    assert result.report.measuring_s > 0
    for entry in result.entries:
        assert entry.provenance is not None
        assert (entry.provenance.backend, entry.provenance.is_measured) == ("simulated", False)
        assert entry.provenance.tuccl_version == tuccl.__version__
        assert entry.confirmation is not None
        assert entry.confirmation.starts == "modelled"
        assert 1.0 < entry.confirmation.low <= entry.confirmation.ratio


def test_a_table_is_shipped_in_forms_for_another_place(
    result: tuccl.TuningResult, tmp_path: Path
) -> None:
    shipped = tuccl.ship(result, tmp_path / "shipped", forms=["env"], place="/opt/tuccl")
    (found,) = [path for path in shipped.files if path.name == "tuccl.envfile"]
    assert "NCCL_TUNER_PLUGIN=/opt/tuccl/" in found.read_text()
    with pytest.raises(tuccl.TucclError, match="is unknown: use one of env"):
        tuccl.ship(result, tmp_path / "shipped", forms=["docker"])


def test_a_call_is_looked_up_in_every_form_of_a_table(
    result: tuccl.TuningResult, tmp_path: Path
) -> None:
    shipped = tuccl.ship(result, tmp_path / "shipped")
    assert shipped.files[-1].name == "tuccl.env"
    forms: list[tuccl.TunedTable | str | Path] = [
        result,
        workspace_of(result),
        str(tmp_path / "shipped"),
        result.run.table,
        result.run.bundle,
    ]
    calls = [tuccl.lookup(form, "all_gather", "4M") for form in forms]
    assert {call.runner for call in calls} == {calls[0].runner}
    assert {call.runs for call in calls} == {calls[0].runs}
    assert all(call.apart for call in calls), "the schedule that won is not run here"
    for call in calls:
        assert call.entry is not None
        assert call.entry.min_bytes <= 4 << 20 <= call.entry.max_bytes
        assert call.table_us == pytest.approx(calls[0].table_us, rel=1e-6)
        assert call.why
        assert "schedule:" not in call.why
    bundle = tuccl.read_table(result.run.bundle)
    assert bundle.times is None
    assert any(entry.apart and entry.apart.time_us is None for entry in bundle.entries)
    assert tuccl.read_table(workspace_of(result)).table == result.table


def test_calls_that_no_entry_holds_are_nccl_s(result: tuccl.TuningResult) -> None:
    untuned_shape = tuccl.lookup(result, "all_gather", "4M", ranks=16, nodes=2)
    assert untuned_shape.entry is None
    assert untuned_shape.gain is None
    assert "is for 4 ranks on 1 node, not for 16 ranks on 2 nodes" in untuned_shape.why
    untuned = tuccl.lookup(result, "broadcast", "4M")
    assert untuned.runner in {"profile", "nccl"}
    assert "no entry of the table holds broadcast" in untuned.why


@pytest.mark.parametrize(
    ("arguments", "shape", "why"),
    [
        (("all_sum", "1M"), {}, "is unknown"),
        (("all_gather", "1x"), {}, "is not understood"),
        (("all_gather", "1M"), {"ranks": 2, "nodes": 3}, "2 ranks on 3 nodes"),
        (("all_gather", "1M"), {"nodes": 2}, "name ranks and nodes"),
    ],
)
def test_calls_that_cannot_be_are_refused(
    result: tuccl.TuningResult, arguments: tuple[str, str], shape: dict[str, int], why: str
) -> None:
    with pytest.raises(tuccl.UsageError, match=why):
        tuccl.lookup(result, arguments[0], arguments[1], **shape)


def test_own_schedules_take_part(tmp_path: Path) -> None:
    machine = tuccl.read_topology(MACHINE)
    ring = next(s for s in tuccl.expert_schedules(machine, "all_gather") if "ring" in s.name)
    (tmp_path / "own").mkdir()
    tuccl.write_schedule(ring, tmp_path / "own" / "ring.xml")
    options = replace(OPTIONS, max_size="64K", own_schedules=str(tmp_path / "own"))
    result = tuccl.tune(machine, options, workspace=tmp_path / "w")
    (key,) = [
        key
        for key in result.report.keys
        if (key.operation, key.size_bytes) == ("all_gather", 64 << 10)
    ]
    assert [name for name, _ in result.report.own_schedules(key)] == [ring.name]
    with pytest.raises(tuccl.UsageError, match="it is for all_gather, this run tunes all_reduce"):
        tuccl.tune(machine, replace(options, operations="all_reduce"), workspace=tmp_path / "v")


def test_a_record_is_replayed_and_written(tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    result = tuccl.tune(
        options=tuccl.RunOptions(records=str(tmp_path / "r.parquet")),
        workspace=tmp_path / "w",
        record=tmp_path / "again.parquet",
    )
    assert result.times == "measured"
    assert (tmp_path / "again.parquet").is_file()


def test_a_backend_that_cannot_be_had_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(tuccl.TucclError) as caught:
        tuccl.tune(MACHINE, tuccl.RunOptions(backend="nccl"), workspace=tmp_path / "w")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"operations": "all_sum"}, "is unknown"),
        ({"backend": "guess"}, "backend 'guess' is unknown"),
        ({"min_size": "4M", "max_size": "1M"}, "lies above"),
        ({"floor": "2.0"}, "--floor"),
        ({"weights": "broadcast=2"}, "is not tuned here"),
        ({"cycles": 0}, "--cycles 0"),
        ({"max_channels": 65}, "--max-channels 65"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    tmp_path: Path, options: dict[str, object], why: str
) -> None:
    with pytest.raises(tuccl.UsageError, match=why):
        tuccl.tune(MACHINE, tuccl.RunOptions(**options), workspace=tmp_path / "w")  # type: ignore[arg-type]
    assert not (tmp_path / "w" / "runs").exists()


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tuccl.WorkspaceError, match="no finished run"):
        tuccl.read_table(tmp_path)
    with pytest.raises(tuccl.UsageError, match="cannot read"):
        tuccl.read_table(tmp_path / "none.parquet")
    for content in (b"", b"TUCCLBDL and no more", b"PAR1"):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(tuccl.TableError, match="x"):
            tuccl.read_table(tmp_path / "x")
