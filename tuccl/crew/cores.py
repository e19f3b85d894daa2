"""Cores of workers: shares for processes of faked nodes, and what a rank's lanes need.

Real nodes share no cores. Over TCP on loopback all ranks' proxies run on one host's cores. Their
placement differs from start to start, and with it the time of a call: on four H200 as two nodes
stock NCCL against itself by 0.77 to 1.19, with each rank on a share of its own by 0.93 to 1.16.

Each lane of a rank has a thread of NCCL's that polls the network. With more of these threads than
cores, one that has data waits for others that have none until the kernel's next tick, in each of a
call's slices: calls that were fast while nothing else ran took up to ten times as long in a job
(docs/lab/across-hosts.md).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from tuccl.crew.started_rank import whole_number

SHARE_VARIABLE = "TUCCL_WORKER_SHARE"
"""`2/4`: the third of four equal shares."""
_CORES_BESIDE_LANES = 2
"""Threads of a rank that compute or wait for the device beside its lanes: the job's own, and one
for the rest, such as the network thread of another communicator; as in the executor's cores.h."""


def lanes_on(ranks: Sequence[tuple[str, frozenset[int]]]) -> int:
    """Return the most lanes that each rank's share of its cores can drive, at least one.

    Args:
        ranks: Each rank's host and the cores on which it may run; ranks with the same share them.
    """
    sharers = Counter(ranks)
    share = min((len(rank[1]) // sharers[rank] for rank in ranks), default=0)
    return max(1, share - _CORES_BESIDE_LANES)


def cores_for(lanes: int) -> int:
    """Return the cores that a rank needs to drive so many lanes."""
    return lanes + _CORES_BESIDE_LANES


def own_cores() -> frozenset[int]:
    """Return the cores on which this process may run."""
    return frozenset(os.sched_getaffinity(0))


def share_variable(number: int, shares: int) -> dict[str, str]:
    """Return the variable that binds a worker to one of `shares` shares."""
    return {SHARE_VARIABLE: f"{number}/{shares}"}


def bind_to_named_share(environment: Mapping[str, str] = os.environ) -> None:
    """Bind this process and all threads that it will start to the share that is named, if any.

    With fewer cores than shares it stays unbound.
    """
    number, _, shares = map(whole_number, environment.get(SHARE_VARIABLE, "").partition("/"))
    cores = sorted(own_cores())
    if number < shares <= len(cores):
        share = cores[number * len(cores) // shares : (number + 1) * len(cores) // shares]
        os.sched_setaffinity(0, share)
