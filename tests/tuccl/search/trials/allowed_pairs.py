"""What NCCL allows on machines that people own, by the rules of its source, not by a run.

NCCL 2.28 to 2.31 (`src/graph/tuning.cc`, `src/enqueue.cc`) have the same rules: CollNet needs a
switch that sums, and at most eight GPUs a node; NVLS multicast, and such a switch as well across
nodes, and at most 32 GPUs (NCCL_MAX_NVLS_ARITY) for the halves of all_reduce; its trees several
nodes; PAT one rank a node, until 2.31 (aws-ofi-nccl issue 1394); LL128 no network but one that GPUs
reach through PCIe switches. 2.32 is taken to have the rules of 2.31.
"""

from dataclasses import dataclass

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
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


@dataclass(frozen=True)
class Machine:
    """A communicator on a machine, under releases of NCCL with the same rules."""

    name: str
    releases: str
    shape: Shape
    allowed: str
    of_halves: str = ""
    """What halves of all_reduce have, if that is less."""

    def pairs(self, operation: Collective) -> tuple[Pair, ...]:
        return pairs(
            self.of_halves if operation.divides and self.of_halves else self.allowed, operation
        )


_ALL_RELEASES = "2.28, 2.30, 2.32"
NODE, NODES, RAIL = Shape(8, 1, 8), Shape(16, 2, 8), Shape(2, 2, 1)
DOMAIN, DOMAINS = Shape(72, 1, 72), Shape(144, 2, 72)
MACHINES = (
    Machine("HGX H100", _ALL_RELEASES, NODE, HGX_H100),
    Machine("2 x HGX H100", "2.28, 2.30", NODES, HGX_H100_NODES),
    Machine("2 x HGX H100", "2.32", NODES, f"{HGX_H100_NODES} pat/Simple"),
    Machine("2 x HGX H100, a rail", _ALL_RELEASES, RAIL, f"{_BASIC} {_LL128} pat/Simple"),
    Machine("2 x DGX A100 with SHARP", _ALL_RELEASES, NODES, A100_WITH_SHARP),
    Machine("GB200 NVL72", _ALL_RELEASES, DOMAIN, HGX_H100, f"{_BASIC} {_LL128}"),
    Machine("GB200 NVL72, two trays", _ALL_RELEASES, NODE, HGX_H100),
    Machine("2 x GB200 NVL72", "2.28, 2.30", DOMAINS, HGX_H100_NODES),
)


def pairs(machine: str, operation: Collective) -> tuple[Pair, ...]:
    """The pairs of a machine that an operation has."""
    table = CostTable.parse(" ".join(f"{pair}=1.0" for pair in machine.split()))
    if operation is Collective.ALL_REDUCE:
        return tuple(pair for pair in table.allowed if pair[0] is not NcclAlgorithm.PAT)
    own = _HALVES if operation.divides else (NcclAlgorithm.RING,)
    return tuple(pair for pair in table.allowed if pair[0] in own)


def cost_row(machine: str, operation: Collective) -> list[float]:
    """NCCL's cost table as the plugin gets it: -1 where a pair cannot run."""
    allowed = pairs(machine, operation)
    return [10.0 if (a, p) in allowed else -1.0 for a in NcclAlgorithm for p in NcclProtocol]
