"""Core sets for processes of faked nodes: real nodes share no cores.

Over TCP on loopback all ranks' proxies run on one host's cores. Their placement differs
from start to start, and with it the time of a call: on four H200 as two nodes stock NCCL against
itself by 0.77 to 1.19, with each rank on a share of its own by 0.93 to 1.16.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SHARE_VARIABLE = "TUCCL_WORKER_SHARE"
"""`2/4`: the third of four equal shares."""


def share_variable(number: int, shares: int) -> dict[str, str]:
    """Return the variable that binds a worker to one of `shares` shares."""
    return {SHARE_VARIABLE: f"{number}/{shares}"}


def bind_to_named_share(environment: Mapping[str, str] = os.environ) -> None:
    """Bind this process to the share that its environment names, if any."""
    number, _, shares = environment.get(SHARE_VARIABLE, "").partition("/")
    if number.isdecimal() and shares.isdecimal():
        bind_to_share(int(number), int(shares))


def bind_to_share(number: int, shares: int) -> list[int]:
    """Bind this process and all threads that it will start to one of `shares` shares.

    Returns:
        The cores of that share; none with fewer cores than shares: then the process stays unbound.
    """
    cores = sorted(os.sched_getaffinity(0))
    if not 0 <= number < shares <= len(cores):
        return []
    share = cores[number * len(cores) // shares : (number + 1) * len(cores) // shares]
    os.sched_setaffinity(0, share)
    return share
