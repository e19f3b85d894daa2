"""Jobs whose processes share no /dev/shm: who runs the executor is found out over the network."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network_namespaces import Interface, NetworkNamespaces, requires_namespaces
from tests.runtime.builds import SANITIZERS, STAND_INS, compile_all, link
from tests.runtime.executor_tables import session_table
from tests.runtime.test_executor import build_nccl, host_sources, libraries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a /dev/shm"),
]
OUTSIDE = [[Interface(rate_mbit=None)], [Interface(rate_mbit=None)]]
FAILED = 1
"""ncclUnhandledCudaError."""

UNHEARD = {"STAND_IN_UNHEARD_ABORT": "1"}
"""As in NCCL, nobody learns from NCCL that a rank has failed."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network_job")
    flags = [*SANITIZERS["memory"], "-DSTAND_IN_PROCESSES"]
    build_nccl(folder, *flags)
    own = [STAND_INS / "network_job.cc", STAND_INS / "stand_in_device.cc"]
    objects = compile_all(folder, [*own, *host_sources()], *flags)
    (folder / "table.tuccl").write_bytes(session_table(across_hosts=True))
    return link(folder / "network_job", objects, "-rdynamic", *libraries(folder), *flags)


def run(job: Path, ranks: int, *options: str, **environment: str) -> tuple[list[str], str]:
    """Return each rank's line without its seconds, and all output."""
    done = subprocess.run(
        [str(job), str(ranks), *options],
        env={
            "LD_LIBRARY_PATH": str(job.parent),
            "NCCL_DEBUG": "INFO",
            "TUCCL_BUNDLE": str(job.parent / "table.tuccl"),
            "ASAN_OPTIONS": "detect_leaks=0",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^(rank .*), seconds \d+$", done.stdout, re.MULTILINE)
    return sorted(lines), done.stdout + done.stderr


def all_say(ranks: int, what: str) -> list[str]:
    return [f"rank {rank} started with {what}" for rank in range(ranks)]


def test_ranks_without_a_common_dev_shm_find_one_another(job: Path) -> None:
    lines, out = run(job, 4, "pairs=1")
    assert lines == all_say(4, "0 executor executor"), out
    assert "WARN" not in out


def test_without_an_entry_for_several_hosts_nothing_listens(job: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.tuccl"
    table.write_bytes(session_table())
    lines, out = run(job, 2, TUCCL_BUNDLE=str(table))
    assert lines == all_say(2, "0 nccl"), out
    assert out.count("share no /dev/shm") == 2


def test_with_a_rank_without_the_executor_all_are_nccls(job: Path) -> None:
    lines, out = run(job, 4, "bare=2", "pairs=1")
    # Of two pairs one has the executor on both of its ranks.
    halves = ["executor", "executor", "nccl", "nccl"]
    assert lines == [f"rank {rank} started with 0 nccl {half}" for rank, half in enumerate(halves)]
    assert out.count(" 3 of its ranks are seen to run the executor") == 3


def test_a_start_that_fails_is_tried_again(job: Path) -> None:
    lines, out = run(job, 3, "again=1", STAND_IN_NCCL_FAILS="1:1")
    assert lines == all_say(3, "0 executor"), out


@pytest.mark.parametrize("step", ["create", "connect"])
def test_a_rank_that_is_killed_in_set_up_ends_the_others_start(job: Path, step: str) -> None:
    lines, out = run(job, 3, STAND_IN_DIES=f"{step}:1", **UNHEARD)
    assert lines == [f"rank {rank} started with {FAILED}" for rank in (0, 2)], out
    assert "another rank failed to start, or died" in out


def test_a_rank_that_is_killed_while_entries_are_checked_ends_the_others_start(job: Path) -> None:
    lines, out = run(job, 3, TUCCL_CHECK="10s", STAND_IN_DIES="mark:1", **UNHEARD)
    assert lines == [f"rank {rank} started with {FAILED}" for rank in (0, 2)], out
    assert "another rank failed to start, or died" in out


def test_a_rank_that_cannot_greet_ends_the_others_start(job: Path) -> None:
    lines, out = run(job, 3, STAND_IN_FAILS="exchange:2", **UNHEARD)
    assert lines == all_say(3, str(FAILED)), out


def test_an_address_of_no_interface_leaves_the_id_alone(job: Path) -> None:
    lines, out = run(job, 2, STAND_IN_ADDRESS="192.0.2.1")
    assert lines == all_say(2, "0 nccl"), out
    assert "no roll at 192.0.2.1" in out


@pytest.fixture(scope="module")
def hosts() -> Iterator[NetworkNamespaces]:
    with NetworkNamespaces(OUTSIDE) as namespaces:
        yield namespaces


def across(hosts: NetworkNamespaces) -> tuple[str, dict[str, str]]:
    named = ",".join(hosts.namespace(host) for host in range(len(hosts.hosts)))
    return f"hosts={named}", {"STAND_IN_ADDRESS": hosts.address(0)}


@requires_namespaces
def test_ranks_of_two_hosts_find_one_another(job: Path, hosts: NetworkNamespaces) -> None:
    option, address = across(hosts)
    lines, out = run(job, 4, option, "pairs=1", **address)
    assert lines == all_say(4, "0 executor executor"), out


@requires_namespaces
@pytest.mark.slow
def test_a_host_that_cannot_be_reached_costs_its_ranks_five_seconds(
    job: Path, hosts: NetworkNamespaces
) -> None:
    option, address = across(hosts)
    hosts.lead_nowhere(1)
    lines, out = run(job, 4, option, "pairs=1", **address)
    assert lines == all_say(4, "0 nccl nccl"), out
    assert out.count("cannot be reached: ") == 2
    assert out.count("could not be reached a moment ago") == 2
    assert max(int(seconds) for seconds in re.findall(r"seconds (\d+)", out)) < 8
