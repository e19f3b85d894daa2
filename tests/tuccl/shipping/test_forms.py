"""Forms of a shipped table: read by the rules of the tools that take them, and by jobs."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Setting, Shape
from tests.tuccl.conftest import Run as RunCommand
from tests.tuccl.conftest import TunedWorkspace
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.form_readers import (
    docker_env_file,
    enroot_environment,
    fstab,
    slurm_task_prolog,
    systemd_environment_file,
)
from tests.tuccl.shipping.job_roots import (
    PLACE,
    PROFILE,
    JobRoot,
    make_job_root,
    run_of_one_rank,
    unloadable,
)
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.errors import UsageError
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.shipping import shipment
from tuccl.shipping.doctor.elf import needed_by
from tuccl.shipping.environment_file import ShippedExecutor
from tuccl.shipping.forms import (
    PATHS_OF,
    Form,
    nccl_conf,
    parse_forms,
    task_prolog,
    variables_file,
)
from tuccl.shipping.job_settings import JobSettings
from tuccl.shipping.manifest import read_manifest
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_directory import form_tables, held
from tuccl.shipping.shipped_view import view_shipped
from tuccl.workspace.runs import Run

ALL = tuple(Form)
STATIC = (Form.ENV, Form.NCCL_CONF, Form.ENROOT, Form.KUBERNETES)
"""Forms that name the place of the directory."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_of_one_rank(tmp_path / "run")


@pytest.fixture
def shipped(run: Run, tmp_path: Path) -> Path:
    """A table in all forms, for jobs that find it at PLACE."""
    ship(run, tmp_path / "shipped", forms=ALL, place=Path(PLACE))
    return tmp_path / "shipped"


@pytest.fixture(scope="session")
def empty_root(stand_ins: StandIns, tmp_path_factory: pytest.TempPathFactory) -> JobRoot:
    return make_job_root(tmp_path_factory.mktemp("roots") / "root", stand_ins)


@pytest.fixture
def root(empty_root: JobRoot, shipped: Path) -> JobRoot:
    """The root of a container, with the directory at PLACE, where it was never shipped to."""
    target = empty_root.root / PLACE.lstrip("/")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(shipped, target)
    shutil.rmtree(shipped)
    return empty_root


def sum_of(directory: Path) -> str:
    return str(json.loads((directory / "tuccl-manifest.json").read_text())["bundle_crc"])


def place_in(root: JobRoot) -> Path:
    return root.root / PLACE.lstrip("/")


def text_in(root: JobRoot, name: str) -> str:
    return (place_in(root) / name).read_text()


def loads(root: JobRoot, variables: dict[str, str]) -> None:
    """Hold a job with these variables against the table at PLACE."""
    started = root.job(variables)
    assert (started.code, started.loaded) == (0, (PLACE, sum_of(place_in(root))))
    assert {name: variables[name] for name in PROFILE} == PROFILE


@pytest.mark.parametrize("read", [docker_env_file, systemd_environment_file])
def test_a_container_and_a_service_have_the_table(
    root: JobRoot, read: Callable[[str], dict[str, str]]
) -> None:
    loads(root, read(text_in(root, "tuccl.envfile")))


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_the_lines_for_containers_can_be_sourced_too(root: JobRoot, shell: str) -> None:
    started = root.job({}, f"set -a; . {PLACE}/tuccl.envfile; set +a", shell)
    assert started.loaded is not None


def test_systemd_takes_a_unit_with_the_file(shipped: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "job.service"
    environment = f"EnvironmentFile=-{shipped}/tuccl.envfile"
    unit.write_text(f"[Service]\n{environment}\nExecStart=/bin/true\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "job.service" in line] == []


def test_nccls_own_file_gives_what_the_environment_lacks(root: JobRoot) -> None:
    conf = {"NCCL_CONF_FILE": f"{PLACE}/nccl.conf"}
    started = root.job(conf)
    assert started.loaded == (PLACE, sum_of(place_in(root)))
    assert root.job({**conf, "NCCL_TUNER_PLUGIN": "none"}).loaded is None
    text = text_in(root, "nccl.conf")
    assert all(f"{name}={value}\n" in text for name, value in PROFILE.items())
    assert "=" not in "".join(line for line in text.splitlines() if line.startswith("#"))


def prolog(root: JobRoot, **variables: str) -> tuple[dict[str, str], str]:
    done = root.run([f"{PLACE}/slurm-task-prolog.sh"], variables)
    assert done.returncode == 0
    return slurm_task_prolog(done.stdout), done.stderr


def test_a_task_has_the_table_from_its_prolog(root: JobRoot) -> None:
    given, complaints = prolog(root)
    assert complaints == ""
    loads(root, given)
    assert given["TUCCL_PROFILE"].split() == list(PROFILE)


def test_what_a_task_has_set_itself_stays(root: JobRoot) -> None:
    given, _ = prolog(root, NCCL_NTHREADS="512")
    assert "NCCL_NTHREADS" not in given
    assert given["NCCL_BUFFSIZE"] == PROFILE["NCCL_BUFFSIZE"]
    assert prolog(root, NCCL_TUNER_PLUGIN="none") == ({}, "")
    assert prolog(root, TUCCL_BUNDLE="/other") == ({}, "")


def test_a_prolog_finds_its_directory_through_a_link_and_where_it_was_moved(
    root: JobRoot, tmp_path: Path
) -> None:
    link = root.root / "etc" / "prolog"
    link.unlink(missing_ok=True)
    link.symlink_to(f"{PLACE}/slurm-task-prolog.sh")
    done = root.run(["/etc/prolog"])
    assert slurm_task_prolog(done.stdout)["TUCCL_BUNDLE"].startswith(f"{PLACE}/bundle-")
    moved = tmp_path / "it's moved $HOME"
    shutil.copytree(place_in(root), moved)
    done = subprocess.run(
        [moved / "slurm-task-prolog.sh"], env={}, capture_output=True, text=True, check=True
    )
    given = slurm_task_prolog(done.stdout)
    assert given["TUCCL_BUNDLE"] == f"{moved}/bundle-{sum_of(moved)}.tuccl"


def test_enroot_mounts_the_directory_and_sets_the_variables(root: JobRoot, shipped: Path) -> None:
    loads(root, enroot_environment(text_in(root, "enroot/50-tuccl.env"), {}))
    ((source, target, kind, options),) = fstab(text_in(root, "enroot/50-tuccl.fstab"))
    assert (source, target, kind) == (str(shipped), PLACE, "none")
    assert {"bind", "ro", "nofail", "x-create=dir"} <= set(options.split(","))


@pytest.mark.parametrize("odd", ["a b", "a\\b", "a\\040b", "$a", "ä#b"])
def test_enroot_mounts_a_directory_whose_name_is_special_in_fstab(
    run: Run, tmp_path: Path, odd: str
) -> None:
    ship(run, tmp_path / odd, forms=[Form.ENROOT], place=Path(PLACE))
    ((source, target, *_),) = fstab((tmp_path / odd / "enroot" / "50-tuccl.fstab").read_text())
    assert (source, target) == (str(tmp_path / odd), PLACE)


def test_a_name_in_which_enroot_would_put_a_variable_is_refused(run: Run, tmp_path: Path) -> None:
    odd = tmp_path / "a${HOME}b"
    with pytest.raises(UsageError, match="in whose place enroot puts a variable; ship to"):
        ship(run, odd, forms=[Form.ENROOT], place=Path(PLACE))
    assert not odd.exists()


def objects(root: JobRoot) -> dict[str, Any]:
    folder = place_in(root) / "kubernetes"
    return {path.name: yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")}


def test_a_pod_on_a_node_with_the_copied_directory_has_the_table(root: JobRoot) -> None:
    variables = objects(root)["configmap.yaml"]["data"]
    image = root.root / "tuccl"
    shutil.rmtree(image, ignore_errors=True)
    place_in(root).rename(image)
    (place_in(root)).mkdir()
    older = place_in(root) / "bundle-00000001.tuccl"
    older.write_text("of an earlier table")
    done = root.run(["/bin/sh", "/tuccl/kubernetes/copy.sh", "/tuccl", PLACE], {"PATH": "/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    loads(root, variables)
    assert older.exists()
    assert os.access(place_in(root) / "slurm-task-prolog.sh", os.X_OK)
    assert not list(place_in(root).glob(".tuccl-partial-*"))


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/dash", "/bin/bash"])
def test_a_shell_in_a_container_has_the_table(root: JobRoot, shell: str) -> None:
    started = root.job({}, f". {PLACE}/tuccl.env", shell)
    assert (started.code, started.complaints) == (0, "")
    assert started.loaded == (PLACE, sum_of(place_in(root)))


@pytest.mark.parametrize("script", ["tuccl.env", "slurm-task-prolog.sh", "kubernetes/copy.sh"])
def test_shellcheck_takes_the_scripts(shipped: Path, script: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck")
    command = ["shellcheck", "--shell=sh", str(shipped / script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_bash_finds_a_directory_that_was_moved_and_the_others_are_told(root: JobRoot) -> None:
    moved = root.root / "moved"
    shutil.rmtree(moved, ignore_errors=True)
    place_in(root).rename(moved)
    for source in (". /moved/tuccl.env", "cd /moved; . ./tuccl.env"):
        assert root.job({}, source, "/bin/bash").loaded == ("/moved", sum_of(moved))
    started = root.job({}, ". /moved/tuccl.env", "/bin/dash")
    assert (started.code, started.loaded) == (0, None)
    assert "NCCL stays as it is: ship there again, or set TUCCL_DIR" in started.complaints
    started = root.job({"TUCCL_DIR": "/moved"}, ". /moved/tuccl.env", "/bin/dash")
    assert started.loaded == ("/moved", sum_of(moved))


@pytest.mark.parametrize("missing", ["bundle-*.tuccl", "libnccl-tuner-tuccl.so"])
def test_a_missing_file_costs_a_warning_and_the_table_not_the_job(
    root: JobRoot, missing: str
) -> None:
    (path,) = place_in(root).glob(missing)
    path.unlink()
    for shell in ("/bin/sh", "/bin/bash"):
        started = root.job({}, f". {PLACE}/tuccl.env", shell)
        assert (started.code, started.loaded) == (0, None)
        assert "NCCL stays as it is" in started.complaints
    given, complaints = prolog(root)
    assert given == {}
    assert "NCCL stays as it is" in complaints
    shown = root.run(["/bin/sh", "-euc", f". {PLACE}/tuccl.env; set"])
    assert not [line for line in shown.stdout.splitlines() if line.startswith(("NCCL", "tuccl_"))]


def test_a_node_without_the_directory_runs_the_job_as_it_is(root: JobRoot) -> None:
    forms = [
        docker_env_file(text_in(root, "tuccl.envfile")),
        objects(root)["configmap.yaml"]["data"],
        enroot_environment(text_in(root, "enroot/50-tuccl.env"), {}),
        {"NCCL_CONF_FILE": f"{PLACE}/nccl.conf"},
    ]
    shutil.rmtree(place_in(root))
    for variables in forms:
        started = root.job(variables)
        assert (started.code, started.loaded) == (0, None)


@pytest.mark.parametrize("loadable", [True, False])
def test_an_executor_that_ends_every_process_is_not_preloaded(
    run: Run, tmp_path: Path, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, loadable: bool
) -> None:
    library = stand_ins.executor if loadable else unloadable(tmp_path)
    wanted = ShippedExecutor(library, None)
    monkeypatch.setattr(shipment, "shipped_executor", lambda *_: wanted)
    target = tmp_path / "shipped"
    ship(run, target, forms=ALL)
    executor = str(target / "libtuccl-executor.so")
    script = f'. {target}/tuccl.env; echo "$NCCL_TUNER_PLUGIN $LD_PRELOAD"'
    for shell in ("sh", "bash"):
        done = subprocess.run(
            [shell, "-euc", script], env={"LD_PRELOAD": ""}, capture_output=True, text=True,
            check=True, executable=f"/bin/{shell}",
        )  # fmt: skip
        assert done.stdout.split()[1:] == ([executor] if loadable else [])
        assert ("cannot be preloaded here" in done.stderr) is not loadable
    done = subprocess.run(
        [target / "slurm-task-prolog.sh"], env={}, capture_output=True, text=True, check=True
    )
    assert slurm_task_prolog(done.stdout).get("LD_PRELOAD") == (executor if loadable else None)
    assert docker_env_file((target / "tuccl.envfile").read_text())["LD_PRELOAD"] == executor
    conf = (target / "nccl.conf").read_text()
    assert "The executor cannot be loaded from here: LD_PRELOAD" in conf
    assert executor not in conf


@pytest.mark.parametrize("form", STATIC)
@pytest.mark.parametrize("odd", ["a b", "a'b", "a$b", "a;b", "a#b", "a\\b", 'a"b', "ä"])
def test_a_place_that_a_form_cannot_hold_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path, form: Form, odd: str
) -> None:
    with pytest.raises(UsageError, match=f"cannot stand in the form {form.value}.* with --at"):
        ship(run, tmp_path / odd, forms=[form])
    assert not (tmp_path / odd).exists()
    ship(run, tmp_path / odd, forms=[form], place=Path("/opt/tuccl"))


def test_values_of_a_profile_are_held_to_the_same(tmp_path: Path) -> None:
    run = run_of_one_rank(tmp_path / "run", {"NCCL_THREAD_THRESHOLDS": "1 2 3"})
    with pytest.raises(UsageError, match="NCCL_THREAD_THRESHOLDS='1 2 3' cannot stand"):
        ship(run, tmp_path / "shipped", forms=[Form.ENV])
    ship(run, tmp_path / "shipped", forms=[Form.SLURM])
    done = subprocess.run(
        [tmp_path / "shipped" / "slurm-task-prolog.sh"], env={}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert slurm_task_prolog(done.stdout)["NCCL_THREAD_THRESHOLDS"] == "1 2 3"


def test_later_ships_renew_the_forms_and_remember_the_place(run: Run, tmp_path: Path) -> None:
    target, next_run = tmp_path / "shipped", run_of_one_rank(tmp_path / "next", {})
    ship(run, target, forms=[Form.ENV], place=Path("/opt/tuccl"))
    first = (target / "tuccl.envfile").read_text()
    ship(next_run, target, forms=[Form.SLURM])
    second = docker_env_file((target / "tuccl.envfile").read_text())
    assert second["TUCCL_BUNDLE_CRC"] == sum_of(target)
    assert second["TUCCL_BUNDLE"] == f"/opt/tuccl/bundle-{sum_of(target)}.tuccl"
    assert "NCCL_NTHREADS" in first
    assert "NCCL_NTHREADS" not in second
    manifest = json.loads((target / "tuccl-manifest.json").read_text())
    assert (manifest["forms"], manifest["place"]) == (["env", "slurm"], "/opt/tuccl")
    assert {"tuccl.envfile", "slurm-task-prolog.sh"} <= {f["path"] for f in manifest["files"]}


def table_in_forms(target: Path) -> set[str]:
    return set(form_tables(target).values())


def test_every_form_names_its_table(shipped: Path) -> None:
    tables = form_tables(shipped)
    assert set(tables.values()) == {sum_of(shipped)}
    named = set(Form) - {Form.DLOPEN}  # It loads the executor, whose table a job's variables name.
    assert all(not tables.keys().isdisjoint(PATHS_OF[form]) for form in named)


@pytest.fixture
def with_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_ins: StandIns) -> Run:
    """A run whose table has schedules, on a host with an executor and the stand-in as its NCCL."""
    run = run_of_one_rank(tmp_path / "tuned")
    table, report = tuned(FOUR_GPUS)
    run.table.write_bytes(table_to_parquet_bytes(table))
    run.report.write_text(report.model_dump_json())
    monkeypatch.setattr(shipment, "has_executor", lambda: True)
    monkeypatch.setattr(shipment, "executor_path", lambda: stand_ins.executor)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(stand_ins.nccl))
    return run


def test_the_library_for_programs_that_open_nccl_needs_the_executor_then_nccl(
    with_schedules: Run, tmp_path: Path, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "shipped"
    shipped = ship(with_schedules, target, forms=[Form.DLOPEN])
    library = target / "dlopen" / "libnccl.so.2"
    assert library in shipped.files
    assert needed_by(library) == ("$ORIGIN/../libtuccl-executor.so", str(stand_ins.nccl))
    # A later ship renews it, and one that cannot says why.
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none"))
    again = ship(with_schedules, target)
    assert any("no dlopen/libnccl.so.2: which NCCL a job loads" in said for said in again.caveats)


def test_without_the_executor_there_is_no_library_for_programs_that_open_nccl(
    run: Run, tmp_path: Path
) -> None:
    shipped = ship(run, tmp_path / "shipped", forms=[Form.DLOPEN])
    assert "no dlopen/libnccl.so.2: the table is shipped without the executor" in shipped.caveats


def test_a_form_that_another_ship_adds_meanwhile_is_renewed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, other = tmp_path / "shipped", run_of_one_rank(tmp_path / "other", {})
    ship(run, target)

    @contextmanager
    def held_second(path: Path) -> Iterator[None]:
        monkeypatch.undo()
        ship(other, target, forms=[Form.SLURM], place=Path("/opt/tuccl"))
        with held(path):
            yield

    monkeypatch.setattr(shipment, "held", held_second)
    ship(run, target)
    assert table_in_forms(target) == {sum_of(target)}
    manifest = read_manifest(target)
    assert manifest is not None
    assert (manifest.forms, manifest.place) == (["slurm"], "/opt/tuccl")


def test_a_form_of_another_table_is_told_and_renewed_by_the_next_ship(
    run: Run, tmp_path: Path
) -> None:
    target, other = tmp_path / "shipped", run_of_one_rank(tmp_path / "other", {})
    ship(other, target, forms=[Form.SLURM])
    prolog, before = (target / "slurm-task-prolog.sh").read_bytes(), sum_of(target)
    (target / "slurm-task-prolog.sh").unlink()
    (target / "tuccl-manifest.json").unlink()
    ship(run, target)
    (target / "slurm-task-prolog.sh").write_bytes(prolog)
    (told,) = view_shipped(target).problems
    assert told == (
        f"slurm-task-prolog.sh gives jobs the table {before}, tuccl.env gives {sum_of(target)}; "
        "ship there again"
    )
    ship(run, target)
    assert table_in_forms(target) == {sum_of(target)}
    assert view_shipped(target).problems == ()


def test_forms_are_named_in_a_list() -> None:
    assert parse_forms("slurm, env,slurm") == (Form.SLURM, Form.ENV)
    for text in ("", " , ", "docker"):
        with pytest.raises(UsageError, match="use one of env, nccl-conf, slurm, enroot"):
            parse_forms(text)


@pytest.mark.usefixtures("tuned")
def test_the_command_takes_forms_and_a_place(
    run_inside: RunCommand, tuned: TunedWorkspace, tmp_path: Path
) -> None:
    done = run_inside("ship", "shipped", "--to", "env,kubernetes", "--at", "/opt/tuccl", "--json")
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert str(tmp_path / "shipped" / "kubernetes" / "pod-patch.yaml") in files
    for wrong, said in (
        (("--to", "docker"), "use one of env"),
        (("--at", "opt"), "is not an absolute path"),
        (("--at", ""), "it is empty"),
    ):
        done = run_inside("ship", "shipped", *wrong)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert said in done.stderr


SETTINGS = JobSettings(
    "machine",
    "0" * 16,
    0xABC,
    Path(PLACE),
    Path(PLACE),
    "2.28.9",
    loads_executor=True,
    profile={"NCCL_MIN_CTAS": "32", "NCCL_NTHREADS": "256"},
    settings=(Setting(Shape(4, 1, 4), "NCCL_MIN_CTAS"),),
)
"""A table whose executor sets a variable of the profile on communicators."""


def test_forms_that_load_the_executor_leave_its_settings_to_it() -> None:
    loaded = docker_env_file(variables_file(SETTINGS))
    assert (loaded.get("NCCL_MIN_CTAS"), loaded["NCCL_NTHREADS"]) == (None, "256")
    without = replace(SETTINGS, loads_executor=False)
    assert docker_env_file(variables_file(without))["NCCL_MIN_CTAS"] == "32"
    # The executor cannot be loaded from NCCL's file.
    conf = nccl_conf(SETTINGS)
    assert "\nNCCL_MIN_CTAS=32\n" in conf
    assert "LD_PRELOAD=" not in conf


@pytest.mark.parametrize("can", [True, False])
def test_a_task_prolog_gives_settings_where_the_executor_cannot_be_loaded(
    can: bool, tmp_path: Path
) -> None:
    for name in ("libnccl-tuner-tuccl.so", "bundle-00000abc.tuccl"):
        (tmp_path / name).touch()
    text = task_prolog(replace(SETTINGS, place=tmp_path, shipped_to=tmp_path))
    path = tmp_path / "slurm-task-prolog.sh"
    path.write_text(text if can else text.replace("/bin/sh -c :", "/bin/sh -c false"))
    done = subprocess.run(["/bin/sh", path], env={}, capture_output=True, text=True, check=True)
    given = slurm_task_prolog(done.stdout)
    assert ("NCCL_MIN_CTAS" in given, "LD_PRELOAD" in given) == (not can, can)
    assert given["TUCCL_PROFILE"] == "NCCL_MIN_CTAS NCCL_NTHREADS"
