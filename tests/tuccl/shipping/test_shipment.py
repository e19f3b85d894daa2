"""`tuccl ship`, and what a job gets when it sources the result."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import load_bundle, read_bundle
from lookup_tables.bundles.host_devices import NO_FACTS
from lookup_tables.collective import Collective
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    Setting,
    Shape,
    Table,
)
from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.shipping.form_readers import sourced
from tests.tuccl.tuned_tables import AMD, FOUR_GPUS, NVIDIA, PHASED, TWO_HOSTS, tuned
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import Obstacle
from tuccl.runtime import EXECUTOR_NAME
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME
from tuccl.shipping import shipment
from tuccl.shipping.environment_file import ShippedExecutor, environment_file
from tuccl.shipping.shipment import shipped_executor
from tuccl.workspace.runs import Workspace

TABLE = Table("machine", "0" * 16, (), (), {"NCCL_BUFFSIZE": "1048576", "NCCL_NTHREADS": "256"})


def put_files(directory: Path, crc: int = 0) -> None:
    """Put files where `tuccl.env` looks for plugin and bundle."""
    for name in ("libnccl-tuner-tuccl.so", f"bundle-{crc:08x}.tuccl"):
        (directory / name).touch()


@pytest.mark.parametrize("folder", ["plain", "with space", "quote'd", "dollar$HOME"])
def test_a_job_that_sources_it_has_plugin_bundle_checksum_and_profile(
    tmp_path: Path, folder: str
) -> None:
    directory = tmp_path / folder
    directory.mkdir()
    put_files(directory, 0xABC)
    path = tmp_path / "tuccl.env"
    path.write_text(environment_file(TABLE, directory, 0xABC))
    expected = {
        "NCCL_TUNER_PLUGIN": f"{directory}/libnccl-tuner-tuccl.so",
        "TUCCL_BUNDLE": f"{directory}/bundle-00000abc.tuccl",
        "TUCCL_BUNDLE_CRC": "00000abc",
        "NCCL_NTHREADS": "256",
        "NCCL_BUFFSIZE": "1048576",
    }
    assert expected.items() <= sourced(path).items()


def test_the_executor_is_preloaded_once_where_a_job_runs_it(tmp_path: Path) -> None:
    put_files(tmp_path)
    path, executor = tmp_path / "tuccl.env", tmp_path / "libtuccl-executor.so"
    table, _ = tuned(FOUR_GPUS)
    shipped = shipped_executor(table, Evidence.MEASURED, executor)
    assert shipped == ShippedExecutor(executor, None)
    path.write_text(environment_file(table, tmp_path, 0, executor=shipped))
    assert sourced(path)["LD_PRELOAD"] == str(executor)
    across, _ = tuned(TWO_HOSTS, stored=PHASED)
    assert shipped_executor(across, Evidence.MEASURED, executor) == shipped
    # An LD_PRELOAD of the job stays, and a second time adds nothing.
    assert sourced(path, LD_PRELOAD=f"{executor} /x.so")["LD_PRELOAD"] == f"{executor} /x.so"


def test_the_library_for_vllm_lies_where_the_lines_say(tmp_path: Path) -> None:
    put_files(tmp_path)
    path, executor = tmp_path / "tuccl.env", tmp_path / EXECUTOR_NAME
    table, _ = tuned(FOUR_GPUS)
    shipped = shipped_executor(table, Evidence.MEASURED, executor)
    text = environment_file(table, tmp_path, 0, executor=shipped)
    for name in ("VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH"):
        line = next(line for line in text.splitlines() if f"export {name}=" in line)
        path.write_text(f"{text}\n{line.strip().removeprefix('#').strip()}\n")
        assert sourced(path)[name] == str(tmp_path / CALLING_LIBRARY_NAME)


@pytest.mark.parametrize(
    ("shape", "model", "evidence", "library", "obstacle", "ships"),
    [
        (TWO_HOSTS, NVIDIA, Evidence.MEASURED, True, Obstacle.ACROSS_HOSTS, False),
        (FOUR_GPUS, AMD, Evidence.MODELLED, True, Obstacle.NOT_NVIDIA, False),
        (FOUR_GPUS, NVIDIA, Evidence.MODELLED, True, Obstacle.NOT_MEASURED, True),
        (FOUR_GPUS, NVIDIA, Evidence.MEASURED, False, Obstacle.NOT_BUILT, False),
    ],
)
def test_an_executor_that_is_not_loaded_is_named_with_why_and_what_to_do(
    tmp_path: Path, shape: Shape, model: str, evidence: Evidence, library: bool,
    obstacle: Obstacle, ships: bool,
) -> None:  # fmt: skip
    put_files(tmp_path)
    path, executor = tmp_path / "tuccl.env", tmp_path / "libtuccl-executor.so"
    table, _ = tuned(shape, model=model)
    shipped = shipped_executor(table, evidence, executor if library else None)
    assert shipped == ShippedExecutor(executor if ships else None, obstacle)
    text = environment_file(table, tmp_path, 0, executor=shipped)
    path.write_text(text)
    assert sourced(path, LD_PRELOAD="")["LD_PRELOAD"] == ""
    comments = " ".join(line.lstrip("# ") for line in text.splitlines())
    assert obstacle.sentence in comments
    unmarked = text.replace("# tuccl_executor=", "tuccl_executor=")
    assert (unmarked != text) is ships


def test_the_lines_that_are_comments_load_the_executor_without_their_marks(tmp_path: Path) -> None:
    put_files(tmp_path)
    path, executor = tmp_path / "tuccl.env", tmp_path / "libtuccl-executor.so"
    table, _ = tuned(FOUR_GPUS)
    shipped = shipped_executor(table, Evidence.MODELLED, executor)
    head, mark, tail = environment_file(table, tmp_path, 0, executor=shipped).partition(
        "take the marks off these lines:\n"
    )
    marked, end, rest = tail.partition("# unset tuccl_executor\n")
    unmarked = "".join(line.replace("# ", "", 1) for line in (marked + end).splitlines(True))
    path.write_text(f"{head}{mark}{unmarked}{rest}")
    assert sourced(path)["LD_PRELOAD"] == str(executor)


def test_moved_files_are_found_by_tuccl_dir(tmp_path: Path) -> None:
    path = tmp_path / "tuccl.env"
    path.write_text(environment_file(TABLE, tmp_path, 0))
    assert sourced(path, TUCCL_DIR="/moved")["TUCCL_BUNDLE"] == "/moved/bundle-00000000.tuccl"


@pytest.mark.long
def test_a_tuned_table_leaves_channels_to_the_executor_where_a_job_has_it(
    run_inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "built.so"
    library.write_bytes(b"not loaded here")
    monkeypatch.setattr(shipment, "has_executor", lambda: True)
    monkeypatch.setattr(shipment, "executor_path", lambda: library)
    done = run_inside(
        *("init", "--topology", "shipped:h200-4gpu", "--backend", "simulated", "--min-size", "4M"),
        *("--max-size", "4M", "--operations", "all_reduce", "--shapes", "whole,pairs"),
    )
    assert done.returncode == 0, done.stderr
    assert "process profile: NCCL_MIN_CTAS=" in done.stdout
    assert run_inside("ship", "shipped").returncode == 0
    shipped = tmp_path / "shipped"
    alone = sourced(shipped / "tuccl.env")
    bundle = load_bundle(Path(alone["TUCCL_BUNDLE"]))
    assert bundle.settings == tuple(
        Setting(shape, "NCCL_MIN_CTAS") for shape in (Shape(2, 1, 2), Shape(4, 1, 4))
    )
    channels = bundle.profile["NCCL_MIN_CTAS"]
    # Modelled times: the executor is not loaded by itself.
    assert alone["NCCL_MIN_CTAS"] == channels
    beside = sourced(shipped / "tuccl.env", LD_PRELOAD=f"{shipped}/{EXECUTOR_NAME}")
    assert "NCCL_MIN_CTAS" not in beside
    assert beside["TUCCL_PROFILE"] == alone["TUCCL_PROFILE"] == " ".join(bundle.profile)
    explained = [
        run_inside("explain", "all_reduce", "4M", "--ranks", ranks).stderr for ranks in ("2", "3")
    ]
    assert "were not tuned" not in explained[0]
    assert f"under the process profile NCCL_MIN_CTAS={channels}" in explained[1]


@pytest.mark.long
@pytest.mark.usefixtures("tuned")
def test_ship_writes_everything_a_job_needs(run_tuccl: Run, tmp_path: Path) -> None:
    done = run_tuccl("ship", "shipped")
    assert done.returncode == 0, done.stderr
    shipped = tmp_path / "shipped"
    variables = sourced(shipped / "tuccl.env")
    crc = variables["TUCCL_BUNDLE_CRC"]
    names = {path.name for path in shipped.iterdir()}
    assert names - {EXECUTOR_NAME, CALLING_LIBRARY_NAME} == {  # Built where GPUs are.
        f"bundle-{crc}.tuccl", f"tuccl-{crc}.env",
        "libnccl-tuner-tuccl.so", "tuccl.env", "table.parquet", "machine.json", "schedules",
        "tuccl-manifest.json", "versions",
    }  # fmt: skip
    assert Path(variables["NCCL_TUNER_PLUGIN"]).read_bytes()[:4] == b"\x7fELF"
    assert "not measured" in done.stderr
    assert "not measured" in (shipped / "tuccl.env").read_text()
    assert f"{bundle_crc(Path(variables['TUCCL_BUNDLE']).read_bytes()):08x}" == crc
    schedule = min((shipped / "schedules").iterdir())
    assert run_tuccl("verify", schedule).returncode == 0


@pytest.mark.usefixtures("tuned")
def test_a_directory_that_would_break_out_of_its_comment_is_refused(
    run_tuccl: Run, tmp_path: Path
) -> None:
    done = run_tuccl("ship", "x\ntouch PWNED")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"tuccl-workspace"}


def test_a_second_table_in_one_shell_takes_back_what_the_first_set(tmp_path: Path) -> None:
    plain = Table("machine", "1" * 16, (), ())
    for name, table, crc in (("first", TABLE, 1), ("second", plain, 2)):
        (tmp_path / f"{name} files").mkdir()
        put_files(tmp_path / f"{name} files", crc)
        (tmp_path / name).write_text(environment_file(table, tmp_path / f"{name} files", crc))
    script = """
. ./first; [ "$NCCL_NTHREADS" = 256 ]
. ./second; [ -z "${NCCL_NTHREADS:-}" ]; [ -z "${NCCL_BUFFSIZE:-}" ]
echo "$TUCCL_BUNDLE"
"""
    done = subprocess.run(
        ["/bin/sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tmp_path}/second files/bundle-00000002.tuccl\n"


@pytest.mark.long
def test_a_damaged_bundle_is_not_shipped(
    run_tuccl: Run, tuned: TunedWorkspace, tmp_path: Path
) -> None:
    run = Workspace(tuned.root).current()
    whole = run.bundle.read_bytes()
    run.bundle.write_bytes(whole[:50])
    assert run_tuccl("ship", "shipped").returncode == 0
    (bundle,) = (tmp_path / "shipped").glob("bundle-*.tuccl")
    shipped = load_bundle(bundle)
    assert shipped.facts.hosts
    assert replace(shipped, crc=0, facts=NO_FACTS) == replace(read_bundle(whole, "run"), crc=0)


def table_of(provenance: Provenance) -> Table:
    key = Key(Collective.ALL_GATHER, 1024, 1024, Shape(4, 1, 4), TABLE.fingerprint)
    builtin = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 4)
    entry = Entry(key, 1024, builtin, None, 1.0, 1.0, 2.0, 5, 0.0, "", provenance)
    return replace(TABLE, entries=(entry,))


@pytest.mark.parametrize("evidence", list(Evidence))
def test_what_speaks_against_a_table_stands_in_its_environment_file(evidence: Evidence) -> None:
    text = environment_file(TABLE, Path("/shipped"), 0, evidence.caveat)
    assert evidence.caveat in text
    assert "measured with" not in text


def test_the_nccl_that_a_table_was_measured_with_is_told_the_plugin(tmp_path: Path) -> None:
    put_files(tmp_path)
    path = tmp_path / "tuccl.env"
    measured = table_of(Provenance("nccl", NcclVersion(2, 28, 9)))
    path.write_text(environment_file(measured, tmp_path, 0))
    assert sourced(path)["TUCCL_NCCL"] == "2.28.9"
    modelled = table_of(Provenance("simulated", details="after NCCL 2.28"))
    path.write_text(environment_file(modelled, tmp_path, 0))
    assert sourced(path, TUCCL_NCCL="2.27.5")["TUCCL_NCCL"] == ""


def with_setting(table: Table) -> Table:
    """The table with a profile, of which communicators of four ranks can have a part."""
    return replace(
        table,
        profile={"NCCL_MIN_CTAS": "32", "NCCL_NTHREADS": "256"},
        settings=(Setting(FOUR_GPUS, "NCCL_MIN_CTAS"),),
    )


def test_a_job_with_the_executor_lacks_what_that_sets_on_communicators(tmp_path: Path) -> None:
    put_files(tmp_path)
    path, executor = tmp_path / "tuccl.env", tmp_path / "libtuccl-executor.so"
    table = with_setting(tuned(FOUR_GPUS)[0])
    shipped = shipped_executor(table, Evidence.MEASURED, executor)
    path.write_text(environment_file(table, tmp_path, 0, executor=shipped))
    found = sourced(path)
    assert "NCCL_MIN_CTAS" not in found
    assert found["NCCL_NTHREADS"] == "256"
    assert found["TUCCL_PROFILE"] == "NCCL_MIN_CTAS NCCL_NTHREADS"
    # What a job without it, or an earlier table, left in the shell is taken back.
    before = {"NCCL_MIN_CTAS": "64", "TUCCL_PROFILE": "NCCL_MIN_CTAS"}
    assert "NCCL_MIN_CTAS" not in sourced(path, **before)


def test_a_job_without_the_executor_gets_the_whole_profile(tmp_path: Path) -> None:
    put_files(tmp_path)
    path, executor = tmp_path / "tuccl.env", tmp_path / "libtuccl-executor.so"
    table = with_setting(tuned(FOUR_GPUS)[0])
    for shipped in (
        None,
        shipped_executor(table, Evidence.MEASURED, None),
        shipped_executor(table, Evidence.MODELLED, executor),
    ):
        path.write_text(environment_file(table, tmp_path, 0, executor=shipped))
        assert sourced(path)["NCCL_MIN_CTAS"] == "32"
    # It is shipped, but cannot be preloaded here.
    executor.mkdir()
    shipped = shipped_executor(table, Evidence.MEASURED, executor)
    text = environment_file(table, tmp_path, 0, executor=shipped)
    failing = text.replace("/bin/sh -c :", "/bin/sh -c false")
    assert failing != text
    path.write_text(failing)
    found = sourced(path)
    assert (found["NCCL_MIN_CTAS"], found.get("LD_PRELOAD", "")) == ("32", "")


def test_a_job_by_hand_loads_the_executor_and_needs_no_variable(tmp_path: Path) -> None:
    put_files(tmp_path)
    path, executor = tmp_path / "tuccl.env", tmp_path / "libtuccl-executor.so"
    table = with_setting(tuned(FOUR_GPUS)[0])
    shipped = shipped_executor(table, Evidence.MODELLED, executor)
    path.write_text(environment_file(table, tmp_path, 0, executor=shipped))
    assert "NCCL_MIN_CTAS" not in sourced(path, LD_PRELOAD=f"{executor} /x.so")
