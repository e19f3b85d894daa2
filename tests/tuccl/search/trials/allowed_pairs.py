"""What NCCL allows on machines that people own, by the rules of its source, not by a run.

NCCL 2.28 to 2.31 (`src/graph/tuning.cc`) have the same rules: CollNet needs a switch that sums, and
at most eight GPUs a node; NVLS multicast, and such a switch as well across nodes; its trees several
nodes; LL128 no network but one that GPUs reach through PCIe switches.
"""

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.search.trials.cost_table import CostTable, Pair

_BASIC = "tree/LL tree/Simple ring/LL ring/Simple"
_LL128 = "tree/LL128 ring/LL128"
HGX_H100 = f"{_BASIC} {_LL128} nvls/Simple"
"""One node of eight, with multicast."""
HGX_H100_NODES = f"{_BASIC} {_LL128} nvls_tree/Simple"
"""Several of them, whose network does not sum."""
A100_WITH_SHARP = f"{_BASIC} {_LL128} collnet_direct/Simple collnet_chain/Simple"
"""Several nodes whose InfiniBand switches sum."""
PLAIN_TCP = _BASIC
NVLS = NcclAlgorithm.NVLS
_HALVES = (NcclAlgorithm.RING, NVLS, NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.PAT)


def pairs(machine: str, operation: Collective) -> tuple[Pair, ...]:
    """The pairs of a machine that an operation has."""
    table = CostTable.parse(" ".join(f"{pair}=1.0" for pair in machine.split()))
    if operation is Collective.ALL_REDUCE:
        return table.allowed
    own = _HALVES if operation.divides else (NcclAlgorithm.RING,)
    return tuple(pair for pair in table.allowed if pair[0] in own)


def cost_row(machine: str, operation: Collective) -> list[float]:
    """NCCL's cost table as the plugin gets it: -1 where a pair cannot run."""
    allowed = pairs(machine, operation)
    return [10.0 if (a, p) in allowed else -1.0 for a in NcclAlgorithm for p in NcclProtocol]
