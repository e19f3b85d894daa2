"""The profiler plugin under sanitizers, called as NCCL calls each version of its interface."""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.builds import MEMORY, THREADS, needs_sanitizer
from tests.runtime.profiler_player import build_player

pytestmark = pytest.mark.long

ABIS = range(1, 7)


def sanitized_player(
    tmp_path_factory: pytest.TempPathFactory, flags: tuple[str, ...]
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("profiler")
    needs_sanitizer(folder, *flags)
    return build_player(folder, *flags)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return sanitized_player(tmp_path_factory, MEMORY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "recording"
    place.mkdir()
    return place


def run_player(
    built: tuple[Path, Path], directory: str, *arguments: object
) -> subprocess.CompletedProcess[str]:
    plugin, player = built
    return subprocess.run(
        [str(player), *map(str, arguments)],
        env={**os.environ, "NCCL_PROFILER_PLUGIN": str(plugin), "TUCCL_RECORD": directory},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def recorded(folder: Path) -> dict[str, Any]:
    """The only file of a process."""
    (path,) = folder.iterdir()
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert found["format"] == "tuccl-recording"
    return found


def calls_of(communicator: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {
        (call["operation"], call.get("bytes", call.get("total_bytes"))): call
        for call in communicator["calls"]
    }


@pytest.mark.parametrize("abi", ABIS)
def test_every_call_is_counted(abi: int, sanitized: tuple[Path, Path], folder: Path) -> None:
    done = run_player(sanitized, str(folder), abi, 3, 4, 10)
    assert (done.returncode, done.stderr) == (0, "")
    found = recorded(folder)
    assert found["profiler_abi"] == abi
    assert (found["executor_calls"], found["communicators_left_out"]) == (0, 0)
    assert found["calls_left_out"] == 0
    world, pair = found["communicators"]
    known = (4, 1) if abi >= 4 else (None, None)
    assert (world["hash"], world["rank"]) == ("0000000000001111", 3)
    assert (world["ranks"], world["nodes"]) == known
    assert (pair["hash"], pair["rank"]) == ("0000000000002221", 1)
    counts = {key: call["calls"] for key, call in calls_of(world).items()}
    assert counts == {
        ("all_reduce", 4000): 20,
        ("all_reduce", 4096): 10,
        ("all_reduce", 8192): 3,
        ("all_gather", 1024): 10,
        ("reduce_scatter", 256): 10,
        ("broadcast", 64): 1,
        ("send", 4000): 10,
        ("recv", 12000): 10,
    }
    assert [call["calls"] for call in pair["calls"]] == [10]


@pytest.mark.parametrize("abi", ABIS)
def test_each_version_tells_what_it_knows(
    abi: int, sanitized: tuple[Path, Path], folder: Path
) -> None:
    run_player(sanitized, str(folder), abi, 3, 4, 1)
    calls = calls_of(recorded(folder)["communicators"][0])
    gradient, activation = calls["all_reduce", 4000], calls["all_reduce", 4096]
    token, weights = calls["all_reduce", 8192], calls["all_gather", 1024]
    assert (gradient["datatype"], activation["datatype"]) == ("float32", "bfloat16")
    # Before its launch, work on bytes has no type.
    assert weights["datatype"] == ("float16" if abi >= 5 else None)
    assert calls["broadcast", 64]["datatype"] == ("int64" if abi >= 5 else None)
    reductions = gradient["reduction"], activation["reduction"], weights["reduction"]
    assert reductions == (("sum", "avg", None) if abi == 1 else (None, None, None))
    in_place = [
        call["in_place"] for call in (gradient, activation, weights, calls["reduce_scatter", 256])
    ]
    assert in_place == ([True, False, True, True] if abi < 5 else [None] * 4)
    graph = gradient["graph"], token["graph"]
    assert graph == ((False, True) if abi >= 5 else (None, None))


@pytest.mark.parametrize("checker", ["memory", "threads"])
def test_threads_count_all_their_calls(
    checker: str,
    sanitized: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
    folder: Path,
) -> None:
    built = sanitized if checker == "memory" else sanitized_player(tmp_path_factory, THREADS)
    done = run_player(built, str(folder), 5, 0, 2, 0, "threads")
    assert (done.returncode, done.stderr) == (0, "")
    shared, *own = recorded(folder)["communicators"]
    sizes: Counter[int] = Counter()
    for call in shared["calls"]:
        sizes[call["bytes"]] += call["calls"]
    assert sizes.pop(4000) == 8 * 5_000
    assert sizes == {2 * count: 8 * 100 for count in range(1, 51)}
    assert len(own) == 8
    assert {sum(call["calls"] for call in each["calls"]) for each in own} == {5_000}


@pytest.mark.parametrize("abi", [1, 2, 4, 5])
def test_strange_calls_do_no_harm(abi: int, sanitized: tuple[Path, Path], folder: Path) -> None:
    done = run_player(sanitized, str(folder), abi, 0, 2, 0, "hostile")
    assert (done.returncode, done.stderr) == (0, "")
    found = recorded(folder)
    assert (found["calls_left_out"], found["communicators_left_out"]) == (3, 489)
    assert len(found["communicators"]) == 512
    calls = [call for shared in found["communicators"][:1] for call in shared["calls"]]
    # Sizes beyond the table's are summed; no call is lost.
    assert sum(call["calls"] for call in calls) == 6_000 + 1 + 2 + 2
    assert 3000 < sum("bytes" in call for call in calls) <= 4096
    (sent,) = [call for call in calls if call["operation"] == "send"]
    assert sent["calls"] == 2


def test_a_job_that_ends_no_communicator(sanitized: tuple[Path, Path], folder: Path) -> None:
    assert run_player(sanitized, str(folder), 5, 0, 2, 7, "alone").returncode == 0
    world = recorded(folder)["communicators"][0]
    assert calls_of(world)["all_reduce", 4000]["calls"] == 14


def test_a_job_that_is_killed(sanitized: tuple[Path, Path], folder: Path) -> None:
    # A write of more than 1.2 ms, as on a busy machine, puts the next one off until after the kill.
    for number in range(3):
        own = folder / str(number)
        own.mkdir()
        done = run_player(sanitized, str(own), 5, 0, 2, 7, "kill")
        assert done.returncode == -signal.SIGKILL
        calls = calls_of(recorded(own)["communicators"][0])
        if ("all_reduce", 4000) in calls:
            break
    assert calls["all_reduce", 4000]["calls"] == 7


def test_a_forked_child_leaves_the_recording_alone(
    sanitized: tuple[Path, Path], folder: Path
) -> None:
    done = run_player(sanitized, str(folder), 5, 0, 2, 7, "fork")
    assert (done.returncode, done.stderr) == (0, "")
    (world,) = recorded(folder)["communicators"]
    assert calls_of(world)["all_reduce", 4000]["calls"] == 7


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("", ""),
        ("/no/such/place", "cannot be used: No such file or directory"),
        ("relative", "is no absolute path"),
        (__file__, "is no directory"),
        ("/" + "long/" * 1000, "is too long a path"),
    ],
)
def test_a_directory_that_cannot_be_used(
    directory: str, said: str, sanitized: tuple[Path, Path]
) -> None:
    done = run_player(sanitized, directory, 5, 0, 2, 1, "idle")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == bool(said)
    assert said in done.stderr


def test_a_directory_that_is_lost(sanitized: tuple[Path, Path], folder: Path) -> None:
    """The job goes on after one line."""
    done = run_player(sanitized, str(folder), 5, 0, 2, 0, "lost")
    assert done.returncode == 0
    assert done.stderr == (
        f"tuccl: TUCCL_RECORD={folder} cannot be written to: No such file or directory; nothing "
        "is recorded\n"
    )


def test_a_limit_on_the_size_of_files(sanitized: tuple[Path, Path], folder: Path) -> None:
    """A file beyond it would end the process."""
    plugin, player = sanitized
    script = f'ulimit -f 1; exec "{player}" 5 0 2 1 idle'
    done = subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, "NCCL_PROFILER_PLUGIN": str(plugin), "TUCCL_RECORD": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "ulimit -f limits the size of files; nothing is recorded\n" in done.stderr
    assert done.stderr.count("\n") == 1
