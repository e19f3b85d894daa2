"""Which cores a process stays on whose node is faked: real nodes share none.

Over TCP on loopback all ranks' proxies run on one host's cores. Where the system puts them differs
from start to start, and with it what a call takes: on four H200 as two nodes stock NCCL against
itself by 0.77 to 1.19, with each rank on a share of its own by 0.93 to 1.16.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SHARE_VARIABLE = "TUCCL_WORKER_SHARE"
"""`2/4`: the third of four equal shares."""


def share_variable(number: int, shares: int) -> dict[str, str]:
    """What makes a worker keep to one of so many shares."""
    return {SHARE_VARIABLE: f"{number}/{shares}"}


def keep_to_told_share(environment: Mapping[str, str] = os.environ) -> None:
    """Keep this process to the share that its environment names, if it names one."""
    number, _, shares = environment.get(SHARE_VARIABLE, "").partition("/")
    if number.isdecimal() and shares.isdecimal():
        keep_to_share(int(number), int(shares))


def keep_to_share(number: int, shares: int) -> list[int]:
    """Keep this process, with all threads that it will start, on one of so many shares.

    Returns:
        The cores of that share; none where there are fewer cores than shares: then the process
        stays where it is.
    """
    cores = sorted(os.sched_getaffinity(0))
    if not 0 <= number < shares <= len(cores):
        return []
    share = cores[number * len(cores) // shares : (number + 1) * len(cores) // shares]
    os.sched_setaffinity(0, share)
    return share
