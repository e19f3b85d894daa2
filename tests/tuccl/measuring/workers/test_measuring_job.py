"""scripts/check/measuring_job.py: how the processes of a job ended."""

import subprocess
import sys
import time

import pytest
from measuring_job import TAKEN_OUT, wait_for_all, without_tables


def started(*programs: str) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([sys.executable, "-c", program]) for program in programs]


@pytest.mark.long
def test_it_says_of_each_process_how_it_ended() -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    processes = started(crash, "raise SystemExit(3)", "pass", "import time; time.sleep(60)")
    begin = time.monotonic()
    assert wait_for_all(processes, begin + 30) == [
        "died of SIGSEGV",
        "ended with code 3",
        "ended with code 0",
        "hung",
    ]
    assert time.monotonic() - begin < 20


def test_a_job_inherits_nothing_of_a_table() -> None:
    assert {"NCCL_ALGO", "NCCL_PROTO", "NCCL_TUNER_PLUGIN", "NCCL_MIN_CTAS"} <= TAKEN_OUT
    profile = dict.fromkeys(TAKEN_OUT, "1") | {"TUCCL_BUNDLE": "b", "NCCL_DEBUG": "WARN"}
    profile |= {"NCCL_CROSS_NIC": "1", "TUCCL_PROFILE": "NCCL_BUFFSIZE NCCL_CROSS_NIC"}
    preload = {"LD_PRELOAD": "/a/other.so:/b/libtuccl-executor.so third.so"}
    assert without_tables(profile | preload) == {
        "NCCL_DEBUG": "WARN",
        "LD_PRELOAD": "/a/other.so third.so",
    }
    assert without_tables({"LD_PRELOAD": "/b/libtuccl-executor.so"}) == {}
