"""The verdict of `tuccl verify` on a schedule.

The schedule is proved or has a defect, and it can be cut into rounds across hosts or not. On a
machine it is also simulated, by its links alone, in slots of NCCL's Simple protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.collective import Collective
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.ir.algorithm import Algorithm
from synthesizer.prove.defects import Defect
from synthesizer.simulate.simulator import compile_schedule
from tuccl.quantities import format_size
from tuccl.schedules.across_hosts import AcrossHosts
from tuccl.schedules.candidates import WIRES_IN_SLOTS
from tuccl.schedules.own_schedules import connecting_sketch


@dataclass(frozen=True, slots=True)
class Simulated:
    """A schedule's modelled time for one size."""

    machine: str
    size_bytes: int
    time_us: float
    """The worse of the next two."""
    in_turn_us: float
    fair_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float | None
    """None for a custom operation, which has no bus factor."""
    bound_us: float | None
    """Time that no schedule of the operation undercuts; None for a custom one."""

    def as_text(self) -> str:
        """Return one line."""
        found = f"{format_size(self.size_bytes)} on {self.machine}: simulated {self.time_us:.2f} us"
        found += f", algbw {self.algbw_gb_per_s:.2f} GB/s"
        if self.busbw_gb_per_s is not None and self.bound_us is not None:
            share = self.bound_us / self.time_us
            found += f", busbw {self.busbw_gb_per_s:.2f} GB/s, {share:.1%} of the bound"
        return found


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a schedule is right, and what is known of how it would run."""

    file: Path
    algorithm: str
    proved: bool
    defects: tuple[Defect, ...]
    beyond_msccl_limits: tuple[str, ...]
    """Limits of MSCCL runtimes that the schedule exceeds, which does not make it wrong."""
    across_hosts: AcrossHosts | None
    """For the nodes of `--nodes`, or of the machine."""
    simulated: tuple[Simulated, ...]
    """On the machine of `--topology`, by size."""


def simulated_on(
    topology: Topology, algorithm: Algorithm, sizes_bytes: Sequence[int]
) -> tuple[Simulated, ...]:
    """Simulate a schedule on a machine of as many GPUs.

    Raises:
        InfeasibleError: The machine does not connect the ranks of a message.
    """
    machine, collective = whole_machine(topology), algorithm.collective
    sketch = connecting_sketch(algorithm, sketch_candidates(topology), machine)
    compiled = compile_schedule(algorithm, sketch)
    is_known = collective is not Collective.CUSTOM
    bound = time_bound(collective, machine, algorithm.root) if is_known else None
    found = []
    for size_bytes in sizes_bytes:
        times = compiled.times(size_bytes, WIRES_IN_SLOTS)
        algbw = size_bytes * 1e-3 / times.worse_us
        found.append(
            Simulated(
                machine=topology.name,
                size_bytes=size_bytes,
                time_us=times.worse_us,
                in_turn_us=times.in_turn_us,
                fair_us=times.fair_us,
                algbw_gb_per_s=algbw,
                busbw_gb_per_s=algbw * collective.bus_factor(machine.ranks) if is_known else None,
                bound_us=None if bound is None else bound.time_us(size_bytes),
            )
        )
    return tuple(found)
