"""Tables that a shipped directory keeps: history, rollback, kills, full disks, jobs meanwhile."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import yaml  # type: ignore[import-untyped]

from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import StoredSchedule
from tests.runtime.builds import compile_native
from tests.tuccl.measuring.engines.nccl_stand_ins import NATIVE, StandIns
from tests.tuccl.shipping.form_readers import (
    docker_env_file,
    enroot_environment,
    slurm_task_prolog,
    sourced,
)
from tests.tuccl.shipping.job_roots import run_of_one_rank
from tuccl.errors import UsageError, WorkspaceError
from tuccl.reports.tuning_result import read_table
from tuccl.runtime import PLUGIN_NAME
from tuccl.shipping import shipment, shipped_directory, versions
from tuccl.shipping.forms import Form
from tuccl.shipping.manifest import read_manifest
from tuccl.shipping.rollback import rollback, source_of
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_directory import held, sourced_crc
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.versions import MOST_VERSIONS, versions_of
from tuccl.workspace.atomic_file import PARTIAL_PREFIX, write_atomically
from tuccl.workspace.runs import Run

pytestmark = pytest.mark.long

ALL = tuple(Form)


@dataclass(frozen=True)
class Directory:
    """A shipped directory with runs to ship, each of which has a profile of its own."""

    target: Path
    runs: tuple[Run, ...]

    def ship(self, number: int, *forms: Form, place: Path | None = None) -> str:
        """Ship a run; return the checksum of its table."""
        ship(self.runs[number], self.target, forms=forms, place=place)
        return sourced_crc(self.target)

    @property
    def numbers(self) -> list[int]:
        return [version.number for version in versions_of(self.target)]


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    profiles = ({"NCCL_NTHREADS": "256"}, {"NCCL_NTHREADS": "512"}, {"NCCL_BUFFSIZE": "1048576"})
    schedules = [StoredSchedule(name, name, "<algo/>") for name in ("1a", "2b")]
    runs = tuple(
        run_of_one_rank(tmp_path / f"run{number}", profile, schedules[: 2 - number])
        for number, profile in enumerate(profiles)
    )
    return Directory(tmp_path / "shipped", runs)


def whole(directory: Path) -> str:
    """Hold a directory and all its versions against their manifests; return the current sum."""
    view = view_shipped(directory)
    assert view.problems == ()
    for version in versions_of(directory):
        assert view_shipped(version.folder).problems == ()
    return f"{view.bundle.crc:08x}"


def test_a_ship_adds_a_version_and_the_same_table_adds_none(directory: Directory) -> None:
    first = directory.ship(0)
    assert directory.ship(0) == first
    second = directory.ship(1)
    assert [(found.number, found.crc) for found in versions_of(directory.target)] == [
        (1, first),
        (2, second),
    ]
    origin = versions_of(directory.target)[0].origin
    assert origin.run == str(directory.runs[0].root)
    assert origin.gain is not None
    # The same table again is the newest version, and no two versions have one table.
    assert directory.ship(0) == first
    assert directory.numbers == [2, 3]
    # With another form it is the same version, which has the form, too.
    directory.ship(0, Form.ENV)
    assert directory.numbers == [2, 3]
    assert (versions_of(directory.target)[-1].folder / "tuccl.envfile").is_file()
    assert whole(directory.target) == first


def test_the_oldest_versions_go_and_the_current_one_stays(
    directory: Directory, tmp_path: Path
) -> None:
    for number in range(MOST_VERSIONS + 2):
        run = run_of_one_rank(
            tmp_path / f"many{number}", {"NCCL_BUFFSIZE": str(4096 * number + 4096)}
        )
        ship(run, directory.target)
    assert directory.numbers == list(range(3, MOST_VERSIONS + 3))
    assert len(list((directory.target / "versions").iterdir())) == MOST_VERSIONS
    oldest = rollback(directory.target, "3")
    assert whole(directory.target) == oldest.bundle_crc
    directory.ship(0)
    assert directory.numbers[0] == 4
    assert directory.numbers[-1] == MOST_VERSIONS + 3


def test_back_and_forward_without_and_with_a_number(directory: Directory) -> None:
    sums = [directory.ship(number) for number in range(3)]
    assert rollback(directory.target).version == 2
    assert whole(directory.target) == sums[1]
    done = rollback(directory.target)
    assert (done.version, done.before) == (1, 2)
    assert whole(directory.target) == sums[0]
    with pytest.raises(UsageError, match="no version before the current one"):
        rollback(directory.target)
    assert rollback(directory.target, "3").bundle_crc == sums[2]
    assert rollback(directory.target, sums[1]).version == 2
    assert whole(directory.target) == sums[1]
    for unknown in ("4", "0", "ffffffff", "x", "", "-1"):
        with pytest.raises(UsageError, match=r"keeps no version .* only 1, 2, 3"):
            rollback(directory.target, unknown)
    # The next ship goes on from the newest, whichever is current.
    directory.ship(0)
    assert directory.numbers == [2, 3, 4]


def test_a_rollback_leaves_the_files_that_a_ship_would(
    directory: Directory, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    ship(directory.runs[0], alone)
    kept = {path.name: path.read_bytes() for path in alone.iterdir() if path.is_file()}
    directory.ship(0)
    directory.ship(1)
    rollback(directory.target)
    for name, data in kept.items():
        if name != "tuccl-manifest.json":  # It has the sums of the files that name the directory.
            said = data.replace(os.fsencode(alone), os.fsencode(directory.target))
            assert (directory.target / name).read_bytes() == said


def test_forms_and_place_of_now_follow_a_table_of_before_they_were_asked_for(
    directory: Directory,
) -> None:
    first = directory.ship(0)
    second = directory.ship(1, *ALL, place=Path("/opt/tuccl"))
    for wanted, version in ((first, "1"), (second, "2"), (first, first)):
        rollback(directory.target, version)
        assert whole(directory.target) == wanted
        assert {crc_in(read(directory.target)) for read in FORMS.values()} == {wanted}
        text = (directory.target / "tuccl.envfile").read_text()
        assert f"TUCCL_BUNDLE=/opt/tuccl/bundle-{wanted}.tuccl" in text


def test_a_damaged_version_and_that_of_another_machine_are_refused(
    directory: Directory, tmp_path: Path
) -> None:
    first = directory.ship(0)
    table = read_table(directory.runs[0])
    entries = tuple(
        replace(entry, key=replace(entry.key, fingerprint="elsewhere")) for entry in table.entries
    )
    moved = run_of_one_rank(tmp_path / "moved")
    moved.table.write_bytes(
        table_to_parquet_bytes(replace(table, fingerprint="elsewhere", entries=entries))
    )
    ship(moved, directory.target, force=True)
    current = sourced_crc(directory.target)
    with pytest.raises(UsageError, match=r"holds the table of test .*add --force to replace it"):
        rollback(directory.target)
    assert whole(directory.target) == current
    rollback(directory.target, force=True)
    assert whole(directory.target) == first
    versions_of(directory.target)[1].folder.joinpath("tuccl.env").write_text("damaged")
    with pytest.raises(WorkspaceError, match=r"version 2 in .* the manifest: tuccl\.env"):
        rollback(directory.target, "2", force=True)
    assert sourced_crc(directory.target) == first


def test_no_shipped_directory_and_files_of_others_are_refused(
    directory: Directory, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"tuccl\.env is missing; name a directory that"):
        rollback(tmp_path)
    directory.ship(0)
    directory.ship(1)
    mine = versions_of(directory.target)[0].folder / "mine.txt"
    for path in (directory.target / "versions" / "notes", mine):
        path.write_text("mine")
        name = re.escape(str(path.relative_to(directory.target)))
        for change in (lambda: rollback(directory.target), lambda: directory.ship(2)):
            with pytest.raises(UsageError, match=f"did not write: {name};"):
                change()
        if path != mine:
            path.unlink()
    rollback(directory.target, force=True)
    for number in range(MOST_VERSIONS):  # The version with the file of another goes, the file not.
        run = run_of_one_rank(
            tmp_path / f"many{number}", {"NCCL_BUFFSIZE": str(4096 * number + 4096)}
        )
        ship(run, directory.target, force=True)
    assert 1 not in directory.numbers
    assert [path.name for path in mine.parent.iterdir()] == ["mine.txt"]


def test_a_link_among_the_versions_is_not_followed(directory: Directory, tmp_path: Path) -> None:
    directory.ship(0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "table.parquet").write_text("mine")
    (directory.target / "versions" / "00000000").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="did not write: versions/00000000;"):
        directory.ship(1)
    ship(directory.runs[1], directory.target, force=True)
    assert (elsewhere / "table.parquet").read_text() == "mine"
    assert directory.numbers == [1, 2]


def test_a_rollback_and_a_ship_at_once_exclude_each_other(directory: Directory) -> None:
    directory.ship(0)
    directory.ship(1)
    with held(directory.target):
        for change in (lambda: rollback(directory.target), lambda: directory.ship(2)):
            with pytest.raises(WorkspaceError, match="by another process; wait for it"):
                change()
    begun = threading.Barrier(4)
    refused: list[str] = []

    def changing(change: Callable[[], object]) -> None:
        begun.wait()
        for _ in range(3):
            try:
                change()
            except (WorkspaceError, UsageError) as error:  # No version before the first.
                refused.append(str(error))

    changes: list[Callable[[], object]] = [
        partial(directory.ship, 1),
        partial(directory.ship, 2),
        partial(rollback, directory.target, "1"),
        partial(rollback, directory.target),
    ]
    threads = [threading.Thread(target=changing, args=(change,)) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole(directory.target)
    numbers = directory.numbers
    assert numbers == sorted(set(numbers))
    assert len({version.crc for version in versions_of(directory.target)}) == len(numbers)


class Killed(BaseException):
    """In place of SIGKILL."""


def killing(patch: pytest.MonkeyPatch, after: int) -> None:
    """Have the write or removal number `after` kill the command."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps > after:
            raise Killed

    def write(path: Path, content: bytes | str, *, mode: int = 0o644) -> None:
        try:
            step()
        except Killed:
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / f"{PARTIAL_PREFIX}k1ll3d").write_bytes(b"half a fi")
            raise
        write_atomically(path, content, mode=mode)

    def killing_removal(module: ModuleType, name: str) -> None:
        remove = getattr(module, name)

        def unlink(path: Path) -> None:
            step()
            remove(path)

        patch.setattr(module, name, unlink)

    for module in (shipment, versions):
        patch.setattr(module, "write_atomically", write)
    killing_removal(versions, "_unlink")
    killing_removal(shipped_directory, "_remove")


def contents(directory: Path) -> dict[str, bytes]:
    """Files of the current table, without the versions that the directory keeps."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.relative_to(directory).parts[0] != "versions"
    }


@pytest.mark.parametrize(
    "command", ["first ship", "ship", "ship without manifest", "rollback", "first rollback"]
)
def test_killed_anywhere_a_job_has_a_whole_table_and_the_next_command_completes_it(
    directory: Directory, tmp_path: Path, command: str
) -> None:
    """Whether the same table is shipped next or another; the tables differ in their schedules."""
    target = directory.target
    forms = (Form.ENROOT, Form.ENV) if command == "first ship" else ()
    alone = {}
    for number in (0, 2):
        directory.ship(number, *forms)
        alone[number] = contents(target)
        shutil.rmtree(target)
    sums = [] if command == "first ship" else [directory.ship(0), directory.ship(1)]
    if command == "first rollback":  # Of a directory whose current table is no version yet.
        shutil.rmtree(versions_of(target)[1].folder)
    if command == "ship without manifest":
        (target / "tuccl-manifest.json").unlink()
    kept = tmp_path / "kept"
    if sums:
        shutil.copytree(target, kept)
    profiles = [read_table(run).profile for run in directory.runs]
    after, ended = 0, False
    while not ended:
        for following in (0, 2):
            shutil.rmtree(target, ignore_errors=True)
            if sums:
                shutil.copytree(kept, target)
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                killing(patch, after)
                if "ship" in command:
                    directory.ship(2, *forms)
                else:
                    rollback(target)
                ended = True
            if sums or (target / "tuccl.env").exists():
                view = view_shipped(target)
                assert view.bundle.profile in profiles
                assert (target / PLUGIN_NAME).read_bytes() == alone[0][PLUGIN_NAME]
            assert {found.crc for found in versions_of(target)} >= set(
                sums[: 1 if command == "first rollback" else 2]
            )
            if "ship" in command:
                directory.ship(following, *forms)
                found = contents(target)
                assert alone[following].items() <= found.items()
                extra = found.keys() - alone[following].keys()
                assert all(re.match(r"(bundle|tuccl)-[0-9a-f]{8}\.", name) for name in extra)
            else:
                rollback(target, "1")
                assert whole(target) == sums[0]
            assert not list(target.rglob(f"{PARTIAL_PREFIX}*"))
            whole(target)
        after += 1
    assert after > 6


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_the_current_table_and_its_versions(
    directory: Directory, small_disk: Path
) -> None:
    target = small_disk / "shipped"
    for run in directory.runs[:2]:
        ship(run, target)
    current, numbers = whole(target), [found.number for found in versions_of(target)]
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024)):
            pass
    changes: list[Callable[[], object]] = [
        lambda: ship(directory.runs[2], target),
        lambda: rollback(target),
    ]
    for change in changes:
        with pytest.raises(WorkspaceError, match="No space left on device; free some space"):
            change()
        assert sourced_crc(target) == current
        view_shipped(target)
        assert [found.number for found in versions_of(target)] == numbers
    filler.unlink()
    rollback(target)
    ship(directory.runs[2], target)
    assert [found.number for found in versions_of(target)] == [1, 2, 3]
    whole(target)


def crc_in(variables: Mapping[str, str]) -> str:
    return variables["TUCCL_BUNDLE_CRC"]


def prolog(target: Path) -> dict[str, str]:
    done = subprocess.run(
        [target / "slurm-task-prolog.sh"], env={}, capture_output=True, text=True, check=True
    )
    return slurm_task_prolog(done.stdout)


def nccl_conf(target: Path) -> dict[str, str]:
    lines = (target / "nccl.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def config_map(target: Path) -> dict[str, str]:
    text = (target / "kubernetes" / "configmap.yaml").read_text()
    return dict(yaml.safe_load(text)["data"])


FORMS: dict[str, Callable[[Path], dict[str, str]]] = {
    "shell": lambda target: sourced(target / "tuccl.env"),
    "env": lambda target: docker_env_file((target / "tuccl.envfile").read_text()),
    "nccl-conf": nccl_conf,
    "slurm": prolog,
    "enroot": lambda target: enroot_environment(
        (target / "enroot" / "50-tuccl.env").read_text(), {}
    ),
    "kubernetes": config_map,
}
"""A job's variables from each form."""


def test_back_and_forth_while_jobs_start_each_job_has_one_table_whole(
    directory: Directory, stand_ins: StandIns, tmp_path: Path
) -> None:
    """Jobs of every form, whose NCCL loads the plugin, and which start long after they read it."""
    job = compile_native(tmp_path / "job", [NATIVE / "start_communicator.c"], "-ldl")
    target = directory.target
    profiles = {
        directory.ship(number, *ALL): dict(read_table(directory.runs[number]).profile)
        for number in (0, 1, 2)
    }
    stop, rolled = threading.Event(), 0
    failures: list[BaseException] = []

    def roll() -> None:
        nonlocal rolled
        try:
            while not stop.is_set():
                # A job's process has the lock until it executes its program.
                with suppress(WorkspaceError):
                    rollback(target, str(rolled % 3 + 1))
                    rolled += 1
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=roll)
    thread.start()
    seen: set[str] = set()
    try:
        for number in range(600):
            if rolled > 3 and len(seen) > 1 and number >= 3 * len(FORMS):
                break
            variables = list(FORMS.values())[number % len(FORMS)](target)
            given = {
                **variables,
                "LD_LIBRARY_PATH": str(stand_ins.folder),
                "NCCL_DEBUG_FILE": str(tmp_path / f"log{number}.%p"),
            }
            done = subprocess.run([job], env=given, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr
            (log,) = tmp_path.glob(f"log{number}.*")
            loaded = re.search(r"\(CRC ([0-9a-f]{8})\): 1 entries", log.read_text())
            assert loaded is not None
            assert loaded[1] == crc_in(variables)
            names = {name for profile in profiles.values() for name in profile}
            profile = {name: value for name, value in variables.items() if name in names}
            assert profile == profiles[loaded[1]]
            seen.add(loaded[1])
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert rolled > 3
    assert len(seen) > 1, "no job started after a rollback"
    whole(target)


def test_a_version_that_is_shipped_again_keeps_what_its_manifest_says_was_assumed(
    tmp_path: Path,
) -> None:
    target = tmp_path / "shipped"
    ship(run_of_one_rank(tmp_path / "run", {}), target)
    manifest = read_manifest(target)
    assert manifest is not None
    said = manifest.model_copy(update={"assumed": "2 us from NIC to NIC."})
    assert source_of(target, said, "shipped").assumed == "2 us from NIC to NIC."
