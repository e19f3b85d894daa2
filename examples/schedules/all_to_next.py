"""All-to-next: every rank sends its buffer to the next one, across nodes through all NICs at once.

Inside a node that is one copy. The last rank of a node scatters its buffer over the node, each rank
sends its share along its rail, and the first rank of the next node gathers them (MSCCLang section
6.5). Rank 0 receives nothing, the last rank sends nothing.

tuccl verify examples/schedules/all_to_next.py --nodes 4+4 --topology shipped:a100-8gpu-8nic
"""

from lookup_tables.collective import Collective
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Schedule


def schedule(nodes: int, gpus: int) -> Schedule:
    """Copy the input of rank r to the output of rank r + 1."""
    made = Schedule(Collective.CUSTOM, nodes * gpus, chunks=gpus, in_place=False)
    for rank in range(nodes * gpus - 1):
        made.expect(rank + 1, 0, chunk=0, of=[rank], count=gpus)
        last = rank - rank % gpus + gpus - 1
        if rank < last:
            made.chunk(rank, INPUT, 0, gpus).copy(rank + 1, OUTPUT, 0)
            continue
        for index in range(gpus):
            share = made.chunk(last, INPUT, index)
            if index < gpus - 1:
                share = share.copy(last - gpus + 1 + index, SCRATCH)
            if index > 0:
                share = share.copy(last + 1 + index, SCRATCH)
            share.copy(last + 1, OUTPUT, index)
    return made
