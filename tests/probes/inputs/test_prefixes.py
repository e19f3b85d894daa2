"""What stands before lines of launched programs: each reader takes what the log's reader takes."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.files.read import machine_from_bytes, shipped_machines
from probes.inputs.prefixes import bare_line, without_prefixes
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.measuring.calibration.nccl_tests import parse_nccl_tests
from tuccl.workloads.recordings.importing import import_recordings

PREFIXES = (
    "0: ", "  0: ", "12: ", "[1,0]<stdout>:", "[1,12]<stderr>:",
    "[prterun-node1-4@1,0]<stdout>: ", "[rank0]:", "[rank0]: ", "[default3]:", "[0] ",
    "[pod/train-0/pytorch] ", "[train-worker-x7k2p] ", "train-worker-0 pytorch ", "worker-1  | ",
    "2026-11-27T03:43:38.123456789Z ", "2026-11-27T03:43:38.123456789+01:00 stdout F ",
    "[2026-11-27 03:43:38] ", "Nov 27 03:43:38 node-1 tuccl-job[123]: ",
    "2026-11-27T03:43:38+0000 node1 slurmstepd[9]: ", "\x1b[36m", "\x1b[1;32m0: \x1b[0m",
)  # fmt: skip
NCCL_TESTS = """\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 4194304 step: 64(factor) graph: 0
#
#  Rank  0 Group  0 Pid   10 on      hosta device  0 [0000:41:00] GPU
#  Rank  1 Group  0 Pid   11 on      hosta device  1 [0000:44:00] GPU
#       size         count      type   redop    root     time   algbw   busbw #wrong
        1024           256     float     sum      -1    20.00    0.05    0.05      0
     4194304       1048576     float     sum      -1    40.00  104.86  104.86      0
"""
MATRIX = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPIX\t0-31\t0
GPU1\tNV4\t X \tSYS\t32-63\t1
NIC0\tPIX\tSYS\t X \t\t

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_0
"""
LSPCI = """\
0000:00:01.0 PCI bridge [0604]: Intel Corporation Device [8086:347a] (rev 04)
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)

0000:01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)
"""
LOG = "".join(
    f"node{rank}:{40 + rank}:{60 + rank} [{rank}] NCCL INFO {words}\n"
    for words in (
        (
            "ncclCommInitRank comm 0xa rank {rank} nranks 2 cudaDev {rank} nvmlDev 0 busId 1 "
            "commId 0xf - Init COMPLETE"
        ),
        (
            "AllReduce: opCount 0 sendbuff 0x1000 recvbuff 0x1000 count 1024 datatype 7 op 0 "
            "root 0 comm 0xa [nranks=2] stream 0x9"
        ),
    )
    for rank in range(2)
    for words in [words.replace("{rank}", str(rank))]
)
INSPECTOR = "".join(
    json.dumps(
        {
            "header": {"id": "0xa", "rank": rank, "n_ranks": 2, "nnodes": 1},
            "metadata": {"hostname": "h", "pid": rank},
            "coll_perf": {"coll": "AllReduce", "coll_sn": 0, "coll_msg_size_bytes": 4096},
        }
    )
    + "\n"
    for rank in range(2)
)


def docker(text: str) -> str:
    """Lines as Docker's json-file driver keeps them."""
    return "".join(
        json.dumps({"log": line, "stream": "stdout", "time": "2026-11-27T03:43:38.1Z"},
                   separators=(",", ":")) + "\n"
        for line in text.splitlines(keepends=True)
    )  # fmt: skip


def workload(text: str) -> object:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_text(text)
        found = import_recordings([path], None, None, lambda *_: None).workload
    return found.calls, found.ranks, found.nodes, found.source.kind, found.source.left_out


def machine(text: str) -> object:
    return machine_from_bytes(text.encode(), "machine")


READERS: tuple[tuple[Callable[[str], object], str], ...] = (
    (lambda text: parse_nccl_tests(text, "output"), NCCL_TESTS),
    (machine, MATRIX),
    (machine, LSPCI),
    (machine, shipped_machines()["a100-8gpu-8nic"].read_text()),
    (workload, LOG),
    (workload, INSPECTOR),
)
NAMES = ("nccl-tests", "nvidia-smi", "lspci", "nccl-xml", "nccl-log", "inspector")


@pytest.mark.parametrize(("read", "text"), READERS, ids=NAMES)
@given(st.lists(st.sampled_from(PREFIXES), max_size=3), st.booleans())
def test_prefixes_however_stacked_change_nothing(
    read: Callable[[str], object], text: str, stacked: list[str], in_json: bool
) -> None:
    given = "".join("".join(stacked) + line for line in text.splitlines(keepends=True))
    assert read(docker(given) if in_json else given) == read(text)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_form_is_known_and_alone(prefix: str) -> None:
    text = "".join(f"{prefix}{word}\n" for word in ("size  time", "", "\t8  20.5"))
    assert without_prefixes(text) == "size  time\n\n\t8  20.5\n"


def test_a_text_whose_lines_have_none_is_left_as_it_is() -> None:
    for path in shipped_machines().values():
        text = path.read_text()
        assert without_prefixes(text) is text
    for _, text in READERS:
        assert without_prefixes(text) is text
    for text in ("", "\n", "0000:01:00.0 VGA\n", '{"log": 1}\n', "1\n2\n3\n", "a-1 b\n"):
        assert without_prefixes(text) == text


@given(
    st.lists(st.sampled_from([*PREFIXES, "\x1b", "\x1b]", "\x1b[", "é", '{"log":"', "\\u", "\\"]))
)
def test_any_line_comes_to_an_end(pieces: list[str]) -> None:
    line = "".join(pieces).encode()
    assert bare_line(bare_line(line)) == bare_line(line)


@pytest.mark.parametrize(
    "line", [b"\x1b", b"\x1b\n", b"a\x1b\xff", b'{"log":"\\u12","stream":"stdout"}']
)
def test_what_is_no_form_stays(line: bytes) -> None:
    assert bare_line(line) == line


@requires_shared_data
def test_public_outputs_of_srun_are_read() -> None:
    path = SHARED_DATA / "public_cases" / "nccltests-srun-label.out"
    run = parse_nccl_tests(path.read_text(), path.name)
    assert (len(run.times_us), run.ranks, run.left_out) == (11, 16, 0)
    assert (run.times_us[0][1], run.times_us[-1][1]) == (215.3, 103530.0)


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_a_line_of_json_file_with_any_bytes_is_read_or_stays(log: bytes, rest: bytes) -> None:
    bare_line(b'{"log":"' + log + b'","stream":"stdout"' + rest + b"}")
