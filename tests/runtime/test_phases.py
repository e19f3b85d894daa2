"""Schedules across hosts over stand-ins of NCCL and of the CUDA side; each rank is a process."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    RunnersUp,
    Shape,
)
from synthesizer.programs.phase_plans import phased_plans
from tests.lookup_tables.tables import make_table
from tests.runtime.builds import SANITIZERS, STAND_INS, compile_all, link, needs_sanitizer, run
from tests.runtime.executor_tables import bundle_of, phased_entry, phased_schedule
from tests.runtime.phase_tables import (
    damaged_table,
    domain_table,
    plan_names,
    program_places,
    settings_table,
    write_phase_tables,
)
from tests.runtime.test_executor import build_nccl, host_sources, libraries
from tuccl.reports.learned import read_learned
from tuccl.reports.verdicts import VerdictKind, read_verdicts

pytestmark = pytest.mark.long

DGX_2 = "a" * 16 + "b" * 16
TRAYS = "aabbccdd"
"""Two domains of two hosts, where NCCL says so."""
GRIDS = {
    "aabb": (2, 2),
    "abcd": (4, 1),
    "aaabbb": (2, 3),
    "aabbcc": (3, 2),
    DGX_2: (2, 16),
    TRAYS: (2, 4),
}
SHAPES = 3 * 9 * 2
"""Calls of a reducing operation: three types, nine reductions and sizes, in place and not."""

AVERAGED_INTEGERS = 2 * 2
"""Those of them that NCCL runs."""

OF_ROUNDS = {"rooted", "wrong_programs", "many_launches", "load_stages_fails"}
"""Scenarios of schedules in stages and rounds, which test_staged.py plays."""

CHECK = {"TUCCL_CHECK": "20s", "STAND_IN_NCCL_US": "2000", "STAND_IN_PLUGIN": "1"}
"""With NCCL's calls of some time, but along rails."""

GUARD = {"TUCCL_GUARD": "1", "STAND_IN_NCCL_US": "300", "STAND_IN_PLUGIN": "1"}

QUICK = {"STAND_IN_NCCL_US": "20", "STAND_IN_TRIED": "4:4:2:-1"}
"""Calls of little time, so that many races end; NVLS does not run."""

CALLS, FAILURES, CONNECTIONS = (
    [
        name
        for name in re.findall(r"SCENARIO\((\w+)\)", (STAND_INS / file).read_text())
        if name not in {"data", "shapes", "settings_by_shape", *OF_ROUNDS}
    ]
    for file in ("phase_calls.cc", "phase_failures.cc", "phase_connections.cc")
)


def built_job(folder: Path, sanitizer: str) -> Path:
    """Return the job that plays scenarios across hosts."""
    needs_sanitizer(folder, *SANITIZERS[sanitizer])
    flags = [
        *SANITIZERS[sanitizer],
        *("-DSTAND_IN_PROCESSES", "-DSTAND_IN_MOST_BYTES=262144", "-DTUCCL_RAIL_PATIENCE_MS=3000"),
        "-DTUCCL_MOST_STAGE_LINES_BYTES=8192",
    ]
    build_nccl(folder, *flags)
    own = [*sorted(STAND_INS.glob("phase_*.cc")), STAND_INS / "stand_in_device.cc"]
    objects = compile_all(folder, [*own, *host_sources()], *flags)
    return link(folder / "phase_job", objects, "-rdynamic", *libraries(folder), *flags)


def run_job(job: Path, scenario: str, hosts: str, places: list[int], **environment: str) -> str:
    """Play a scenario; `places`: of the programs of one and of several lanes."""
    one_lane, several_lanes = map(str, places)
    choices = {"ONE_LANE": one_lane, "SEVERAL_LANES": several_lanes}
    library = {"LD_LIBRARY_PATH": str(job.parent), "NCCL_DEBUG": "INFO"}
    return run(job, scenario, hosts, **library | choices | environment)


@pytest.fixture(
    scope="module",
    params=["memory", pytest.param("threads", marks=pytest.mark.slow)],
)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phases")
    for hosts, grid in GRIDS.items():
        write_phase_tables(folder / hosts, *grid)
    return built_job(folder, request.param)


def play(job: Path, scenario: str, hosts: str, **environment: str) -> str:
    grid = GRIDS.get(hosts, (2, 2))
    tables = str(job.parent / (hosts if hosts in GRIDS else "aabb"))
    given = {"TEST_TABLES": tables, "PLANS": " ".join(plan_names(*grid)), **environment}
    return run_job(job, scenario, hosts, program_places(*grid), **given)


@pytest.mark.parametrize(
    "hosts",
    # Three nodes of two show what two of three and four of one do, and take longest.
    ["aabb", "abcd", "aaabbb", pytest.param("aabbcc", marks=pytest.mark.slow)],
)
def test_every_plan_gives_every_rank_the_right_bits(job: Path, hosts: str) -> None:
    out = play(job, "data", hosts, NCCL_DEBUG="WARN", STAND_IN_PLUGIN="1")
    served = {name: numbers for name, *numbers in map(str.split, out.splitlines())}
    reducing, moving, nothing = str(SHAPES - AVERAGED_INTEGERS), "30", "0"
    # Lanes and requests along the rail change no calls that are served.
    lanes = {name: served.pop(name) for name in list(served) if name.startswith("lanes")}
    assert lanes == {f"lanes{name[-1]}": served[name] for name in served if name[:5] == "plans"}
    assert served.pop("rails0") == served["plans0"]
    if hosts == "abcd":
        assert served == {
            "plans0": [reducing, reducing, nothing, nothing],
            "plans1": [reducing, nothing, nothing, nothing],
        }
        return
    assert served == {
        "plans0": [reducing, reducing, moving, "15"],
        "plans1": [reducing, reducing, nothing, nothing],
        "plans2": [reducing, nothing, nothing, nothing],
        "plans3": [reducing, nothing, nothing, nothing],
        # Of five counts one has nothing left over, which it could not reduce.
        "rail_first": ["6", nothing, nothing, nothing],
    }


def test_nodes_of_sixteen_ranks(job: Path) -> None:
    out = play(job, "data", DGX_2, NCCL_DEBUG="WARN", PLANS="plans1")
    # 1003 elements of 4 bytes of each rank are more bytes than the table is for.
    assert out == "plans1 50 46 0 0\n"


GPU = "10de:31c2"


@pytest.fixture
def tray(job: Path, tmp_path: Path) -> Path:
    """Return a table of a node of four GPUs, on hosts that have two of them."""
    for number in (1, 2):
        device = tmp_path / "sys" / "bus" / "pci" / "devices" / f"0000:0{number}:00.0"
        device.mkdir(parents=True)
        for name, word in zip(
            ("vendor", "device", "class"), (*GPU.split(":"), "030200"), strict=True
        ):
            (device / name).write_text(f"0x{word}\n")
    (job.parent / "aabb" / "domain.tuccl").write_bytes(domain_table(4, GPU))
    return tmp_path / "sys"


def test_a_domain_of_several_hosts_is_one_node(job: Path, tray: Path) -> None:
    """NCCL says that all four ranks share memory, so kernels run among them, and no rails."""
    one_node = {"STAND_IN_TEAM": "4", "TUCCL_SYSFS": str(tray), "PLANS": "domain"}
    out = play(job, "data", "aabb", **one_node)
    assert out.splitlines()[-1] == f"domain {SHAPES} {SHAPES} 30 15"
    assert "served rank 0 of 4" not in out
    assert "lanes of its rail" not in out


def test_without_a_team_of_nccls_hosts_are_nodes(job: Path, tray: Path) -> None:
    table = str(job.parent / "aabb" / "domain.tuccl")
    out = play(job, "off_on_all", "aabb", TUCCL_BUNDLE=table, TUCCL_SYSFS=str(tray))
    assert out.count("has nothing for the executor with 2 nodes of 2 ranks") == 4


def test_domains_beside_each_other_are_nodes(job: Path) -> None:
    out = play(job, "data", TRAYS, NCCL_DEBUG="WARN", PLANS="plans0", STAND_IN_TEAM="4")
    assert out == f"plans0 {SHAPES - AVERAGED_INTEGERS} {SHAPES - AVERAGED_INTEGERS} 30 15\n"


def test_no_rank_waits_for_ever_where_a_device_runs_all_streams_one_after_the_other(
    job: Path,
) -> None:
    out = play(job, "data", "aabb", NCCL_DEBUG="WARN", STAND_IN_ONE_QUEUE="1")
    assert len(out.splitlines()) == len(plan_names(2, 2))


@pytest.mark.parametrize("hosts", ["aabb", "aaabbb", "aabbcc"])
def test_each_communicator_of_a_job_has_the_schedules_of_its_shape(job: Path, hosts: str) -> None:
    out = play(job, "shapes", hosts, NCCL_DEBUG="WARN")
    # All ranks, each host's and each rail's; then a table of hosts alone.
    assert out.splitlines() == ["shapes 1 1 1", "nodes 0 1 0"]


@pytest.mark.parametrize("hosts", ["aabb", "aaabbb"])
def test_the_table_has_settings_for_all_ranks_and_rails_alone(job: Path, hosts: str) -> None:
    assert "WARN" not in play(job, "settings_by_shape", hosts)


@pytest.mark.parametrize("scenario", CALLS)
@pytest.mark.parametrize("hosts", ["aabb", "abcd"])
def test_calls(job: Path, scenario: str, hosts: str) -> None:
    assert "WARN" not in play(job, scenario, hosts)


CALLED_BELOW = {"served", "off_on_all", "nvlink_on_one_host"}
WITH_RAILS = {"split_fails_on_one_rank", "split_fails_on_all_ranks", "rail_breaks"}
LEAKING = {
    "abort_while_choosing",
    "abort_while_connecting",
    "rank_leaves_while_connecting",
    "revoke_while_choosing",
    "split_fails_on_one_rank",
}
"""Scenarios that leave memory allocated which a rank may still use."""


@pytest.mark.parametrize(
    ("scenario", "hosts"),
    [
        (scenario, hosts)
        for scenario in FAILURES
        for hosts in ("aabb", "abcd")
        if scenario not in CALLED_BELOW and not (hosts == "abcd" and scenario in WITH_RAILS)
    ],
)
def test_failures_and_ends(job: Path, scenario: str, hosts: str) -> None:
    leaks = {"ASAN_OPTIONS": "detect_leaks=0"} if scenario in LEAKING else {}
    play(job, scenario, hosts, TUCCL_BUNDLE=str(job.parent / hosts / "plans0.tuccl"), **leaks)


IN_ALL_WAYS = {"grouped_differently", "connecting_fails", "chosen_when_needed"}
WITH_PATIENCE = {"connecting_hangs", "choice_hangs"}


CONNECTION_CASES = [
    (scenario, hosts, table)
    for scenario in CONNECTIONS
    for hosts in ("aabb", "abcd")
    # NCCL chooses along the rail, or the plugin obeys the plan.
    for table in ("plans0", "rails0")
    if (hosts, table) == ("aabb", "plans0") or scenario in IN_ALL_WAYS
]


@pytest.mark.parametrize(
    ("scenario", "hosts", "table"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] if case[0] in WITH_PATIENCE else [])
        for case in CONNECTION_CASES
    ],
)
def test_connections_of_rails(job: Path, scenario: str, hosts: str, table: str) -> None:
    leaks = {"ASAN_OPTIONS": "detect_leaks=0"} if scenario in LEAKING else {}
    plugin = {"STAND_IN_PLUGIN": "1"} if table == "rails0" else {}
    path = job.parent / hosts / f"{table}.tuccl"
    play(job, scenario, hosts, TUCCL_BUNDLE=str(path), **leaks, **plugin)


def test_a_served_communicator_says_what_its_rail_takes(job: Path) -> None:
    # A lane takes 4 MiB, each of three routes 3 MiB: all_gather by its size, and alltoall.
    out = play(job, "memory_of_rails", "abcd", TUCCL_BUNDLE=str(job.parent / "abcd/plans0.tuccl"))
    assert out.count("about 13.0 MiB of NCCL's (lanes of its rail: 1, of all ranks: 0)") == 4
    lanes = play(job, "chosen_when_needed", "aabb")
    assert lanes.count("0 ranges and what the process chooses") == 8
    assert lanes.count("lanes of a rail: 3, of all ranks: 0, about") == 4


def test_a_communicator_says_which_ranges_lack_cores(job: Path) -> None:
    out = play(job, "lanes_need_cores", "aabb")
    # The ranges of four operations, on four ranks: once they share four cores.
    assert out.count("4 ranges left to NCCL: a rank's share of the cores drives 1 lane") == 4


def test_hosts_may_differ_in_their_nvlink(job: Path) -> None:
    assert "WARN" not in play(job, "nvlink_on_one_host", "aabb")


def warnings(out: str) -> list[str]:
    return [line for line in out.splitlines() if "WARN" in line]


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("prepare_phases_fails", "rank 2: there is no device memory for what lies between phases"),
        ("split_fails_on_all_ranks", "rank 0: NCCL could not split its communicator"),
        ("different_tables", "ranks 0 and 2 have different tables"),
        ("rank_without_preload", "3 of its ranks are seen to run the executor"),
        ("connecting_fails", "NCCL could not make its first call along the rail"),
    ],
)
def test_every_rank_says_once_why_it_is_off(job: Path, scenario: str, reason: str) -> None:
    table = str(job.parent / "aabb" / "plans0.tuccl")
    lines = warnings(play(job, scenario, "aabb", TUCCL_BUNDLE=table))
    assert len(lines) == (3 if scenario == "rank_without_preload" else 4)
    assert all("executor is off" in line and reason in line for line in lines)


def test_slow_schedules_across_hosts_are_left_out_at_the_start(job: Path) -> None:
    table = str(job.parent / "aabb" / "plans0.tuccl")
    slow = {"STAND_IN_SLOW_ENTRIES": "3:65536:10000"}  # Phases of all_reduce and reduce_scatter.
    out = play(job, "check_across_hosts", "aabb", TUCCL_BUNDLE=table, **CHECK, **slow)
    (line,) = warnings(out)
    assert "4 of 4 entries timed" in line
    assert "2 left to NCCL, which is faster: " in line
    assert "all_reduce of 1 to 40000 bytes" in line
    assert "reduce_scatter of 1 to 40000 bytes" in line


def test_ranks_that_ask_for_different_checks_make_none(job: Path) -> None:
    table = str(job.parent / "aabb" / "plans0.tuccl")
    slow = {"STAND_IN_SLOW_ENTRIES": "3:65536:10000"}
    lines = warnings(play(job, "check_differs", "aabb", TUCCL_BUNDLE=table, **CHECK, **slow))
    assert len(lines) == 2
    assert (
        "nothing is checked at start: rank 0 has 20000 ms of TUCCL_CHECK, rank 1 none" in lines[0]
    )
    assert "rank 0 has 20000 ms of TUCCL_CHECK, rank 1 1000 ms" in lines[1]


@pytest.fixture
def settings(job: Path) -> dict[str, str]:
    """A table of NCCL's settings alone, of which that of all_reduce is slow."""
    (job.parent / "aabb" / "settings.tuccl").write_bytes(settings_table(4))
    table = str(job.parent / "aabb" / "settings.tuccl")
    return {"TUCCL_BUNDLE": table, "STAND_IN_SETTING": "4:10000", **CHECK}


def test_slow_settings_are_left_out_at_the_start(job: Path, settings: dict[str, str]) -> None:
    lines = warnings(play(job, "check_settings", "aaaa", **settings))
    assert len(lines) == 2
    assert all("2 of 2 entries timed" in line and "1 left to NCCL" in line for line in lines)
    assert all("all_reduce of 1 to 40000 bytes (1" in line for line in lines)


def test_settings_of_communicators_that_start_together_are_not_checked(
    job: Path, settings: dict[str, str]
) -> None:
    out = play(job, "check_of_settings_in_a_group", "aaaa", **settings)
    assert "WARN" not in out
    assert out.count("0 of 0 entries timed") == 2
    assert out.count("(2 more are the plugin's, which is not asked)") == 2


def test_slow_schedules_across_hosts_are_left_out_in_the_job(job: Path) -> None:
    table = str(job.parent / "aabb" / "plans0.tuccl")
    slow = {**GUARD, "STAND_IN_SLOW_ENTRIES": "3:65536:4000"}
    (line,) = warnings(play(job, "guard_across_hosts", "aabb", TUCCL_BUNDLE=table, **slow))
    assert "guard: all_reduce of 256 bytes left to NCCL, which is faster (" in line


def test_slow_settings_are_left_out_in_the_job(
    job: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    slow = {**settings, "TUCCL_CHECK": "", "STAND_IN_SETTING": "4:4000", **GUARD}
    watched = {"TUCCL_METRICS": str(tmp_path), "TUCCL_GUARD_LOG": str(tmp_path)}
    (line,) = warnings(play(job, "guard_settings", "aaaa", **slow, **watched))
    assert "guard: all_reduce of 256 bytes left to NCCL, which is faster (" in line
    files = list(tmp_path.glob("*.prom"))
    assert len(files) == 4
    for file in files:
        calls = dict(
            re.findall(r'tuccl_calls_total.*="(all_reduce",path="\w+)"} (\d+)', file.read_text())
        )
        by_table, by_nccl = (
            int(calls[f'all_reduce",path="{path}']) for path in ("setting", "nccl")
        )
        # Until the conclusion, but for 16 of the trial; then, and in a group.
        assert by_table + by_nccl == 1 + 110 + 1 + 1
        assert 50 < by_table < 110 - 16
    (log,) = tmp_path.glob("*.jsonl")  # Rank 0's.
    verdicts = {each["operation"]: each for each in map(json.loads, log.read_text().splitlines())}
    assert verdicts["all_reduce"]["verdict"] == "left_out"
    assert verdicts["all_gather"]["verdict"] == "stays"


@pytest.mark.slow
def test_settings_that_are_out_are_tried_again(job: Path, settings: dict[str, str]) -> None:
    slow = {**settings, "TUCCL_CHECK": "", "STAND_IN_SETTING": "4:4000", **GUARD}
    play(job, "guard_tries_settings_again", "aaaa", **{**slow, "STAND_IN_NCCL_US": "100"})


def test_what_the_check_left_out_stays_so_where_the_guard_ends(
    job: Path, settings: dict[str, str]
) -> None:
    spoiled = {**settings, **GUARD, "STAND_IN_SPOILS_REPORTS": "1"}
    checked, ended = warnings(play(job, "guard_ends_behind_a_check", "aaaa", **spoiled))
    assert "1 left to NCCL" in checked
    assert "ranks call all_gather of 1024 bytes at different places" in ended


def test_ranks_of_which_one_asks_for_no_guard_have_none(job: Path) -> None:
    table = str(job.parent / "aabb" / "plans0.tuccl")
    (line,) = warnings(play(job, "guard_differs", "aabb", TUCCL_BUNDLE=table, **GUARD))
    assert line.endswith("nothing is guarded: rank 0 has TUCCL_GUARD, rank 1 has not")


@pytest.fixture
def learns(job: Path, tmp_path: Path) -> dict[str, str]:
    """Learns from an empty table: ring with LL128 is fast, NVLS does not run."""
    (job.parent / "aabb" / "empty.tuccl").write_bytes(bundle_of([], []))
    return {
        **GUARD,
        "TUCCL_GUARD": "",
        "TUCCL_LEARN": "1",
        "TUCCL_LEARN_FILE": str(tmp_path / "learned.json"),
        "TUCCL_GUARD_LOG": str(tmp_path),
        "TUCCL_BUNDLE": str(job.parent / "aabb" / "empty.tuccl"),
        "STAND_IN_NCCL_US": "800",
        "STAND_IN_TRIED": "4:1:1:100,4:0:0:1200,4:4:2:-1",
    }


@pytest.mark.parametrize("hosts", ["aaaa", pytest.param("aabb", marks=pytest.mark.slow)])
def test_a_job_learns_settings_from_an_empty_table(
    job: Path, hosts: str, learns: dict[str, str], tmp_path: Path
) -> None:
    out = play(job, "learn_settings", hosts, **{**learns, "TUCCL_METRICS": str(tmp_path)})
    assert out.count("learned: all_reduce of 256 bytes by ring/LL128 from now on") == 1
    (communicator,) = json.loads((tmp_path / "learned.json").read_text())["communicators"]
    assert (communicator["ranks"], communicator["nodes"]) == (4, len(set(hosts)))
    (key,) = communicator["keys"]
    assert (key["operation"], key["bytes"], key["races"]) == ("all_reduce", 256, 3)
    chosen = key["arms"][key["choice"]]
    assert (chosen["algorithm"], chosen["protocol"]) == ("ring", "LL128")
    assert 100 < chosen["time_us"] < key["arms"][0]["time_us"]
    assert [arm["algorithm"] for arm in key["arms"] if arm["refused"]] == ["nvls"]
    assert 0 < communicator["slower_us"] <= 0.02 * communicator["elapsed_us"]
    (judged,) = read_verdicts(tmp_path).keys
    assert [each.runs for each in judged.verdicts if each.is_change] == ["ring/LL128"]
    assert [each.verdict for each in judged.verdicts].count(VerdictKind.LEARNED) == 1
    assert judged.last_median_us("table") is None
    (read,) = read_learned([tmp_path / "learned.json"]).keys
    assert (read.chosen.text, read.shape) == (
        "ring/LL128",
        Shape(4, len(set(hosts)), 4 // len(set(hosts))),
    )
    for file in tmp_path.glob("*.prom"):
        text = file.read_text()
        assert re.search(r'calls_total.*="all_reduce",path="learned"} [1-9]', text)
        assert 'path="setting"' not in text
        assert float(re.findall(r'saved_seconds.*"nccl"} (\S+)', text)[0]) > 0


@pytest.mark.slow
def test_a_job_tries_what_its_table_has(job: Path, learns: dict[str, str], tmp_path: Path) -> None:
    """Where the table has runners-up, these race alone: the winner, and one in chunks."""
    ring = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL128)
    chunks = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL, 2, 64 << 10)
    empty = make_table([], gpu_models=(), profile={}, schedules=())
    key = Key(Collective.ALL_REDUCE, 1, 512, Shape(4, 1, 4), empty.fingerprint)
    table = replace(empty, runners_up=(RunnersUp(key, (chunks, ring)),))
    (job.parent / "aabb" / "empty.tuccl").write_bytes(bundle_bytes(table))
    play(job, "learn_settings", "aaaa", **learns)
    (learned,) = read_learned([tmp_path / "learned.json"]).keys
    # The tree may need connections, so it comes last.
    assert [arm.setting for arm in learned.arms] == [None, ring, chunks]
    assert learned.chosen.setting == ring


@pytest.fixture
def learns_schedule(job: Path, learns: dict[str, str]) -> Entry:
    """The table that jobs learn from has no entry, but this one as a runner-up."""
    plan = phased_plans(Collective.ALL_REDUCE, 2, 2)[0].with_lanes(2)
    stored = phased_schedule(plan)
    entry = phased_entry(plan, stored)
    assert entry.schedule is not None
    empty = make_table([], gpu_models=(), profile={}, schedules=(stored,))
    table = replace(empty, runners_up=(RunnersUp(entry.key, (), (entry.schedule,)),))
    Path(learns["TUCCL_BUNDLE"]).write_bytes(bundle_bytes(table))
    return entry


@pytest.mark.slow
def test_a_job_learns_a_schedule_across_hosts(
    job: Path, learns: dict[str, str], learns_schedule: Entry, tmp_path: Path
) -> None:
    slow = {"STAND_IN_NCCL_US": "3000", "STAND_IN_TRIED": "4:4:2:-1"}
    play(job, "learn_schedule", "aabb", **{**learns, **slow})
    (learned,) = read_learned([tmp_path / "learned.json"]).keys
    assert learned.chosen.schedule == learns_schedule.schedule
    assert learned.gain is not None
    assert learned.gain > 1.02
    (judged,) = read_verdicts(tmp_path).keys
    assert learned.chosen.text in [each.runs for each in judged.verdicts if each.is_change]


def test_random_calls_are_right_while_settings_race(job: Path, learns: dict[str, str]) -> None:
    assert "WARN" not in play(job, "learn_random_calls", "aaaa", **{**learns, **QUICK})


@pytest.mark.slow
@pytest.mark.usefixtures("learns_schedule")
def test_random_calls_are_right_while_schedules_race(
    job: Path, learns: dict[str, str], tmp_path: Path
) -> None:
    assert "WARN" not in play(job, "learn_random_calls", "aabb", **{**learns, **QUICK})
    keys = read_learned([tmp_path / "learned.json"]).keys
    assert any(arm.schedule and arm.time_us for key in keys for arm in key.arms)


@pytest.mark.parametrize("hosts", ["abab", "abba"])
def test_other_communicators_are_left_to_nccl(job: Path, hosts: str) -> None:
    table = str(job.parent / "aabb" / "plans0.tuccl")
    lines = warnings(play(job, "off_on_all", hosts, TUCCL_BUNDLE=table))
    assert len(lines) == 4
    assert all("a node's ranks do not follow one another" in line for line in lines)


@pytest.mark.parametrize("hosts", ["abcd", "aaaa", "aaab"])
def test_phases_for_other_nodes_are_nothing_for_a_communicator(job: Path, hosts: str) -> None:
    table = str(job.parent / "aabb" / "plans0.tuccl")
    out = play(job, "off_on_all", hosts, TUCCL_BUNDLE=table)
    assert "WARN" not in out
    grids = {"abcd": "4 nodes of 1 ranks", "aaab": "nodes of 3 + 1 ranks"}
    grid = grids.get(hosts, "4 ranks on one node")
    assert out.count(f"has nothing for the executor with {grid}") == 4


def test_a_damaged_phased_program_keeps_the_executor_off(job: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.tuccl"
    path.write_bytes(damaged_table())
    lines = warnings(play(job, "off_on_all", "aabb", TUCCL_BUNDLE=str(path)))
    assert len(lines) == 4
    assert all("contradicts itself in its phases" in line for line in lines)
