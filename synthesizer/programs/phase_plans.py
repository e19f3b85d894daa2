"""The schedules across hosts that are known, for any number of nodes of equal size.

Each crosses the network on all rails at once, so that every NIC carries an equal share. Chunks that
are inside the node already go there by the executor's kernels.
"""

from __future__ import annotations

from lookup_tables.collective import Collective
from lookup_tables.program_header import MOST_KERNEL_RANKS
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from synthesizer.ir.algorithm import Buffer
from synthesizer.programs.layout import MOST_LANES, MOST_NODES, Pattern, PhaseKind
from synthesizer.programs.phases import LANES_MARK, RAILS_MARK, CallPhase, PhasedSchedule, Place
from tuccl.errors import NoProgramError

_ALL_REDUCE, _ALL_GATHER = Collective.ALL_REDUCE, Collective.ALL_GATHER
_REDUCE_SCATTER, _ALLTOALL = Collective.REDUCE_SCATTER, Collective.ALLTOALL
_INPUT, _OUTPUT = Place(Buffer.INPUT, 0), Place(Buffer.OUTPUT, 0)


def phased_plans(
    collective: Collective, nodes: int, local_ranks: int
) -> tuple[PhasedSchedule, ...]:
    """Return the plans of a collective; none where NCCL's own call is the only way."""
    if not (2 <= nodes <= MOST_NODES and 1 <= local_ranks <= MOST_KERNEL_RANKS):
        return ()
    plans = {
        _ALL_REDUCE: _all_reduce_plans,
        _ALL_GATHER: _all_gather_plans,
        _REDUCE_SCATTER: _reduce_scatter_plans,
        _ALLTOALL: _alltoall_plans,
    }
    return plans[collective](nodes, local_ranks) if collective in plans else ()


def plan_by_name(collective: Collective, name: str, nodes: int, local_ranks: int) -> PhasedSchedule:
    """Return the plan of this name, which may end with its lanes and a configuration of its rails.

    Raises:
        NoProgramError: There is none.
    """
    plans = phased_plans(collective, nodes, local_ranks)
    spread, mark, rails = name.partition(RAILS_MARK)
    own, times, lanes = spread.partition(LANES_MARK)
    for plan in plans:
        if plan.name == own:
            laned = plan.with_lanes(_lanes(name, lanes)) if times else plan
            return laned.with_rails(_rails(name, rails)) if mark else laned
    names = ", ".join(plan.name for plan in plans) or "none"
    raise NoProgramError(
        f"{collective} on {nodes} nodes of {local_ranks} ranks has no plan {name!a}; known: {names}"
    )


def _lanes(name: str, text: str) -> int:
    if text not in map(str, range(2, MOST_LANES + 1)):
        raise NoProgramError(f"{name!a}: {text!a} is not a number of lanes, 2 to {MOST_LANES}")
    return int(text)


def _rails(name: str, words: str) -> BuiltinConfig:
    try:
        algorithm, protocol, nchannels = words.split("-")
        return BuiltinConfig(NcclAlgorithm(algorithm), NcclProtocol(protocol), int(nchannels))
    except ValueError as error:
        raise NoProgramError(
            f"{name!a}: {words!a} is not a configuration of rails, such as ring-LL-1"
        ) from error


def _all_reduce_plans(nodes: int, local_ranks: int) -> tuple[PhasedSchedule, ...]:
    if local_ranks == 1:
        phases = _exchange(nodes, _INPUT, 0, _OUTPUT)
        # One call along the one rail, which lanes divide.
        whole_call = _rail(_ALL_REDUCE, _INPUT, _OUTPUT)
        return (
            _all_reduce("rail_all_reduce", nodes, 1, 1, 0, whole_call),
            _all_reduce("exchange", nodes, 1, 1, nodes, *phases),
        )
    scatter = _local(_REDUCE_SCATTER, _INPUT, _scratch(0))
    gather = _local(_ALL_GATHER, _scratch(0), _OUTPUT)
    whole = _local(_ALL_REDUCE, _INPUT, _scratch(0), pattern=Pattern.ONE_PHASE)
    own, rail_sum = _scratch(0), _rail(_ALL_REDUCE, _scratch(0), _scratch(0))
    grid = (nodes, local_ranks)
    return (
        _all_reduce("rail_all_reduce", *grid, local_ranks, 1, scatter, rail_sum, gather),
        _all_reduce(
            *("exchange", *grid, local_ranks, nodes + 1),
            *(scatter, *_exchange(nodes, own, 1, own), gather),
        ),
        _all_reduce(
            *("rail_all_reduce_full", *grid, 1, 1), whole, _rail(_ALL_REDUCE, own, _OUTPUT)
        ),
        _all_reduce(
            *("exchange_full", *grid, 1, nodes + 1), whole, *_exchange(nodes, own, 1, _OUTPUT)
        ),
    )


def _all_reduce(
    name: str, nodes: int, local_ranks: int, chunks: int, scratch: int, *phases: CallPhase
) -> PhasedSchedule:
    return _plan(name, _ALL_REDUCE, (nodes, local_ranks), chunks, scratch, *phases)


def _plan(
    name: str,
    collective: Collective,
    grid: tuple[int, int],
    chunks: int,
    scratch: int,
    *phases: CallPhase,
) -> PhasedSchedule:
    nodes, local_ranks = grid
    return PhasedSchedule(name, collective, (local_ranks,) * nodes, chunks, (scratch,), phases)


def _exchange(nodes: int, own: Place, first: int, target: Place) -> tuple[CallPhase, CallPhase]:
    """Return the phases that gather a chunk of all nodes in scratch memory and add them up."""
    gathered = _scratch(first)
    return _rail(_ALL_GATHER, own, gathered), _sum(gathered, target, nodes)


def _all_gather_plans(nodes: int, local_ranks: int) -> tuple[PhasedSchedule, ...]:
    if local_ranks == 1:
        return ()
    phases = (
        _rail(_ALL_GATHER, _INPUT, _scratch(0)),
        _local(_ALL_GATHER, _scratch(0), _OUTPUT, nodes, (1, local_ranks)),
    )
    return (_plan("rails_first", _ALL_GATHER, (nodes, local_ranks), 1, nodes, *phases),)


def _reduce_scatter_plans(nodes: int, local_ranks: int) -> tuple[PhasedSchedule, ...]:
    if local_ranks == 1:
        phases = (_rail(_ALLTOALL, _INPUT, _scratch(0)), _sum(_scratch(0), _OUTPUT, nodes))
        return (_plan("exchange", _REDUCE_SCATTER, (nodes, 1), 1, nodes, *phases),)
    scatter = _local(_REDUCE_SCATTER, _INPUT, _scratch(0), nodes, (local_ranks, 1))
    last = (scatter, _rail(_REDUCE_SCATTER, _scratch(0), _OUTPUT))
    exchange = (
        scatter,
        _rail(_ALLTOALL, _scratch(0), _scratch(nodes)),
        _sum(_scratch(nodes), _OUTPUT, nodes),
    )
    grid = (nodes, local_ranks)
    return (
        _plan("rails_last", _REDUCE_SCATTER, grid, 1, nodes, *last),
        _plan("exchange", _REDUCE_SCATTER, grid, 1, 2 * nodes, *exchange),
    )


def _alltoall_plans(nodes: int, local_ranks: int) -> tuple[PhasedSchedule, ...]:
    if local_ranks == 1:
        return ()
    ranks, strides = nodes * local_ranks, (local_ranks, local_ranks)
    phases = (
        _local(_ALLTOALL, _INPUT, _scratch(0), nodes, strides),
        _rail(_ALLTOALL, _scratch(0), _OUTPUT, local_ranks),
    )
    return (_plan("rails_last", _ALLTOALL, (nodes, local_ranks), 1, ranks, *phases),)


def _scratch(chunk: int) -> Place:
    return Place(Buffer.SCRATCH, chunk)


def _local(
    collective: Collective,
    source: Place,
    target: Place,
    repeats: int = 1,
    strides: tuple[int, int] = (0, 0),
    pattern: Pattern = Pattern.DIRECT,
) -> CallPhase:
    return CallPhase(
        PhaseKind.LOCAL, collective, source, target, 1, repeats, *strides, pattern=pattern
    )


def _rail(collective: Collective, source: Place, target: Place, chunks: int = 1) -> CallPhase:
    return CallPhase(PhaseKind.RAIL, collective, source, target, chunks)


def _sum(source: Place, target: Place, summands: int) -> CallPhase:
    return CallPhase(PhaseKind.SUM, Collective.REDUCE, source, target, repeats=summands)
