"""The spaces of the backends: `nccl`, `executor` and the paper's Table IV.

What holds per process comes from the catalogue of variables. The ranges of NCCL's parameters are
from NCCL 2.28 to 2.32 (`src/include/comm.h`, `src/enqueue.cc`, `src/graph/tuning.cc`):
NCCL_NTHREADS 64 to 512 by 32, for Ring and Tree under LL and Simple; LL128 has a variable of its
own and gains nothing from fewer threads; NCCL_BUFFSIZE is the buffer of Simple; at most 64
channels, 32 before 2.27; PAT has Simple alone, and only one rank per node. Which algorithms NCCL
allows on a machine it tells itself (`tuccl.search.trials.cost_table`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lookup_tables.collective import Collective
from lookup_tables.lookup import WITH_CHUNKS, bounds_channels
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tuccl.search.trials.catalogue import axis_knobs, multicast_variables
from tuccl.search.trials.config import (
    AXIS_VARIABLES,
    DEFAULT_ALGORITHM,
    PHASES_PREFIX,
    SCHEDULE_PREFIX,
)
from tuccl.search.trials.cost_table import Pair
from tuccl.search.trials.space import Family, Knob, Space, ascending

KIB = 1 << 10
MIB = 1 << 20

_LL, _LL128, _SIMPLE = (protocol.value for protocol in NcclProtocol)
_CHANNELS = (1, 2, 4, 8, 16, 24, 32, 64)
_NVLS_CHANNELS = (2, 4, 8, 16, 24, 32)
"""NCCL bounds a tuner's count by the channels that it opened for multicast: 16 on Hopper, 24 or 32
on Blackwell."""
_NVLS = (NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE)
_WITH_THREADS = (NcclAlgorithm.RING, NcclAlgorithm.TREE)

_EXECUTOR_THREADS = {_LL: (64, 128, 256, 512), _LL128: (128, 256, 512), _SIMPLE: (128, 256, 512)}
"""Threads of the interpreter, at most 512 (`tuccl/runtime/executor/program_staging.h`)."""
_LL_UP_TO = 256 * KIB
"""Largest calls whose kernels inside nodes are worth trying with LL, which doubles their bytes."""
_LL128_FROM = 16 * KIB
_CHUNKS = (32 * KIB, 128 * KIB)
_CHUNKS_OF_RINGS = (*_CHUNKS, 512 * KIB)
"""Chunks below NCCL's own under Simple: an eighth of the buffer, 512 KB by default, and four times
as much in rings that work on a chunk of each rank at once (`src/enqueue.cc`, NCCL 2.30). Under LL
and LL128 NCCL's own are small."""
_CHANNELS_OF_A_CALL = 4
"""So many channels share a call at least, unless it is small."""
UNSLICED = 1024 * MIB
"""Largest slice of a schedule across hosts: calls of so many bytes run in one piece."""


def allowed_on_most(
    operation: Collective, shape: Shape | None = None, *, ll128: bool = True
) -> tuple[Pair, ...]:
    """Algorithms and protocols that NCCL allows on most machines, where it does not tell.

    Args:
        operation: The collective.
        shape: Communicator shape, which decides whether PAT exists; None if it does not.
        ll128: Whether the links keep 128 bytes in order, as NVLink does.
    """
    if not operation.asks_tuner:
        return ()
    algorithms = [NcclAlgorithm.RING]
    if operation is Collective.ALL_REDUCE:
        algorithms.append(NcclAlgorithm.TREE)
    pairs = [
        (algorithm, protocol)
        for algorithm in algorithms
        for protocol in NcclProtocol
        if protocol is not NcclProtocol.LL128 or ll128
    ]
    if operation.divides and shape is not None and shape.ranks_per_node == 1:
        pairs.append((NcclAlgorithm.PAT, NcclProtocol.SIMPLE))
    return tuple(pairs)


def nccl_families(
    operation: Collective,
    shape: Shape | None = None,
    *,
    ll128: bool = True,
    allowed: Sequence[Pair] | None = None,
    knobs: Sequence[Knob] = (),
    chunks_of_bytes: int = 0,
) -> tuple[Family, ...]:
    """Built-in algorithms that NCCL has for an operation.

    Args:
        operation: The collective.
        shape: Communicator shape.
        ll128: See `allowed_on_most`.
        allowed: What NCCL's own cost table allows; None: it is not known.
        knobs: Variables of the process, whose values are axes where fields of `Config` hold them.
        chunks_of_bytes: Size of the calls whose chunks may be chosen; 0: those of none.
    """
    pairs = allowed_on_most(operation, shape, ll128=ll128) if allowed is None else allowed
    nodes = 1 if shape is None else shape.nodes
    return tuple(
        replace(
            _builtin_family(*pair, knobs, nodes),
            chunk_bytes=_chunks(*pair, operation, shape, chunks_of_bytes),
        )
        for pair in pairs
    )


def _chunks(
    algorithm: NcclAlgorithm,
    protocol: NcclProtocol,
    operation: Collective,
    shape: Shape | None,
    size_bytes: int,
) -> tuple[int, ...]:
    """Sizes that cut a channel's part of a call into several chunks, then NCCL's own."""
    if shape is None or protocol is not NcclProtocol.SIMPLE or algorithm not in WITH_CHUNKS:
        return (0,)
    in_steps = algorithm is NcclAlgorithm.RING and not operation.has_root
    sizes = _CHUNKS_OF_RINGS if in_steps else _CHUNKS
    part_bytes = size_bytes // (_CHANNELS_OF_A_CALL * (shape.ranks if in_steps else 1))
    return (*(size for size in sizes if size < part_bytes), 0)


def _builtin_family(
    algorithm: NcclAlgorithm, protocol: NcclProtocol, knobs: Sequence[Knob], nodes: int
) -> Family:
    """One allowed pair, with the parameters that NCCL heeds there."""
    heeds_threads = algorithm in _WITH_THREADS and protocol is not NcclProtocol.LL128
    heeds_buffer = algorithm not in _NVLS and protocol is NcclProtocol.SIMPLE
    # Where NCCL takes any count of a tuner, tables have none, so that none is varied.
    own_count = not bounds_channels(algorithm, nodes)
    channels = _NVLS_CHANNELS if algorithm in _NVLS else _CHANNELS
    return Family(
        algorithm.value,
        protocol.value,
        (0,) if own_count else channels,
        _axis("nthreads", knobs) if heeds_threads else (0,),
        _axis("buffer_bytes", knobs) if heeds_buffer else (0,),
        _axis("min_nchannels", knobs),
    )


def default_family(knobs: Sequence[Knob]) -> Family:
    """NCCL's own choice under every process profile of the built-ins."""
    threads, buffers, channels = (_axis(field, knobs) for field in AXIS_VARIABLES)
    return Family(DEFAULT_ALGORITHM, "", (0,), threads, buffers, channels)


def _axis(field: str, knobs: Sequence[Knob]) -> tuple[int, ...]:
    """The values of the knob that a field of `Config` holds; 0 is NCCL's own."""
    (values,) = [k.values for k in knobs if k.variables == {AXIS_VARIABLES[field]}] or [((),)]
    return ascending(field, (int(value[0][1]) if value else 0 for value in values))


def nccl_space(
    operation: Collective,
    shape: Shape | None = None,
    *,
    ll128: bool = True,
    allowed: Sequence[Pair] | None = None,
    knobs: Sequence[Knob] | None = None,
    chunks_of_bytes: int = 0,
) -> Space:
    """The joint space of stock NCCL: what is chosen per call and per process, and its own choice.

    Where the tuner interface does not reach, its own choice alone, under the process profiles that
    other operations bring into a race.

    Args:
        operation: The collective.
        shape: Communicator shape.
        ll128: See `allowed_on_most`.
        allowed: See `nccl_families`.
        knobs: Variables of the process to turn; None: those that matter on every machine. Those of
            NVLS are left out where NCCL does not allow it, unless they were asked for.
        chunks_of_bytes: See `nccl_families`.
    """
    turned = axis_knobs() if knobs is None else knobs
    if not any(algorithm in _NVLS for algorithm, _ in allowed or ()):
        turned = [k for k in turned if k.is_asked or not k.variables & multicast_variables()]
    axes = [{name} for name in AXIS_VARIABLES.values()]
    families = nccl_families(
        operation,
        shape,
        ll128=ll128,
        allowed=allowed,
        knobs=turned,
        chunks_of_bytes=chunks_of_bytes,
    )
    return Space(
        "nccl",
        (default_family(turned), *families),
        between_min_nchannels=tuple(int(pair[1]) for k in turned for (pair,) in k.between),
        knobs=tuple(knob for knob in turned if knob.variables not in axes),
    )


def stock_space() -> Space:
    """NCCL as it is, for runs that choose nothing of it."""
    return Space("nccl", (Family(DEFAULT_ALGORITHM, "", (0,), (0,), (0,)),))


def executor_families(schedules: Sequence[str], *, ll128: bool = True) -> tuple[Family, ...]:
    """Schedules, by content hash, under every protocol; `ll128` as for `allowed_on_most`."""
    buffers = tuple(64 * KIB << i for i in range(8))
    return tuple(
        Family(f"{SCHEDULE_PREFIX}{schedule}", protocol, (1, 2, 4, 8, 16, 32, 64), threads, buffers)
        for schedule in schedules
        for protocol, threads in _EXECUTOR_THREADS.items()
        if protocol != _LL128 or ll128
    )


def pattern_families(schedules: Sequence[str], *, ll128: bool = True) -> tuple[Family, ...]:
    """Schedules, by content hash, for which the executor has a dedicated kernel.

    Channels are thread blocks there, and staging has one size; `ll128` as for `allowed_on_most`.
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
        ll128: See `allowed_on_most`.
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
