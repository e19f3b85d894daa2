"""Late and wrong starts of a job: exit codes, and the one line, as the guide has it."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

import pytest

from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.crew.test_places import ROOT
from tuccl.crew.connection import VERSION
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

GUIDE = ROOT / "docs" / "guide" / "mpi.md"
TUNE = ("tune", "--topology", "box.json", "--operations", "all_reduce", "--min-size", "1M",
        "--max-size", "1M", "--json", "--backend")  # fmt: skip
LARGER = ("tune", "--max-size=4M", *TUNE[1:-4], *TUNE[-2:])
BUDGT = ("init", "--budgt", "2h")
SLURM_STEP = {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"}
KILLED = -9
ALONE = "is_alone_on_a_host_of_2_gpus"
KEY = "0123456789abcdef" * 3
FREE, OTHER_FREE, IN_USE_PORT = "free port", "another free port", "port in use"
"""Stand for ports."""


@dataclass(frozen=True)
class Rank:
    environment: Mapping[str, str]
    words: tuple[str, ...]
    fates: tuple[str, ...] = ()
    limit_s: float = 60.0


@dataclass(frozen=True)
class Start:
    """What is started, and what comes of it."""

    ranks: tuple[Rank, ...]
    codes: tuple[int, ...]
    lines: Mapping[int, str] = field(default_factory=dict)
    """The one line of a rank, as the guide has it; other ranks say nothing."""
    ends_together: bool = True
    """Whether the launcher ends all ranks once one has failed."""


def torchrun(
    workspace: str,
    ranks: str = "01",
    size: int = 2,
    *,
    backend: str = "simulated",
    limit_s: float = 60.0,
    environment: Mapping[str, str] = MappingProxyType({}),
    **fates: str,
) -> tuple[Rank, ...]:
    """These ranks, each with its fate: `rank_1="is_late"`."""
    words = (*TUNE, backend, "--workspace", workspace)
    return tuple(
        Rank(
            {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(size), **environment},
            words,
            tuple(fates.get(f"rank_{rank}", "").split()),
            limit_s,
        )
        for rank in ranks
    )


def with_words(ranks: tuple[Rank, ...], words: tuple[str, ...]) -> tuple[Rank, ...]:
    """These ranks with another command."""
    return tuple(replace(rank, words=words) for rank in ranks)


def with_key(key: str, port: str) -> dict[str, str]:
    """Variables of a job whose hosts share no workspace; the port is that of a name."""
    return {"TUCCL_JOB_KEY": key, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def mpirun(words: tuple[str, ...], *late: str) -> tuple[Rank, ...]:
    """Two ranks of one host, which has no mpi4py."""
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return tuple(
        Rank(
            {"OMPI_COMM_WORLD_SIZE": "2", **dict.fromkeys(names, rank)},
            words,
            ("no_mpi4py", *fates),
        )
        for rank, fates in (("0", ()), ("1", late))
    )


def over_ssh(
    workspace: str,
    backend: str,
    hosts: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    *options: str,
) -> tuple[Rank]:
    words = (*TUNE, backend, "--workspace", workspace, "--hosts", hosts, *options)
    return (Rank(dict(environment), words),)


SSH = """\
#!/bin/sh
# Stands in for ssh: a shell runs the command, and hosts are this one.
test "$1 $2" = "-o BatchMode=yes" || exit 2
shift 2
test $1 = far && { echo "ssh: connect to host far port 22: No route to host" >&2; exit 255; }
echo "$@" >> ssh.log
shift
exec sh -c "$*"
"""
SILENT_RANK = (
    "tuccl: torchrun rank 1: it did not report within 60 s over TCP to 10.0.0.1: start the command "
    "on every rank, where all hosts see one workspace, or for this host alone unset its rank's "
    "variables"
)
NO_ADDRESS = (
    "tuccl: rank 1 of {} that torchrun started: rank 0 left no address in /shared/workspace within "
    "60 s: all hosts must see that directory, or have one TUCCL_JOB_KEY"
)
IN_USE = (
    "tuccl: workspace /shared/workspace is in use by process 4711; wait for it or use another "
    "--workspace"
)
HALF_A_RANK = (
    "tuccl: which rank of how many this process is does not follow from {}: set RANK and "
    "WORLD_SIZE for each, to 0 and 1 for this host alone"
)
FEW_DEVICES = (
    "tuccl: a communicator of 4 ranks on 1 node does not fit the devices here (3): measure another "
    "shape, or start a rank for each GPU, as torchrun --nproc-per-node 4 or slots of --hosts"
)
NO_OPTION = "tuccl: No such option: --budgt (Possible options: --budget) See `tuccl init --help`."
STARTS = {
    "no MPI, and a rank that is late": Start(
        mpirun((*TUNE, "simulated", "--workspace", "late"), "is_late"), (0, 0)
    ),
    "no launcher": Start((Rank({}, (*TUNE, "simulated", "--workspace", "alone")),), (0,)),
    "no MPI, and no workspace": Start(
        mpirun(
            ("synthesize", "--topology", "box.json", "--operation", "all_gather", "--size", "1M")
        ),
        (3, 3),
        {
            0: "tuccl: started by MPI with 2 tasks, but mpi4py cannot be used (...): pip install "
            "tuccl[mpi] on every host, or start it without MPI"
        },
    ),
    "a rank that is missing": Start(torchrun("missing", "0", limit_s=0.5), (3,), {0: SILENT_RANK}),
    "rank 0 that is missing": Start(
        torchrun("leaderless", "12", 3, limit_s=0.5, rank_1="speaks_late"),
        (3, 3),
        {0: NO_ADDRESS.format(3)},
    ),
    "a workspace that is not shared": Start(
        (
            *torchrun("here", "0", limit_s=0.5),
            *torchrun("there", "1", limit_s=0.5),
        ),
        (3, 3),
        {0: SILENT_RANK, 1: NO_ADDRESS.format(2)},
        ends_together=False,
    ),
    "another release": Start(
        torchrun("releases", "01", 3, rank_0="speaks_late", rank_1="has_another_release"),
        (3, 3),
        {
            0: "tuccl: torchrun rank 1: host 1 runs TuCCL 9.9, crew 8, the leader TuCCL 0.1.0, "
            "crew 1: install the same release on both"
        },
    ),
    "another NCCL": Start(
        torchrun(
            "nccls",
            backend="nccl",
            rank_0="has_another_nccl speaks_late",
            rank_1="has_another_nccl",
        ),
        (3, 3),
        {
            0: "tuccl: ranks of different NCCLs cannot join: 2.20.3 on node0 and 2.21.3 on node1; "
            "install one version on all hosts, or name it in TUCCL_NCCL_LIBRARY"
        },
    ),
    "fewer ranks than GPUs": Start(
        torchrun("few", "012", 3, backend="sockets", rank_0="speaks_late"),
        (3, 3, 3),
        {0: FEW_DEVICES},
    ),
    "a rank on each of two hosts of two GPUs": Start(
        torchrun("hosts", backend="sockets", rank_0=f"speaks_late {ALONE}", rank_1=ALONE),
        (3, 3),
        {0: FEW_DEVICES},
    ),
    "a rank that dies": Start(
        torchrun("dies", "0123", 4, backend="sockets", rank_1="dies_when_it_is_to_start_a_worker"),
        (3, KILLED, 3, 3),
        {
            0: "tuccl: torchrun rank 1 on node0 is lost (the connection was closed): look after it "
            "and start the same command again, which continues from here"
        },
        ends_together=False,
    ),
    "rank 0 that dies": Start(
        torchrun("headless", "012", 3, rank_0="dies_when_all_have_reported"),
        (KILLED, 3, 3),
        {
            1: "tuccl: torchrun rank 1: rank 0 on 10.0.0.1 is gone, or has given this rank up: "
            "start the same command again, which continues"
        },
        ends_together=False,
    ),
    "a job's key": Start(
        (
            *torchrun("held", "0", environment=with_key(KEY, FREE), rank_0="speaks_late"),
            *torchrun("elsewhere", "1", environment=with_key(KEY, FREE)),
        ),
        (3, 3),
        {0: IN_USE},
    ),
    "another key on a host": Start(
        (
            *torchrun("here", "0", limit_s=0.5, environment=with_key(KEY, OTHER_FREE)),
            *torchrun("there", "1", limit_s=0.5, environment=with_key(KEY[1:], OTHER_FREE)),
        ),
        (3, 3),
        {
            0: SILENT_RANK.replace("where all hosts see one workspace", "with one TUCCL_JOB_KEY"),
            1: "tuccl: torchrun rank 1: cannot reach the leader at port 29500 (10.0.0.1: ...)",
        },
        ends_together=False,
    ),
    "a key and a port in use": Start(
        torchrun("here", "0", environment=with_key(KEY, IN_USE_PORT)),
        (3,),
        {
            0: "tuccl: rank 0 of 2 that torchrun started cannot listen at port 29500: Address "
            "already in use; set another MASTER_PORT on all hosts"
        },
    ),
    "a key that is short": Start(
        torchrun("here", environment=with_key("secret", FREE), rank_0="speaks_late"),
        (2, 2),
        {
            0: "tuccl: TUCCL_JOB_KEY has 6 characters: 32 at least, as from openssl rand -hex 32, "
            "the same on all hosts"
        },
    ),
    "a key and no address": Start(
        torchrun("here", environment={"TUCCL_JOB_KEY": KEY}),
        (2, 2),
        {
            0: "tuccl: TUCCL_JOB_KEY is set, but MASTER_ADDR and MASTER_PORT do not say where rank "
            "0 is to listen: set them on all hosts"
        },
    ),
    "hosts over ssh": Start(over_ssh("ssh", "simulated", "hostfile"), (0,)),
    "a host that ssh does not reach": Start(
        over_ssh("far", "nccl", "node1,far"),
        (3,),
        {
            0: "tuccl: far does not say which NCCL it has: the launcher ended with exit 255: ssh: "
            "connect to host far port 22: No route to host"
        },
    ),
    "hosts of which ssh reaches none": Start(
        over_ssh("far", "simulated", "far", {}, "--allow-missing"),
        (3,),
        {
            0: "tuccl: no host answers (far: the launcher ended with exit 255: ssh: connect "
            "to host far port 22: No route to host): mend them"
        },
    ),
    "a hostfile with another line": Start(
        over_ssh("far", "simulated", "wrong"),
        (2,),
        {0: "tuccl: hostfile line 1: 'node1 slots=-o', expected hosts and maybe slots=N"},
    ),
    "an option that does not exist": Start(
        with_words(torchrun("here", rank_0="speaks_late"), BUDGT), (2, 2), {0: NO_OPTION}
    ),
    "... on one host alone": Start(
        (*torchrun("one", "0", limit_s=5.0), Rank({"RANK": "1", "WORLD_SIZE": "2"}, BUDGT)),
        (3, 2),
        {0: SILENT_RANK, 1: NO_OPTION},
        ends_together=False,
    ),
    "... under mpirun": Start(mpirun(BUDGT), (2, 2), {0: NO_OPTION}),
    "... under srun": Start(
        tuple(Rank({**SLURM_STEP, "SLURM_PROCID": rank}, BUDGT) for rank in "01"),
        (2, 2),
        {0: NO_OPTION},
    ),
    "an option that is out of range": Start(
        with_words(torchrun("here", rank_0="speaks_late"), ("init", "--cycles", "0")),
        (2, 2),
        {0: "tuccl: --cycles 0 is out of range: use 1 to 100"},
    ),
    "another option on a rank": Start(
        (
            *torchrun("options", "0", 4, rank_0="speaks_late"),
            *with_words(torchrun("options", "1", 4), (*LARGER, "simulated", "--workspace=options")),
            *torchrun("options", "23", 4),
        ),
        (2, 2, 2, 2),
        {
            0: "tuccl: torchrun rank 1 was started with --max-size 4M where rank 0 has --max-size "
            "1M: give all ranks the same options"
        },
    ),
    "a pod of a JobSet without RANK": Start(
        tuple(Rank({"JOB_COMPLETION_INDEX": rank}, ("init",)) for rank in "01"),
        (2, 2),
        dict.fromkeys((0, 1), HALF_A_RANK.format("JOB_COMPLETION_INDEX=1")),
        ends_together=False,
    ),
    "a rank that is not of this size": Start(
        (Rank({"RANK": "2", "WORLD_SIZE": "2"}, BUDGT[:1]),),
        (2,),
        {0: HALF_A_RANK.format("RANK=2, WORLD_SIZE=2")},
    ),
    "ranks that would write one file": Start(
        with_words(torchrun("here", rank_0="speaks_late"), ("probe", "-o", "machine.json")),
        (2, 2),
        {
            0: "tuccl: torchrun started 2 ranks, and each would write machine.json: only MPI and "
            "--hosts let them do it as one; start it once, or leave the file out"
        },
    ),
    "hosts within a job": Start(
        over_ssh("far", "simulated", "hostfile", {"RANK": "0", "WORLD_SIZE": "8"}),
        (2,),
        {0: "tuccl: --hosts within 8 tasks of a launcher: start it once, or leave out the list"},
    ),
    "two jobs in one workspace": Start(torchrun("held"), (3, 3), {0: IN_USE}),
    "two jobs of one name": Start(
        (*torchrun("twice", "01", 3), *torchrun("twice", "1", 3)),
        (3, 3, 3),
        {
            0: "tuccl: torchrun rank 1 reported twice: two jobs of one name have met; give each a "
            "workspace of its own"
        },
        ends_together=False,
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str, str]]]:
    """What became of every start: exit code, standard output and standard error of each rank."""
    folder = tmp_path_factory.mktemp("starts")
    (folder / "box.json").write_text(topology_to_json(cluster(1, 4, 1)))
    (folder / "hostfile").write_text("node1 slots=2\nnode2 slots=2\n")
    (folder / "wrong").write_text("node1 slots=-o\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(SSH)
    (folder / "bin" / "ssh").chmod(0o755)
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    jobs = json.dumps(
        {
            name: {"ranks": [*map(asdict, start.ranks)], "ends_together": start.ends_together}
            for name, start in STARTS.items()
        }
    )
    with (
        Workspace(folder / "held").lock("0123456789abcdef"),
        socket.create_server(("", 0)) as listening,
        socket.socket() as free,
        socket.socket() as other_free,
    ):
        # Bound and not listening: others that ask for a port do not get these, and ranks do.
        for reserved in (free, other_free):
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("", 0))
        for word, at in ((OTHER_FREE, other_free), (FREE, free), (IN_USE_PORT, listening)):
            jobs = jobs.replace(f'"{word}"', f'"{at.getsockname()[1]}"')
        done = subprocess.run(
            [sys.executable, "-m", "tests.tuccl.crew.started_ranks"],
            input=jobs, capture_output=True, text=True, cwd=folder, timeout=120,
            env={"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT)},
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[tuple[int, str, str]]] = json.loads(done.stdout)
    found["what ssh was given"] = [(0, (folder / "ssh.log").read_text(), "")]
    return found


def test_all_launchers_make_the_table_of_one_process(
    outcomes: dict[str, list[tuple[int, str, str]]],
) -> None:
    (_, first, _), (_, second, _) = outcomes["no MPI, and a rank that is late"]
    ((_, alone, _),), ((_, over_ssh, _),) = outcomes["no launcher"], outcomes["hosts over ssh"]
    tables = [json.loads(text)["keys"] for text in (alone, first, over_ssh)]
    assert tables[0] == tables[1] == tables[2]
    assert second == ""


def test_one_ssh_a_host_and_no_key_on_its_command_line(
    outcomes: dict[str, list[tuple[int, str, str]]],
) -> None:
    ((_, log, _),) = outcomes["what ssh was given"]
    process = f"{sys.executable} -P -m tuccl.crew.worker host"
    started = log.splitlines()
    assert set(started) == {f"node1 {process}", f"node2 {process}"}
    assert started.count(f"node2 {process}") == 1


def test_a_rank_alone_on_its_host_takes_all_gpus_there(
    outcomes: dict[str, list[tuple[int, str, str]]],
) -> None:
    ((_, _, errors), _) = outcomes["a rank on each of two hosts of two GPUs"]
    assert "does not fit the devices here (2 + 2)" in errors


def as_in_the_guide(errors: str) -> str:
    """The line of an error, with the guide's names for what differs from host to host."""
    (line,) = (line for line in errors.splitlines() if line.startswith("tuccl: "))
    for here, there in (
        (r"\d+\.\d+\.\d+\.\d+", "10.0.0.1"),
        (r"within [\d.]+ s", "within 60 s"),
        (r"(?<=left no address in )\w+", "/shared/workspace"),
        (r"(?<=workspace )held", "/shared/workspace"),
        (r"(?<=process )\d+", "4711"),
        (r"(?<=COMPLETION_INDEX=)\d", "1"),
        (r"(?<=at port )\d+", "29500"),
        (r"(?<=^tuccl: )wrong", "hostfile"),
        (r"(?<=29500 \(10\.0\.0\.1: )[^)]*", "..."),
        (r"(?<=be used \().*?(?=\): pip)", "..."),
        (r"(?<=rank 1 on )(?=\S+ is lost)\S+", "node0"),
        (r"(?<=devices here \()[\d +]+", "3"),
        (re.escape(VERSION), "TuCCL 0.1.0, crew 1"),
        (r"(?<=is lost \().*?(?=\): look)", "the connection was closed"),
    ):
        line = re.sub(here, there, line)
    return line


@pytest.mark.parametrize("name", STARTS)
def test_a_wrong_start_has_its_line_and_exit_code(
    outcomes: dict[str, list[tuple[int, str, str]]], name: str
) -> None:
    start, found = STARTS[name], outcomes[name]
    for rank, (code, _, errors) in enumerate(found):
        is_ended_early = start.ends_together and rank not in start.lines and code == -signal.SIGTERM
        assert code == start.codes[rank] or is_ended_early, found
        if code == 0 and rank == 0:
            assert "written to " in errors
        elif rank in start.lines:
            assert as_in_the_guide(errors) == start.lines[rank]
        elif name != "two jobs of one name":
            assert errors == ""


@pytest.mark.parametrize(
    "line", sorted({line for start in STARTS.values() for line in start.lines.values()})
)
def test_the_guide_has_the_line(line: str) -> None:
    said = line.removeprefix("tuccl: ")
    quoted = f"`` {said} ``" if "`" in said else f"`{said}`"
    assert quoted in GUIDE.read_text(encoding="utf-8")
