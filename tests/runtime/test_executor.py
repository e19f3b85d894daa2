"""The interposer of the executor, over stand-ins of NCCL and of the CUDA side that move data."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import (
    BuiltinConfig,
    NcclAlgorithm,
    NcclProtocol,
    ScheduleConfig,
    Shape,
    StoredSchedule,
)
from synthesizer.programs.compiler import compile_program
from tests.lookup_tables.tables import make_entry, make_table
from tests.runtime.builds import (
    EXECUTOR,
    NATIVE,
    SANITIZERS,
    STAND_INS,
    compile_all,
    compile_native,
    link,
    needs_sanitizer,
    run,
)
from tests.runtime.executor_tables import kernel, session_table, write_tables
from tests.synthesizer.programs.schedules import exchange
from tuccl.reports.learned import read_learned
from tuccl.reports.verdicts import read_verdicts

pytestmark = pytest.mark.long

SCENARIOS = [
    name
    for file in sorted(STAND_INS.glob("scenario_*.cc"))
    for name in re.findall(r"SCENARIO\((\w+)\)", file.read_text())
    if name != "from_bundle"
]
OWN_SHM = [name for name in SCENARIOS if name.startswith("roll_")] + [
    "first_start_fails",
    "only_start_fails",
]
"""Scenarios that check the contents of /dev/shm."""

LEAKING = {
    "abort_while_greeting",
    "check_fails_on_one_rank",
    "check_is_aborted",
    "exchange_fails",
    "exchange_fails_unheard",
    "fail_while_greeting",
    "guard_wait_is_aborted",
    "quiesce_fails",
}
"""Scenarios that leave memory allocated which a rank may still use."""

SLOW = {
    *("network_strangers", "network_unreachable"),
    *("learn_keeps_a_fast_entry", "learn_leaves_a_slow_entry"),
    *("learn_takes_a_faster_schedule", "learn_a_schedule_without_an_entry"),
}
"""Scenarios that wait for deadlines, and those of which another test reads what they write."""

FORKING = "network_forked"
"""The scenario that starts threads in a process which several threads forked."""


def host_sources() -> list[Path]:
    """Return the sources from which CMake builds the host side."""
    text = (EXECUTOR / "sources.cmake").read_text()
    host_side = text[: text.index("set(executor_device_sources")]
    named = re.findall(r"\$\{executor_folder\}/(\S+\.cc?)\b", host_side)
    return [(EXECUTOR / name).resolve() for name in named]


def build_nccl(folder: Path, *flags: str) -> Path:
    """Return the stand-in of libnccl.so.2, with its streams."""
    sources = [STAND_INS / "stand_in_streams.cc", STAND_INS / "stand_in_nccl.cc"]
    streams, nccl = compile_all(folder, sources, *flags)
    link(folder / "libstand_in_streams.so", [streams], "-shared", *flags)
    soname = ("-shared", "-Wl,-soname,libnccl.so.2")
    return link(folder / "libnccl.so.2", [nccl], *soname, *libraries(folder, streams=True), *flags)


def libraries(folder: Path, *, streams: bool = False) -> list[str]:
    names = ["libstand_in_streams.so"] if streams else ["libnccl.so.2", "libstand_in_streams.so"]
    # Also where the interposer defines all that a program calls.
    return [f"-L{folder}", "-Wl,--no-as-needed", *(f"-l:{name}" for name in names)]


@pytest.fixture(
    scope="module",
    params=["memory", pytest.param("threads", marks=pytest.mark.slow)],
)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("session")
    flags = SANITIZERS[request.param]
    needs_sanitizer(folder, *flags)
    build_nccl(folder, *flags)
    own = [
        *STAND_INS.glob("scenario_*.cc"),
        STAND_INS / "session.cc",
        STAND_INS / "stand_in_device.cc",
    ]
    objects = compile_all(folder, [*sorted(own), *host_sources()], *flags)
    write_tables(folder / "tables")
    # NCCL is behind the interposer, as with LD_PRELOAD.
    return link(folder / "session", objects, "-rdynamic", *libraries(folder), *flags)


def own_shm(kilobytes: int, *, full: bool = False) -> list[str]:
    """Return the prefix of a command that runs with its own /dev/shm."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    fill = "head -c 1G /dev/zero >/dev/shm/fill 2>/dev/null; " if full else ""
    script = f'mount -t tmpfs -o size={kilobytes}k tmpfs /dev/shm && {{ {fill}exec "$@"; }}'
    prefix = ["unshare", "--mount", *user, "sh", "-c", script, "sh"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this user cannot mount a /dev/shm of its own: {tried.stderr.strip()}")
    return prefix


def play(
    session: Path, scenario: str, folder: Path, prefix: Sequence[str] = (), **environment: str
) -> str:
    out = run(
        *(*prefix, session, scenario, folder),
        LD_LIBRARY_PATH=str(session.parent),
        TEST_TABLES=str(session.parent / "tables"),
        **{
            "NCCL_DEBUG": "INFO",
            "TUCCL_LEARN_FILE": str(folder / "learned.json"),
            **environment,
        },
    )
    assert out.endswith("passed\n")
    return out


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in SCENARIOS],
)
def test_scenario(session: Path, scenario: str, tmp_path: Path) -> None:
    sanitizer = {"ASAN_OPTIONS": "detect_leaks=0"} if scenario in LEAKING else {}
    if scenario == FORKING:
        sanitizer = {"TSAN_OPTIONS": "die_after_fork=0"}
    prefix = own_shm(1024) if scenario in OWN_SHM else []
    play(session, scenario, tmp_path, prefix, **sanitizer)


@pytest.mark.parametrize("strict", [False, True])
def test_sums_that_may_move_are_told_once_for_each_operation(
    session: Path, strict: bool, tmp_path: Path
) -> None:
    environment = {
        "LD_LIBRARY_PATH": str(session.parent),
        "TEST_TABLES": str(session.parent / "tables"),
        **({"TUCCL_INVARIANT": "strict"} if strict else {}),
    }
    done = subprocess.run(
        [str(session), "free_sums", str(tmp_path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = sorted(line for line in done.stderr.splitlines() if line.startswith("TuCCL: "))
    rest = (
        " of 64 elements of type 7: this call's sum is NCCL's and may move, because the table does "
        "not serve it; NCCL_DEBUG=INFO shows what is served"
    )
    rest += "; TUCCL_INVARIANT=strict refuses it" if strict else ""
    assert told == [f"TuCCL: {name}{rest}" for name in ("all_reduce", "reduce")]


@pytest.mark.parametrize(
    "scenario",
    [
        "collectives",
        "exit_without_destroying",
        "made_again_and_again",
        "made_in_a_group",
        "not_blocking",
        "not_on_all_ranks",
        "shrunk_with_abort",
        "split_fails_once",
    ],
)
def test_ids_that_may_be_of_several_hosts_change_nothing(
    session: Path, scenario: str, tmp_path: Path
) -> None:
    table = session.parent / "tables" / "across_hosts.tuccl"
    out = play(session, scenario, tmp_path, TUCCL_BUNDLE=str(table))
    assert "no roll at" not in out


def test_ranks_of_one_process_need_no_room_in_dev_shm(session: Path, tmp_path: Path) -> None:
    out = play(session, "made_in_a_group", tmp_path, own_shm(4, full=True))
    assert "WARN" not in out


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("create_fails", "rank 2: there is no device memory for its staging area"),
        ("connect_fails", "rank 1: memory of another process's device cannot be reached"),
        ("different_tables", "ranks 0 and 2 have different tables"),
        ("wrong_entry", "contradicts itself in its entries"),
        ("not_on_all_ranks", " of its ranks are seen to run the executor"),
        ("p2p_disabled", "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL forbids it"),
        ("too_many_ranks", "it serves 2 to 32 ranks"),
        ("damaged_bundle", "is no TuCCL bundle"),
    ],
)
def test_every_rank_says_once_why_it_is_off(
    session: Path, scenario: str, reason: str, tmp_path: Path
) -> None:
    warnings = [line for line in play(session, scenario, tmp_path).splitlines() if "WARN" in line]
    assert len(warnings) == {
        "not_on_all_ranks": 4,
        "p2p_disabled": 6,
        "too_many_ranks": 33,
        "wrong_entry": 2,
        "damaged_bundle": 2,
    }.get(scenario, 3)
    assert all(" NCCL WARN TuCCL: executor is off" in line for line in warnings)
    assert all(reason in line for line in warnings)


def test_the_check_at_start_says_in_a_line_what_it_left_out(session: Path, tmp_path: Path) -> None:
    out = play(session, "check_leaves_slow_entries_out", tmp_path, NCCL_DEBUG="WARN")
    (line,) = [line for line in out.splitlines() if "TuCCL" in line]
    assert "check at start: 5 of 5 entries timed in " in line
    assert "1 left to NCCL, which is faster: all_reduce of 1 to 65536 bytes (1" in line
    kept = play(session, "check_keeps_fast_entries", tmp_path)
    assert kept.count("5 of 5 entries timed in ") == 1
    assert kept.count("none is slower than NCCL's own choice") == 1
    lacking = play(session, "check_lacks_events", tmp_path, NCCL_DEBUG="WARN")
    assert lacking.count("nothing is checked at start: rank 1: no event could be made") == 1


def test_a_wrong_time_for_the_check_is_a_line_and_no_check(session: Path, tmp_path: Path) -> None:
    for wrong in ("soon", "5", "-1s", "61s", "1.5s", "99999999999s", "200 ms"):
        out = play(session, "made_in_a_group", tmp_path, TUCCL_CHECK=wrong)
        assert out.count(f"TUCCL_CHECK={wrong} is not a duration") == 1
        assert "at start" not in out
    for off in ("", "0ms"):
        out = play(session, "made_in_a_group", tmp_path, NCCL_DEBUG="WARN", TUCCL_CHECK=off)
        assert out == "passed\n"


def test_the_guard_says_in_a_line_what_it_leaves_out(session: Path, tmp_path: Path) -> None:
    out = play(session, "guard_leaves_slow_entries_out", tmp_path, NCCL_DEBUG="WARN")
    (line,) = [line for line in out.splitlines() if "TuCCL" in line]
    found = re.search(
        r"guard: all_reduce of 256 bytes left to NCCL.*\((\d+).* us.*NCCL (\d+)", line
    )
    assert found is not None
    entry_us, nccl_us = map(int, found.groups())
    assert entry_us > 5000 > nccl_us > 500
    kept = play(session, "guard_keeps_fast_entries", tmp_path)
    assert kept.count(" sizes left to NCCL, 0 waits") == 1
    assert "WARN" not in kept


def test_a_job_writes_whether_schedules_were_faster(session: Path, tmp_path: Path) -> None:
    for scenario, chosen in (
        ("learn_keeps_a_fast_entry", "schedule"),
        ("learn_leaves_a_slow_entry", "nccl"),
    ):
        play(session, scenario, tmp_path)
        (communicator,) = json.loads((tmp_path / "learned.json").read_text())["communicators"]
        (key,) = communicator["keys"]
        assert (key["operation"], key["bytes"], key["races"]) == ("all_reduce", 256, 1)
        assert key["arms"][key["choice"]]["is"] == chosen


@pytest.mark.parametrize(
    ("scenario", "most", "kinds"),
    [
        ("learn_takes_a_faster_schedule", 64, ["schedule", "nccl", "schedule", "schedule"]),
        ("learn_a_schedule_without_an_entry", 64, ["nccl", "schedule", "schedule"]),
        # The bound makes both runners-up one.
        ("learn_a_schedule_without_an_entry", 4, ["nccl", "schedule"]),
    ],
)
def test_a_job_learns_another_schedule(
    session: Path, scenario: str, most: int, kinds: list[str], tmp_path: Path
) -> None:
    bound = {"NCCL_MAX_CTAS": str(most)}
    play(session, scenario, tmp_path, TUCCL_GUARD_LOG=str(tmp_path), **bound)
    (learned,) = read_learned([tmp_path / "learned.json"]).keys
    assert [arm.kind for arm in learned.arms] == kinds
    tried = kernel(3, "all_reduce", "one_phase")
    assert learned.chosen.schedule == ScheduleConfig(
        tried.content_hash, NcclProtocol.LL, 4, 512, 65536
    )
    assert learned.chosen.text == f"{tried.name} LL ch4 th512"
    (judged,) = read_verdicts(tmp_path).keys
    assert [each.runs for each in judged.verdicts if each.is_change] == [learned.chosen.text]


def test_files_are_whole_if_writes_are_short(session: Path, tmp_path: Path) -> None:
    short = compile_native(tmp_path / "short.so", [NATIVE / "short_writes.c"], "-shared", "-fPIC")
    preloads = {"LD_PRELOAD": str(short), "ASAN_OPTIONS": "verify_asan_link_order=0"}
    play(session, "learn_keeps_a_fast_entry", tmp_path, **preloads)
    assert json.loads((tmp_path / "learned.json").read_text())["communicators"]


def test_a_file_that_cannot_be_written_is_a_line(session: Path, tmp_path: Path) -> None:
    name = str(tmp_path / "none" / "learned.json")
    learns = {"TUCCL_LEARN": "1", "TUCCL_LEARN_FILE": name}
    out = play(session, "learn_keeps_a_fast_entry", tmp_path, **learns)
    assert out.count(f"what was learned cannot be written to {name}") == 1


def test_a_process_that_ends_with_its_communicators_writes_too(
    session: Path, tmp_path: Path
) -> None:
    names = str(tmp_path / "%h-%p.json")
    play(session, "exit_without_destroying", tmp_path, TUCCL_LEARN="1", TUCCL_LEARN_FILE=names)
    (path,) = tmp_path.glob("*.json")
    document = json.loads(path.read_text())
    assert path.name == f"{document['host']}-{document['process']}.json"
    assert all(key["races"] == 0 for each in document["communicators"] for key in each["keys"])


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("guard_lacks_memory", "rank 1: its trials have no memory, or no events"),
        ("guard_not_blocking", "the communicator does not block (config.blocking = 0)"),
    ],
)
def test_a_line_says_why_nothing_is_guarded(
    session: Path, scenario: str, reason: str, tmp_path: Path
) -> None:
    out = play(session, scenario, tmp_path, NCCL_DEBUG="WARN")
    assert out.count(f"nothing is guarded: {reason}") == out.count("WARN") == 1


def test_a_trial_that_the_device_has_not_done_is_reported_again(
    session: Path, tmp_path: Path
) -> None:
    out = play(session, "guard_reports_again", tmp_path)
    # Of two sizes, and at least one of them again.
    assert int(re.findall(r", (\d+) reports", out)[0]) >= 3


def test_a_host_that_is_far_ahead_waits_for_conclusions(session: Path, tmp_path: Path) -> None:
    out = play(session, "guard_of_hosts_far_ahead", tmp_path)
    assert int(re.findall(r", (\d+) waits", out)[0]) >= 1


def test_a_wrong_word_for_learning_is_a_line_and_no_guard(session: Path, tmp_path: Path) -> None:
    out = play(session, "made_in_a_group", tmp_path, TUCCL_LEARN="yes")
    assert out.count("TUCCL_LEARN=yes is neither 0 nor 1: nothing is learned") == 1
    assert "guard:" not in out


def test_a_wrong_word_for_the_guard_is_a_line_and_no_guard(session: Path, tmp_path: Path) -> None:
    out = play(session, "made_in_a_group", tmp_path, TUCCL_GUARD="yes")
    assert out.count("TUCCL_GUARD=yes is neither 0 nor 1: nothing is guarded") == 1
    for off in ("", "0"):
        out = play(session, "made_in_a_group", tmp_path, NCCL_DEBUG="WARN", TUCCL_GUARD=off)
        assert out == "passed\n"


def test_nothing_is_said_where_nothing_is_wanted(session: Path, tmp_path: Path) -> None:
    out = play(session, "no_table", tmp_path)
    assert "WARN" not in out
    assert out.count("serves nothing") == 2
    assert play(session, "collectives", tmp_path, NCCL_DEBUG="VERSION") == "passed\n"


def bundle(folder: Path, program: bytes) -> Path:
    shape = Shape(2, 1, 2)
    stored = StoredSchedule("aa", "by hand", "", program)
    small = make_entry(
        Collective.ALL_REDUCE,
        1,
        65536,
        None,
        shape=shape,
        schedule=ScheduleConfig("aa", NcclProtocol.LL, 4, 256, 65536),
    )
    ring = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, 4)
    large = make_entry(Collective.ALL_REDUCE, 65537, 2**20, ring, shape=shape)
    path = folder / "table.tuccl"
    path.write_bytes(bundle_bytes(make_table([small, large], gpu_models=(), schedules=(stored,))))
    return path


def test_the_executor_takes_what_schedules_won(session: Path, tmp_path: Path) -> None:
    path = bundle(tmp_path, compile_program(exchange()))
    crc = f"{bundle_crc(path.read_bytes()):08x}"
    named = {"TUCCL_BUNDLE": str(path), "TUCCL_BUNDLE_CRC": crc}
    out = play(session, "from_bundle", tmp_path, SERVED="yes", **named)
    assert out.count(f"{path} (CRC {crc}), 1 ranges") == 2
    assert out.count("has nothing for the executor with 3 ranks") == 3
    assert "WARN" not in out


def test_another_sum_than_demanded_keeps_it_off(session: Path, tmp_path: Path) -> None:
    named = {
        "TUCCL_BUNDLE": str(bundle(tmp_path, compile_program(exchange()))),
        "TUCCL_BUNDLE_CRC": "00000000",
    }
    out = play(session, "from_bundle", tmp_path, SERVED="no", **named)
    assert "has not the CRC that TUCCL_BUNDLE_CRC demands" in out


def test_a_schedule_without_a_program_is_left_to_nccl(session: Path, tmp_path: Path) -> None:
    path = bundle(tmp_path, b"")
    out = play(session, "from_bundle", tmp_path, SERVED="no", TUCCL_BUNDLE=str(path))
    assert "WARN" not in out


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interposer as a separate library, and a job in C.

    Its objects are those of the scenarios, which take most of a minute to compile.
    """
    folder = tmp_path_factory.mktemp("job")
    flags = SANITIZERS["memory"]
    needs_sanitizer(folder, *flags)
    (folder / "old").mkdir()
    build_nccl(folder, *flags)
    build_nccl(folder / "old", "-DSTAND_IN_OLD_NCCL", *flags)
    objects = compile_all(folder, [*host_sources(), STAND_INS / "stand_in_device.cc"], *flags)
    exports = f"-Wl,--version-script={EXECUTOR / 'exports.map'}"
    streams = libraries(folder, streams=True)
    link(folder / "libtuccl-executor.so", objects, "-shared", exports, *streams, *flags)
    sources = [STAND_INS / "job.c", STAND_INS / "run_job.c", STAND_INS / "load_job.c"]
    job, run, load = compile_all(folder, sources, *flags)
    link(folder / "libjob.so", [job], "-shared", *libraries(folder), *flags)
    link(folder / "run_job", [run, job], *libraries(folder), *flags)
    link(folder / "load_job", [load], *flags)
    return folder


def run_job(
    folder: Path,
    command: Sequence[str],
    tmp_path: Path,
    prefix: Sequence[str] = (),
    **environment: str,
) -> str:
    table = tmp_path / "table.tuccl"
    table.write_bytes(session_table())
    done = subprocess.run(
        [*prefix, str(folder / command[0]), *command[1:]],
        env={
            "LD_LIBRARY_PATH": str(folder),
            # What is preloaded comes before the sanitizer's library.
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0",
            "STAND_IN_SHOWS": "1",
            "TUCCL_BUNDLE": str(table),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_job_runs_the_same_without_and_with_it(job_folder: Path, tmp_path: Path) -> None:
    preload = str(job_folder / "libtuccl-executor.so")
    plain = run_job(job_folder, ["run_job"], tmp_path)
    assert "right, finalize said 0" in plain
    assert (plain.count("executor 4"), plain.count("nccl AllReduce")) == (0, 6)
    served = run_job(job_folder, ["run_job"], tmp_path, LD_PRELOAD=preload)
    assert "right, finalize said 0" in served
    assert (served.count("executor 4"), served.count("nccl AllReduce")) == (6, 0)


@pytest.mark.parametrize("table", [{}, {"TUCCL_BUNDLE": ""}], ids=["table", "no table"])
def test_a_full_dev_shm_stops_no_job(
    job_folder: Path, tmp_path: Path, table: dict[str, str]
) -> None:
    # What is before the job would be preloaded into otherwise.
    preload = ["env", f"LD_PRELOAD={job_folder / 'libtuccl-executor.so'}"]
    path = {"PATH": os.environ["PATH"]}
    prefix = [*own_shm(4, full=True), *preload]
    assert "right, finalize said 0" in run_job(
        job_folder, ["run_job"], tmp_path, prefix, **path, **table
    )


def test_nccl_behind_an_extension_module_is_found(job_folder: Path, tmp_path: Path) -> None:
    command = ["load_job", str(job_folder / "libjob.so")]
    preload = str(job_folder / "libtuccl-executor.so")
    served = run_job(job_folder, command, tmp_path, LD_PRELOAD=preload)
    assert "right, finalize said 0" in served
    assert (served.count("executor 4"), served.count("nccl AllReduce")) == (6, 0)


def test_an_nccl_without_newer_functions_does(job_folder: Path, tmp_path: Path) -> None:
    old = {"LD_LIBRARY_PATH": f"{job_folder / 'old'}:{job_folder}"}
    preload = str(job_folder / "libtuccl-executor.so")
    served = run_job(job_folder, ["run_job"], tmp_path, LD_PRELOAD=preload, **old)
    # The job finds a function of the interposer's that this NCCL has not: it is told so.
    assert "right, finalize said 5" in served
    assert served.count("executor 4") == 6


def test_only_functions_of_nccl_and_its_own_are_exported(job_folder: Path) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", job_folder / "libtuccl-executor.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    names = {line.split()[-1] for line in listed if line}
    own = {
        "tuccl_executor_answered",
        "tuccl_executor_calls",
        "tuccl_executor_choose",
        "tuccl_executor_is_called",
        "tuccl_executor_request",
    }
    assert all(name.startswith("nccl") for name in names - own)
    assert own < names
    assert {"ncclAllReduce", "ncclAlltoAll", "ncclCommSplit", "ncclGroupEnd"} <= names
