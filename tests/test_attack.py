"""The attacks find what is planted, and nothing in a second or two without it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import attack_bundles
import attack_children
import attack_inputs
import attack_kills
import attack_shm
import pytest
from attack import table
from attack_findings import Findings
from attack_input_files import good_files
from attack_mutations import TEXT, Mutation, json_structure

from probes.network.racks.rack_map import parse_rack_map
from tests.runtime.builds import (
    EXECUTOR,
    MEMORY,
    NATIVE,
    RUNTIME,
    compile_all,
    compile_native,
    needs_sanitizer,
)
from tests.runtime.shm_job import compile_shm_job, link_shm_job
from tests.runtime.write_bundles import write_bundles
from tuccl.api.hosts import probing
from tuccl.workspace import atomic_file

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[1]


def test_a_mutation_depends_on_its_seed_alone() -> None:
    """What is put into a document is a copy: a later mutation must not find it changed."""
    document = b'{"a": [1, {"b": [2, 3]}], "c": {"d": "e"}, "f": [[4]]}'
    first = [json_structure(document, random.Random(seed)) for seed in range(3000)]
    again = [json_structure(document, random.Random(seed)) for seed in range(3000)]
    assert first == again


@pytest.mark.parametrize("mutation", [*TEXT, json_structure])
def test_a_mutation_is_its_seeds_and_mostly_changes_something(
    mutation: Mutation,
) -> None:
    data = b'{"a": [1, 2, {"b": "text"}], "c": 10.5}\n'
    mutated = [mutation(data, random.Random(seed)) for seed in range(40)]
    assert mutated == [mutation(data, random.Random(seed)) for seed in range(40)]
    assert sum(result != data for result in mutated) > 20


def test_attempts_are_numbered_and_a_failure_keeps_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = Findings("inputs", 7, tmp_path / "kept")
    numbers = [(number, rng.random()) for number, rng in findings.attempts(0.0, first=5)]
    again = Findings("inputs", 7, tmp_path / "kept")
    assert [(n, rng.random()) for n, rng in again.attempts(0.0, first=5)] == numbers
    (tmp_path / "input").write_text("bad")
    findings.failed(5, "traceback", tmp_path / "input")
    assert capsys.readouterr().out == "failure 7/inputs/5: traceback\n"
    assert (tmp_path / "kept" / "failure-5" / "input").read_text() == "bad"
    assert dict(findings.counts) == {"attempts": 1, "failures": 1}
    assert "1 exit code 2" in table({"inputs": {**findings.counts, "exit code 2": 1}})


@pytest.mark.parametrize(
    ("said", "code", "fault"),
    [
        ("", 0, ""),
        ("note: x\ntuccl: no\n", 2, ""),
        ("tuccl: no\ntuccl: again\n", 2, "exit code 2 with 2 lines of error"),
        ("", 3, "exit code 3 with 0 lines of error"),
        ("", -11, "exit code -11"),
        ("Traceback (most recent call last):\nKeyError: 1\n", 70, "traceback: KeyError: 1"),
    ],
)
def test_good_ends_are_told_from_bad_ones(said: str, code: int, fault: str) -> None:
    assert attack_children.Ended(code, False, 0.1, 1, "", said, ()).fault == fault


def test_time_and_memory_of_a_command_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_children, "MOST_S", 0.2)

    def endless() -> None:
        while True:
            pass

    assert attack_children.run_child(endless, tmp_path).fault == "took more than 0.2 s"
    monkeypatch.setattr(attack_children, "MOST_S", 10.0)
    ended = attack_children.run_child(lambda: bytearray(2 << 30).clear(), tmp_path)
    assert ended.fault == "traceback: MemoryError"


def test_a_good_input_that_takes_too_long_to_make_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_children, "MOST_S", 0.0)
    with pytest.raises(RuntimeError, match=r"^tuccl synthesize .*: took more than 0 s$"):
        good_files(tmp_path / "good", {"schedule.xml"})


RACKS = tuple(target for target in attack_inputs.TARGETS if target.file == "racks.txt")


def test_a_reader_that_fails_on_damaged_input_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = parse_rack_map

    def planted(text: str, source: str = "") -> dict[str, str]:
        if "[01-08,11] rack-a" not in text:
            raise KeyError("damaged")
        return read(text, source)

    clean = attack_inputs.attack(1.0, 1, tmp_path / "clean", targets=RACKS)
    assert clean["failures"] == 0
    monkeypatch.setattr(probing, "parse_rack_map", planted)
    # With this seed the first attempt, which is made in any case, damages what is looked for.
    found = attack_inputs.attack(0.0, 4, tmp_path / "planted", targets=RACKS)
    assert found["failures"] == found["attempts"] == 1
    kept = next((tmp_path / "planted").iterdir())
    assert "KeyError: 'damaged'" in (kept / "stderr.txt").read_text()
    assert (kept / "racks.txt").exists()


def test_a_writer_that_writes_in_place_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenarios = tuple(
        scenario for scenario in attack_kills.SCENARIOS if scenario.name == "first ship"
    )
    clean = attack_kills.attack(1.0, 1, tmp_path / "clean", scenarios=scenarios)
    assert clean["failures"] == 0
    whole = atomic_file._replace

    def planted(path: Path, data: bytes, folder: Path, mode: int) -> None:
        if path.name.startswith("bundle-") and "versions" not in path.parts:
            (path.parent / "tuccl.env").write_bytes(b"# half of i")
        whole(path, data, folder, mode)

    class FoundError(Exception):
        """Ends the attack."""

    def found(_: Findings, number: int, why: str, *kept: Path) -> None:
        raise FoundError(why)

    monkeypatch.setattr(atomic_file, "_replace", planted)
    monkeypatch.setattr(Findings, "failed", found)
    with pytest.raises(FoundError, match="first ship, killed "):
        attack_kills.attack(120.0, 1, tmp_path / "planted", scenarios=scenarios)


def test_a_loader_that_takes_any_sum_is_found(tmp_path: Path) -> None:
    needs_sanitizer(tmp_path, *MEMORY)
    sound_loader, planted_loader = RUNTIME / "bundle.c", tmp_path / "bundle.c"
    loader = sound_loader.read_text()
    assert "if (crc != header->crc)" in loader
    planted_loader.write_text(loader.replace("if (crc != header->crc)", "if (crc == 1)"))
    others = {NATIVE / "fuzz_bundle.c", NATIVE / "harness.c", *RUNTIME.glob("*.c")} - {sound_loader}
    bundle, _ = write_bundles(tmp_path)
    names = []
    for name, own in (("sound", sound_loader), ("planted", planted_loader)):
        program = compile_native(tmp_path / name, [own, *sorted(others)], *MEMORY)
        command = (str(program), str(bundle), "2000", "SEED", "damaged")
        names.append(attack_bundles.Fuzzer(name, command, bundle))
    sound = attack_bundles.attack(0.0, 1, tmp_path / "clean", tried=names[:1])
    assert (sound["failures"], sound["rounds of sound"]) == (0, 1)
    assert attack_bundles.attack(0.0, 1, tmp_path / "found", tried=names[1:])["failures"] == 1


@pytest.mark.slow
def test_the_command_runs_the_parts_tells_and_ends_with_a_code(tmp_path: Path) -> None:
    words = ["--minutes", "0.4", "--seed", "3", "--json", str(tmp_path / "counts.json")]
    words += ["--folder", str(tmp_path / "kept")]
    parts = ["--part", "inputs", "--part", "kills", "--part", "bundles"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "attack" / "attack.py"), *words, *parts],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].split()[:3] == ["part", "attempts", "failures"]
    assert (tmp_path / "counts.json").exists()


def test_attempts_on_dev_shm_follow_from_the_seed_and_all_are_told_who_comes() -> None:
    for kind in attack_shm.KINDS:
        said = [
            attack_shm.command_of(Path("/x/shm_job"), kind, random.Random(seed))
            for seed in (1, 1, 2)
        ]
        assert said[0] == said[1] != said[2]
        assert kind.mount_options in " ".join(said[0])
        names = {word.split("=")[0] for word in said[0]}
        assert names & {"strangers", "twins", "fillers", "free_pages", "free_inodes"}


def test_without_unshare_the_attack_on_dev_shm_is_skipped_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    counts = attack_shm.attack(1.0, 1, tmp_path / "kept")
    assert counts == {"attempts": 0, "failures": 0, "skipped": 1}
    assert "shm is skipped: there is no unshare here" in capsys.readouterr().err


FULL = attack_shm.Kind("full", "size=64k,mode=1777", lambda _: {"free_pages": 1, "limit_s": 2})
MOVED = attack_shm.Kind(
    "moved",
    "size=4m,mode=0777",
    lambda _: {"strangers": 3, "processes": 3, "lives": 4, "rounds": 8, "limit_s": 2},
    takes_root=True,
)
PLANTED = (
    (FULL, "roll_call.cc", "if (file_)\n        file_->remove_name();", ";", "left in /dev/shm: "),
    (MOVED, "set_up.cc", "if (roll->present != ranks)", "if (roll->present == 0)", "ranks hang; "),
)
"""Kind that finds it, file of the executor, a check in it, its replacement, the reported text."""


@pytest.mark.slow
def test_an_executor_with_a_check_less_is_found(tmp_path: Path) -> None:
    if attack_shm.obstacle():
        pytest.skip(attack_shm.obstacle())
    tmp_path.chmod(0o755)
    objects = compile_shm_job(tmp_path)
    sound = link_shm_job(tmp_path, objects)
    clean = attack_shm.attack(5.0, 1, tmp_path / "clean", job=sound)
    assert clean["failures"] == 0
    assert clean["communicators served"] > 0
    assert clean["left to NCCL"] > 0
    (tmp_path / "planted").mkdir()
    for kind, name, present, instead, told in PLANTED:
        if kind.takes_root and os.geteuid() != 0:
            continue
        source = (EXECUTOR / name).read_text()
        assert source.count(present) == 1
        changed = tmp_path / name
        changed.write_text(source.replace(present, instead))
        others = [path for path in objects if path.name != f"{name}.o"]
        assert len(others) == len(objects) - 1
        job = link_shm_job(tmp_path, [*others, *compile_all(tmp_path / "planted", [changed])])
        folder = tmp_path / f"found-{name}"
        found = attack_shm.attack(5.0, 1, folder, kinds=(kind,), job=job)
        assert found["failures"] > 0
        assert any(told in path.read_text() for path in folder.glob("failure-*/why.txt"))
