"""Ranks that a launcher started without MPI find rank 0 by a file, and lead and follow as MPI's."""

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from probes.host.report import HostIdentity
from tests.tuccl.crew.places_conformance import CHECKS
from tests.tuccl.crew.test_places import ROOT
from tuccl.crew.connection import _GREETING_BYTES
from tuccl.crew.meeting import (
    Leader,
    Meeting,
    agreed_leader,
    require_same_options,
    told_options,
)
from tuccl.crew.messages import to_bytes
from tuccl.crew.ranks import RankReport
from tuccl.crew.started_rank import StartedRank, started_rank
from tuccl.errors import HostError, UsageError

LEADER = Leader((("127.0.0.1", 4711),), "ab" * 32)
TORCHRUN = StartedRank("torchrun", 1, 4, "a job")


def test_what_rank_0_tells_is_heard_and_is_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = Meeting(tmp_path / "new", TORCHRUN)
    meeting.tell(LEADER)
    (file,) = (tmp_path / "new").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert next(iter(meeting.hear(1.0))) == LEADER
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
        with pytest.raises(HostError, match="rank 0 left no address"):
            list(meeting.hear(0.05))
    meeting.close()
    assert not file.exists()


def test_a_folder_that_cannot_be_written_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = (
        f"rank 0 of 4 that torchrun started cannot leave its address in {tmp_path}/file/of: "
        "Not a directory; let it write there, or give all ranks one TUCCL_JOB_KEY"
    )
    with pytest.raises(HostError, match=f"^{re.escape(line)}$"):
        Meeting(tmp_path / "file" / "of", TORCHRUN).tell(LEADER)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2, "addresses": [], "key": ""}'])
def test_a_file_of_another_kind_says_nothing(tmp_path: Path, content: str) -> None:
    meeting = Meeting(tmp_path, TORCHRUN)
    meeting.tell(LEADER)
    next(tmp_path.iterdir()).write_text(content, encoding="utf-8")
    with pytest.raises(
        HostError,
        match=r"rank 1 of 4 that torchrun started: rank 0 left no address in .* within 0.05 s",
    ):
        list(meeting.hear(0.05))


@pytest.mark.parametrize(
    ("theirs", "line"),
    [
        ("tune --seed=1 --workspace /b --json", ""),
        ("tune --json --record=b.parquet --seed 1", ""),
        ("tune --seed 2 --json", "with --seed 2 where rank 0 has --seed 1"),
        ("bench --json --seed 1", "with bench where rank 0 has tune"),
        ("tune --seed 1", "with nothing where rank 0 has --json"),
        ("tune --json --seed 1 --budget 2h", "with --budget 2h where rank 0 has nothing"),
    ],
)
def test_ranks_with_other_options_are_named(theirs: str, line: str) -> None:
    own = told_options(["tune", "--seed", "1", "--workspace", "/a", "--json"])
    ranks = {0: own, 3: told_options(theirs.split())}
    why = f"^srun rank 3 was started {line}: give all ranks the same options$"
    with pytest.raises(UsageError, match=why) if line else nullcontext():
        require_same_options("srun", own, ranks)


def test_a_long_command_line_fits_in_a_greeting() -> None:
    told = told_options(["--\u4e2d\udcff" * 100] * 300)
    report = to_bytes(1, RankReport(HostIdentity("node1"), frozenset({1}), 4711, told)).decode()
    assert len(json.dumps(report)) < _GREETING_BYTES


def start_ranks(folder: Path, ranks: int, *options: str) -> list[subprocess.Popen[str]]:
    """Start a job."""
    command = [sys.executable, "-m", "tests.tuccl.crew.meeting_job", str(folder), *options]
    shared = os.environ | {"WORLD_SIZE": str(ranks), "MASTER_PORT": "29500"}
    return [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def run_ranks(folder: Path) -> list[tuple[int, str, str]]:
    """Run a job of three ranks; return how each ended and what it wrote.

    Once rank 0 has failed, the others are ended, as launchers do.
    """
    processes = start_ranks(folder, 3)
    said = [processes[0].communicate(timeout=120)]
    for process in processes[1:]:
        assert process.poll() is None, "rank 0 is the first to end"
        process.terminate()
        said.append(process.communicate(timeout=60))
    return [(process.returncode, *own) for process, own in zip(processes, said, strict=True)]


LONG_ENOUGH = "0123456789abcdef0123456789abcdef"
AGREED = {
    "TUCCL_JOB_KEY": LONG_ENOUGH,
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "2",
}


def agreed(**environment: str) -> Leader:
    variables = {**AGREED, "RANK": "0", **environment}
    started = started_rank(variables)
    assert started is not None
    leader = agreed_leader(variables, started)
    assert leader is not None
    return leader


def test_a_secret_and_an_address_are_what_all_ranks_agree_on(tmp_path: Path) -> None:
    assert agreed().addresses == (("node1", 29500),)
    assert len(bytes.fromhex(agreed().key)) == 32
    assert agreed(RANK="1") == agreed()
    # torchrun listens at its port itself.
    assert agreed(TORCHELASTIC_RUN_ID="7").addresses == (("node1", 29501),)
    keys = {agreed(**{name: "3"}).key for name in ("WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR")}
    assert len(keys | {agreed().key, agreed(TUCCL_JOB_KEY=LONG_ENOUGH[::-1]).key}) == 5
    assert agreed_leader({**AGREED, "TUCCL_JOB_KEY": ""}, TORCHRUN) is None
    meeting = Meeting(tmp_path, TORCHRUN, agreed())
    meeting.tell(LEADER)
    assert next(iter(meeting.hear(1.0))) == agreed()
    meeting.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong",
    [
        {"TUCCL_JOB_KEY": LONG_ENOUGH[1:]},
        {"MASTER_ADDR": ""},
        {"MASTER_PORT": "0"},
        {"MASTER_PORT": "65535"},
        {"MASTER_PORT": "-1"},
    ],
)
def test_a_short_secret_or_half_an_address_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="TUCCL_JOB_KEY"):
        agreed(**wrong)


@pytest.mark.long
def test_ranks_meet_and_serve_as_places_though_an_earlier_job_left_its_file(tmp_path: Path) -> None:
    stale = started_rank({"RANK": "0", "WORLD_SIZE": "3", "MASTER_PORT": "29500"})
    assert stale is not None
    Meeting(tmp_path, stale).tell(LEADER)
    (first, text, _), *others = run_ranks(tmp_path)
    assert first == 7
    assert json.loads(text) == dict.fromkeys(CHECKS, "")
    assert others == [(7, "", "")] * 2
    assert not list(tmp_path.iterdir()), "no file is left"


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "fate", "ends_with"), [(0, (), 3), (1, (), 1), (0, ("stops",), 3)]
)
def test_rank_0_fails_if_a_rank_does_not_end_so_that_a_launcher_ends_all(
    tmp_path: Path, code: int, fate: tuple[str, ...], ends_with: int
) -> None:
    first, second = start_ranks(tmp_path / "job", 2, str(code), *fate)
    try:
        _, errors = first.communicate(timeout=60)
    finally:
        second.kill()
        second.communicate()
    assert first.returncode == ends_with
    assert errors == (
        "tuccl: no answer from rank 1 that torchrun started; "
        f"the command itself has ended with exit code {code}\n"
    )
