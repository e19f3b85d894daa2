"""The spaces of the backends: `nccl`, `executor` and the paper's Table IV.

The ranges of NCCL's parameters are from NCCL 2.28 to 2.32 (`src/include/comm.h`, `src/enqueue.cc`,
`src/graph/tuning.cc`): NCCL_NTHREADS 64 to 512 by 32, for Ring and Tree under LL and Simple; LL128
has a variable of its own and gains nothing from fewer threads; NCCL_BUFFSIZE is the buffer of
Simple; at most 64 channels, 32 before 2.27; PAT has Simple alone, and only one rank per node.
"""

from __future__ import annotations

from collections.abc import Sequence

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tuccl.search.trials.config import DEFAULT_ALGORITHM, PHASES_PREFIX, SCHEDULE_PREFIX
from tuccl.search.trials.space import Family, Knob, Space

KIB = 1 << 10
MIB = 1 << 20

_LL, _LL128, _SIMPLE = (protocol.value for protocol in NcclProtocol)
_CHANNELS = (1, 2, 4, 8, 16, 24, 32, 64)
_SOME_THREADS = (64, 128, 192, 256, 384, 0)
_THREADS = {_LL: _SOME_THREADS, _LL128: (0,), _SIMPLE: _SOME_THREADS}
"""0 is NCCL's own count, 512: it stands last on the axis."""
_BUFFERS = {_LL: (0,), _LL128: (0,), _SIMPLE: (1 * MIB, 0, 16 * MIB)}
"""0 is NCCL's own size, 4 MiB: it stands where 4 MiB would."""
MIN_CHANNELS = (0, 32, 64)
"""NCCL_MIN_NCHANNELS: its own count, or as many as every size may use."""
_BETWEEN_CHANNELS = (24, 28, 40, 48, 56)
SOCKET_THREADS = Knob(((), (("NCCL_NSOCKS_PERTHREAD", 1), ("NCCL_SOCKET_NTHREADS", 1))))
"""Where ranks talk over TCP: a thread of its own for a socket, instead of the proxy's. On four H200
with two faked nodes all_reduce of 16 MB took 1.7 times less, of 1 KB 1.5 times more."""
KNOBS = (SOCKET_THREADS,)
"""Further variables of the process that a race may turn, each where `backend_choice.builtins_of`
says that it can matter: the user's environment must set none of them. The value `()` is NCCL's
own; values stand in ascending effect."""

_EXECUTOR_THREADS = {_LL: (64, 128, 256, 512), _LL128: (128, 256, 512), _SIMPLE: (128, 256, 512)}
"""Threads of the interpreter, at most 512 (`tuccl/runtime/executor/program_staging.h`)."""
_LL_UP_TO = 256 * KIB
"""Largest calls whose kernels inside nodes are worth trying with LL, which doubles their bytes."""
_LL128_FROM = 16 * KIB
UNSLICED = 1024 * MIB
"""Largest slice of a schedule across hosts: calls of so many bytes run in one piece."""


def nccl_families(
    operation: Collective,
    shape: Shape | None = None,
    *,
    ll128: bool = True,
    min_nchannels: tuple[int, ...] = (0,),
) -> tuple[Family, ...]:
    """Built-in algorithms that NCCL has for an operation.

    Args:
        operation: The collective.
        shape: Communicator shape, which decides whether PAT exists; None if it does not.
        ll128: Whether the links keep 128 bytes in order (NVLink does; NCCL's own table tells).
        min_nchannels: Values to try.
    """
    one_per_node = shape is not None and shape.ranks_per_node == 1
    algorithms = [NcclAlgorithm.RING] if operation.asks_tuner else []
    if operation is Collective.ALL_REDUCE:
        algorithms.append(NcclAlgorithm.TREE)
    elif operation.asks_tuner and operation.divides:
        algorithms.append(NcclAlgorithm.PAT)
    return tuple(
        Family(algorithm.value, protocol, _CHANNELS, threads, _BUFFERS[protocol], min_nchannels)
        for algorithm in algorithms
        for protocol, threads in _THREADS.items()
        if (algorithm is not NcclAlgorithm.PAT or (protocol == _SIMPLE and one_per_node))
        and (protocol != _LL128 or ll128)
    )


def default_family(min_nchannels: tuple[int, ...] = (0,)) -> Family:
    """NCCL's own choice under every process profile of the built-ins."""
    return Family(DEFAULT_ALGORITHM, "", (0,), _THREADS[_SIMPLE], _BUFFERS[_SIMPLE], min_nchannels)


def nccl_space(
    operation: Collective,
    shape: Shape | None = None,
    *,
    ll128: bool = True,
    min_nchannels: tuple[int, ...] = MIN_CHANNELS,
    knobs: tuple[Knob, ...] = (),
) -> Space:
    """The joint space of stock NCCL: what is chosen per call and per process, and its own choice.

    Where the tuner interface does not reach, its own choice alone, under the process profiles that
    other operations bring into a race.

    Args:
        operation: The collective.
        shape: Communicator shape.
        ll128: See `nccl_families`.
        min_nchannels: Values to try.
        knobs: The `KNOBS` that can matter.
    """
    families = nccl_families(operation, shape, ll128=ll128, min_nchannels=min_nchannels)
    return Space(
        "nccl",
        (default_family(min_nchannels), *families),
        between_min_nchannels=_BETWEEN_CHANNELS if len(min_nchannels) > 1 else (),
        knobs=knobs,
    )


def stock_space() -> Space:
    """NCCL as it is, for runs that choose nothing of it."""
    return Space("nccl", (Family(DEFAULT_ALGORITHM, "", (0,), (0,), (0,)),))


def executor_families(schedules: Sequence[str], *, ll128: bool = True) -> tuple[Family, ...]:
    """Schedules, by content hash, under every protocol; `ll128` as for `nccl_families`."""
    buffers = tuple(64 * KIB << i for i in range(8))
    return tuple(
        Family(f"{SCHEDULE_PREFIX}{schedule}", protocol, (1, 2, 4, 8, 16, 32, 64), threads, buffers)
        for schedule in schedules
        for protocol, threads in _EXECUTOR_THREADS.items()
        if protocol != _LL128 or ll128
    )


def pattern_families(schedules: Sequence[str], *, ll128: bool = True) -> tuple[Family, ...]:
    """Schedules, by content hash, for which the executor has a dedicated kernel.

    Channels are thread blocks there, and staging has one size; `ll128` as for `nccl_families`.
    """
    return tuple(
        Family(
            f"{SCHEDULE_PREFIX}{schedule}",
            protocol,
            (1, 2, 4, 8, 16, 32, 64),
            (128, 256, 512, 1024),
            (64 * KIB,),
        )
        for schedule in schedules
        for protocol in ((_LL, _LL128) if ll128 else (_LL,))
    )


def phased_families(
    schedule: str,
    size_bytes: int,
    slices: tuple[int, ...],
    *,
    in_rounds: bool = False,
    has_kernels: bool = True,
    ll128: bool = True,
) -> tuple[Family, ...]:
    """A schedule across hosts, by content hash.

    Args:
        schedule: The content hash.
        size_bytes: Size of the calls.
        slices: Sizes of slices, its buffer sizes; without any there is no family.
        in_rounds: Whether it runs in stages and rounds, rather than in phases.
        has_kernels: Whether it runs kernels inside nodes, which have protocols and channels.
        ll128: See `nccl_families`.
    """
    if not slices:
        return ()
    name = f"{PHASES_PREFIX}{schedule}"
    if not has_kernels:
        return (Family(name, _LL, (16,), (512,), slices),)
    protocols = [_LL] if size_bytes <= _LL_UP_TO or not ll128 else []
    protocols += [_LL128] if size_bytes >= _LL128_FROM and ll128 else []
    channels = (8, 16, 32, 64) if in_rounds else (4, 8, 16, 32)
    if size_bytes <= _LL_UP_TO:
        channels = (1, 2, 4, 8)
    return tuple(Family(name, protocol, channels, (256, 512), slices) for protocol in protocols)
