"""`tuccl doctor --process`: what running processes have loaded, seen by their mapped files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runtime.builds import compile_all, link
from tests.runtime.executor_tables import invariant_table, settings_tables
from tests.tuccl.conftest import Run as RunCommand
from tests.tuccl.shipping.job_roots import PROFILE, run_of_one_rank
from tuccl.errors import UsageError
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME, plugin_path
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME, calling_library
from tuccl.shipping.doctor.diagnosis import diagnose_process
from tuccl.shipping.doctor.findings import Finding, Severity
from tuccl.shipping.doctor.running_process import (
    RunningProcess,
    check_ways,
    find_loaded_nccl,
    read_process,
)
from tuccl.shipping.shipment import ship

NCCL = """
int ncclGetVersion(int *version) { *version = 22809; return 0; }
int ncclGroupStart(void) { return 7; }
"""
LINKED = "int ncclGroupStart(void); int begin(void) { return ncclGroupStart(); }"
EXECUTOR = "int tuccl_executor(void) { return 1; }"
PROGRAM = """
import ctypes, sys
loaded = [ctypes.CDLL(path) for path in sys.argv[1:]]
print("ready", flush=True)
sys.stdin.read()
"""
LIBNCCL = "libnccl.so.2"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An NCCL, a library that is linked to it, an executor, and libraries that stand for NCCL."""
    folder = tmp_path_factory.mktemp("running")
    for name, text in (("nccl", NCCL), ("linked", LINKED), ("executor", EXECUTOR)):
        (folder / f"{name}.c").write_text(text)
    nccl, linked, executor = compile_all(
        folder, [folder / f"{name}.c" for name in ("nccl", "linked", "executor")]
    )
    link(folder / LIBNCCL, [nccl], "-shared", f"-Wl,-soname,{LIBNCCL}")
    link(folder / "liblinked.so", [linked, folder / LIBNCCL], "-shared", "-Wl,-rpath,$ORIGIN")
    built = link(folder / EXECUTOR_NAME, [executor], "-shared")
    (folder / CALLING_LIBRARY_NAME).write_bytes(calling_library(built.read_bytes()))
    instead = folder / "instead"
    instead.mkdir()
    needed = [str(built), str(folder / LIBNCCL)]
    (instead / LIBNCCL).write_bytes(calling_library(built.read_bytes(), LIBNCCL, needed))
    return folder


@contextmanager
def running(*libraries: Path, **variables: str) -> Iterator[int]:
    """A process that has loaded these libraries, and its number."""
    command = [sys.executable, "-c", PROGRAM, *map(str, libraries)]
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.communicate("")


def ways(process: RunningProcess, schedules: int = 1) -> list[tuple[Severity, str]]:
    return [(found.severity, found.text) for found in check_ways(process, schedules)]


def test_a_linked_library_is_served_by_a_preloaded_executor(libraries: Path) -> None:
    executor = libraries / EXECUTOR_NAME
    with running(libraries / "liblinked.so", LD_PRELOAD=str(executor)) as number:
        process = read_process(number)
    assert process.nccls == (libraries / LIBNCCL,)
    assert process.environment == {"LD_PRELOAD": str(executor)}
    assert ways(process) == [
        (Severity.OK, f"{executor} is loaded"),
        (
            Severity.OK,
            f"those of liblinked.so pass through the executor: linked to {LIBNCCL}",
        ),
    ]


def test_a_process_that_opens_nccl_itself_goes_past_the_executor(libraries: Path) -> None:
    executor = libraries / EXECUTOR_NAME
    with running(libraries / LIBNCCL, LD_PRELOAD=str(executor)) as number:
        process = read_process(number)
    _, past = check_ways(process, 1)
    assert past.severity is Severity.WARNING
    assert "it has opened NCCL itself, and its calls go past the executor" in past.text
    assert str(libraries / CALLING_LIBRARY_NAME) in past.mend


@pytest.mark.parametrize("stands", [CALLING_LIBRARY_NAME, f"instead/{LIBNCCL}"])
def test_a_library_that_stands_for_nccl_serves_it(libraries: Path, stands: str) -> None:
    with running(libraries / LIBNCCL, libraries / stands) as number:
        process = read_process(number)
    assert process.nccls == (libraries / LIBNCCL,)
    assert ways(process)[-1] == (
        Severity.OK,
        f"those through handles of {libraries / stands} pass through the executor",
    )


def test_without_the_executor_nccl_serves_schedules(libraries: Path) -> None:
    with running(libraries / "liblinked.so") as number:
        process = read_process(number)
    text = "it has not loaded the executor: NCCL serves the calls of 3 schedules"
    assert ways(process, 3) == [(Severity.WARNING, text)]
    assert ways(process, 0) == []


def test_the_nccl_is_the_one_that_is_mapped(libraries: Path, tmp_path: Path) -> None:
    with running(libraries / LIBNCCL) as number:
        found, findings = find_loaded_nccl(read_process(number))
    assert found is not None
    assert (found.path, found.version_text) == (libraries / LIBNCCL, "2.28.9")
    assert [each.severity for each in findings] == [Severity.OK]
    shutil.copy(libraries / LIBNCCL, tmp_path / "libnccl.so.2.30.3")
    with running(libraries / LIBNCCL, tmp_path / "libnccl.so.2.30.3") as number:
        _, findings = find_loaded_nccl(read_process(number))
    assert "it has 2 NCCLs" in findings[-1].text
    with running() as number:
        found, findings = find_loaded_nccl(read_process(number))
    assert found is None
    assert "it has loaded no NCCL" in findings[0].text


def test_a_replaced_nccl_is_not_asked_for_its_version(libraries: Path, tmp_path: Path) -> None:
    own = Path(shutil.copy(libraries / LIBNCCL, tmp_path / LIBNCCL))
    with running(own) as number:
        own.unlink()
        process = read_process(number)
    assert process.replaced == {own}
    found, findings = find_loaded_nccl(process)
    assert found is None
    assert findings == [
        Finding("NCCL", Severity.NOTE, f"{own} has been replaced since the process loaded it")
    ]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUCCL_SYSFS", str(tmp_path / "no-sysfs"))
    ship(run_of_one_rank(tmp_path / "run"), tmp_path / "shipped")
    return tmp_path / "shipped"


def variables_of(shipped: Path) -> dict[str, str]:
    (bundle,) = shipped.glob("bundle-*.tuccl")
    plugin = str(shipped / PLUGIN_NAME)
    table = {"TUCCL_BUNDLE": str(bundle), "TUCCL_BUNDLE_CRC": bundle.stem.split("-")[1]}
    return {"NCCL_TUNER_PLUGIN": plugin, **table, **PROFILE}


def test_a_process_follows_the_table_whose_plugin_it_has_loaded(
    run_inside: RunCommand, libraries: Path, shipped: Path
) -> None:
    plugin, variables = shipped / PLUGIN_NAME, variables_of(shipped)
    with running(libraries / "liblinked.so", plugin, **variables) as number:
        done = run_inside("doctor", "--process", str(number))
    assert done.returncode == 0, done.stdout
    assert f"ok       plugin: {plugin} is loaded" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == f"process {number} follows the table", done.stdout
    with running(libraries / "liblinked.so", **variables) as number:
        done = run_inside("doctor", "--process", str(number), "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["process"], found["loads"]) == (number, False)
    (text,) = [each["text"] for each in found["findings"] if each["severity"] == "error"]
    assert text == "it has not loaded the plugin, which NCCL loads with the first communicator"


@pytest.mark.parametrize(("table", "check"), [("settings", "variables"), ("invariant", "sums")])
def test_an_executor_that_a_handle_loads_serves_as_a_preloaded_one(
    libraries: Path, tmp_path: Path, table: str, check: str
) -> None:
    bundle = tmp_path / "table.tuccl"
    bundle.write_bytes(settings_tables()[table] if table == "settings" else invariant_table())

    def warned(*loaded: Path, **variables: str) -> set[str]:
        with running(*loaded, TUCCL_BUNDLE=str(bundle), **variables) as number:
            found = diagnose_process(number).findings
        return {each.text for each in found if each.check == check and each.mend}

    executor, linked = libraries / EXECUTOR_NAME, libraries / "liblinked.so"
    assert warned(linked, LD_PRELOAD=str(executor)) == set()
    assert warned(libraries / LIBNCCL, libraries / "instead" / LIBNCCL) == set()
    lacking = {
        "settings": "NCCL_MIN_CTAS is not set, and the table was measured with NCCL_MIN_CTAS=32",
        "invariant": "sums do not move by the executor, which does not get the calls: they are "
        "NCCL's",
    }[table]
    # It is not loaded; the process goes past it.
    assert warned(linked) == {lacking}
    assert warned(libraries / LIBNCCL, LD_PRELOAD=str(executor)) == {lacking}


COUNTS = """# TYPE tuccl_calls_total counter
tuccl_calls_total{process="7-0",rank="3",operation="all_reduce",path="schedule"} 12000
tuccl_calls_total{process="7-0",rank="3",operation="all_reduce",path="nccl"} 4000
tuccl_calls_total{process="7-0",rank="3",operation="all_gather",path="setting"} 30
tuccl_bytes_total{process="7-0",rank="3",operation="all_reduce",path="schedule"} 3072000
tuccl_bytes_total{process="7-0",rank="3",operation="all_reduce",path="nccl"} 1.5e+09
tuccl_bytes_total{process="7-0",rank="3",operation="all_gather",path="setting"} 30720
tuccl_communicators_total{process="7-0",rank="3",outcome="served"} 2
tuccl_communicators_total{process="7-0",rank="3",outcome="refused"} 1
tuccl_communicators_total{process="7-0",rank="3",outcome="failed"} 0
tuccl_written_timestamp_seconds{process="7-0",rank="3"} 1767323045
"""


def test_the_counts_of_a_process_are_shown(run_inside: RunCommand, tmp_path: Path) -> None:
    with running(TUCCL_METRICS=str(tmp_path)) as number:
        (tmp_path / f"tuccl-{number}-00c0ffee.prom").write_text(COUNTS)
        (tmp_path / f"tuccl-{number}1-00c0ffee.prom").write_text("another process's")
        done = run_inside("doctor", "--process", str(number))
        as_json = json.loads(run_inside("doctor", "--process", str(number), "--json").stdout)
    lines = [line for line in done.stdout.splitlines() if " counts: " in line]
    assert lines == [
        (
            "ok       counts: until 2026-01-02 03:04:05 UTC it made 16,030 calls of NCCL, of which "
            "12,030 ran by the table"
        ),
        "ok       counts: all_reduce 16,000 calls: 12,000 by schedules, 4,000 by NCCL's own choice",
        "ok       counts: all_gather 30 calls: 30 by the table's settings",
        "ok       counts: communicators: 2 served, 1 refused",
    ]
    assert as_json["counts"]["calls"][0] == {
        "operation": "all_reduce", "path": "schedule", "calls": 12000, "bytes": 3072000,
    }  # fmt: skip
    assert as_json["counts"]["communicators"] == {"served": 2, "refused": 1}


def test_counts_are_read_only_from_a_file_of_the_process(tmp_path: Path) -> None:
    def noted(number: int) -> str:
        (found,) = [each for each in diagnose_process(number).findings if each.check == "counts"]
        assert found.severity is Severity.NOTE
        return found.text

    with running(TUCCL_METRICS=str(tmp_path)) as number:
        assert noted(number) == f"TUCCL_METRICS={tmp_path} has no file of the process yet"
        path = tmp_path / f"tuccl-{number}-00c0ffee.prom"
        path.write_text("x" * (1 << 21))
        assert noted(number) == f"{path} has more than 1 MB: it is none of the executor's"
        path.write_text('tuccl_calls_total{operation="all_reduce",path="nccl"} many\n')
        assert noted(number) == f"{path} holds no counts of the executor"
        path.unlink()
        os.mkfifo(path)
        assert "not a file" in noted(number)
    with running() as number:
        assert all(each.check != "counts" for each in diagnose_process(number).findings)


def test_a_plugin_that_was_shipped_again_is_told(
    run_inside: RunCommand, libraries: Path, shipped: Path
) -> None:
    plugin = shipped / PLUGIN_NAME
    with running(libraries / "liblinked.so", plugin, **variables_of(shipped)) as number:
        plugin.unlink()
        shutil.copy(plugin_path(), plugin)
        done = run_inside("doctor", "--process", str(number))
    assert done.returncode == 0, done.stdout
    again = f"note     plugin: {plugin} is loaded as it was, and has been shipped again since"
    assert again in done.stdout.splitlines()


def test_what_cannot_be_examined_is_said(run_inside: RunCommand, shipped: Path) -> None:
    with running() as number:
        pass
    with pytest.raises(UsageError, match=f"process {number} does not exist on this host"):
        read_process(number)
    done = run_inside("doctor", shipped, "--process", str(os.getpid()))
    assert done.returncode == 2
    said = "tuccl: --process examines what a process has loaded: DIR cannot be given\n"
    assert done.stderr == said
