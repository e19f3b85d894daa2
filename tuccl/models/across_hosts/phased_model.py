"""Time of a schedule across hosts: kernels in the node, NCCL's rounds on rails, sums, in slices.

- A kernel in the node costs a launch, and for each of its steps a handover; meanwhile its blocks
  copy what a rank sends, and the links of the node carry it. What the staging memory does not hold
  takes further launches (`tuccl/runtime/executor/patterns.cu`).
- A round on a rail takes what the model of NCCL says of one rank of each node, under the
  configuration that the plan asks for or else under NCCL's own choice. NCCL chooses by the whole
  NIC, and gets what the other rails leave of it.
- A sum costs a launch, and reads its summands and writes their sum at the memory's bandwidth.

Costs of kernels are those of `tuccl.models.executor_model`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclProtocol
from synthesizer.programs.layout import Pattern, PhaseKind
from synthesizer.programs.phases import CallPhase, PhasedSchedule
from tuccl.models.across_hosts.grid_figures import GridFigures
from tuccl.models.across_hosts.phase_pipeline import PhaseTime, pipelined_us
from tuccl.models.executor_model import KernelParameters, kernel_us
from tuccl.models.model_constants import ModelConstants
from tuccl.models.nccl_choice import nccl_choice
from tuccl.models.nccl_model import network_us_of, work_of, work_time_us
from tuccl.search.trials.config import STOCK, Config, ProcessProfile

_STAGED_BYTES = {NcclProtocol.LL: 4 << 20, NcclProtocol.LL128: 18 << 20}
"""Most bytes of all ranks' parts of the staging memory (docs/reference/executor.md)."""


@dataclass(frozen=True, slots=True)
class PhaseParameters:
    """Parameters of a schedule across hosts, which its entry has beside its phases."""

    kernels: KernelParameters
    """Parameters of the kernels inside nodes."""
    slices: int
    """Slices of a call."""
    profile: ProcessProfile = STOCK.profile
    """Process profile under which NCCL runs on rails."""


class PhasedModel:
    """Times schedules across hosts on one machine.

    Rounds are computed once for each configuration and size; nothing here grows with the ranks.
    """

    def __init__(self, grid: GridFigures, constants: ModelConstants) -> None:
        """Model a machine.

        Args:
            grid: Figures of the machine.
            constants: Constants of the model.
        """
        self._grid = grid
        self._constants = constants
        self._rounds = lru_cache(maxsize=None)(self._round)

    def time_us(
        self, phased: PhasedSchedule, size_bytes: int, parameters: PhaseParameters
    ) -> float:
        """Return the time of one call.

        Args:
            phased: The schedule.
            size_bytes: Size as nccl-tests counts it.
            parameters: Parameters of the entry.

        Raises:
            ConfigurationFailedError: The model does not know the algorithm of the rails.
        """
        chunk_bytes = _chunk_bytes(phased, size_bytes) / parameters.slices
        times = [
            self._phase_time(phased, phase, chunk_bytes * phase.chunks, parameters)
            for phase in phased.calls
        ]
        return pipelined_us(phased, times, parameters.slices)

    def _phase_time(
        self,
        phased: PhasedSchedule,
        phase: CallPhase,
        count_bytes: float,
        parameters: PhaseParameters,
    ) -> PhaseTime:
        if phase.kind is PhaseKind.RAIL:
            parts = phase.collective.parts(phased.nodes)
            size_bytes = max(1, round(phase.calls * count_bytes * parts))
            operation = phase.collective
            return self._rounds(operation, size_bytes, phase.rail, parameters.profile)
        if phase.kind is PhaseKind.SUM:
            return PhaseTime(self._sum_us(phase, count_bytes))
        one_us = self._kernel_us(phased, phase, count_bytes, parameters.kernels)
        return PhaseTime(phase.calls * one_us)

    def _kernel_us(
        self,
        phased: PhasedSchedule,
        phase: CallPhase,
        count_bytes: float,
        kernels: KernelParameters,
    ) -> float:
        """Return the time of one call inside a node."""
        ranks = phased.local_ranks
        steps = 2 if phase.pattern is Pattern.TWO_PHASE else 1
        # In two steps a rank sends an n-th of the data to each peer, and then its sum.
        message_bytes = count_bytes / ranks if phase.pattern is Pattern.TWO_PHASE else count_bytes
        staged_bytes = _STAGED_BYTES.get(kernels.protocol, math.inf)
        return kernel_us(
            kernels,
            sent_bytes=steps * (ranks - 1) * message_bytes,
            steps=steps,
            launches=max(1, math.ceil(message_bytes * ranks / staged_bytes)),
            wires_gb_per_s=self._grid.node_gb_per_s,
            launch_us=self._constants.phase_launch_us,
        )

    def _sum_us(self, phase: CallPhase, count_bytes: float) -> float:
        moved_bytes = (phase.repeats + 1) * count_bytes
        gb_per_s = self._grid.memory_gb_per_s * self._constants.memory_efficiency
        return self._constants.phase_launch_us + moved_bytes / (1e3 * gb_per_s)

    def _round(
        self,
        operation: Collective,
        size_bytes: int,
        rail: BuiltinConfig | None,
        profile: ProcessProfile,
    ) -> PhaseTime:
        config = profile.applied_to(STOCK if rail is None else _config(rail))
        choice = nccl_choice(operation, size_bytes, config, self._grid.rail)
        work = work_of(operation, size_bytes, choice, self._grid.shared_rail)
        time_us = work_time_us(work, choice.algorithm, choice.protocol, self._constants)
        network_us = network_us_of(work, choice.protocol, self._constants)
        return PhaseTime(float(time_us), float(network_us))


@dataclass(frozen=True, slots=True)
class WireTimes:
    """Times of a schedule's transfers alone, without any other cost."""

    node_us: float
    """On the links inside nodes."""
    network_us: float

    @property
    def in_turn_us(self) -> float:
        """Time phase after phase."""
        return self.node_us + self.network_us

    @property
    def at_once_us(self) -> float:
        """Time that no slices undercut."""
        return max(self.node_us, self.network_us)


def wire_times(phased: PhasedSchedule, size_bytes: int, grid: GridFigures) -> WireTimes:
    """Return the times of the transfers of a uniform schedule."""
    chunk_bytes = _chunk_bytes(phased, size_bytes)
    node_us = network_us = 0.0
    for phase in phased.calls:
        group = phased.group(phase)
        sent_bytes = phase.calls * phase.chunks * chunk_bytes * (group - 1)
        if phase.collective.passes > 1 and phase.kind is PhaseKind.RAIL:
            sent_bytes *= 2 / group
        if phase.kind is PhaseKind.LOCAL:
            node_us += sent_bytes / (1e3 * grid.node_gb_per_s)
        elif phase.kind is PhaseKind.RAIL:
            share = grid.rail.racks.best(phase.collective)
            gb_per_s = grid.rail_gb_per_s * grid.rail.nics_per_node * share
            network_us += grid.rail.network_latency_us + sent_bytes / (1e3 * gb_per_s)
    return WireTimes(node_us, network_us)


def _chunk_bytes(phased: PhasedSchedule, size_bytes: int) -> float:
    divided = phased.collective.divides
    return size_bytes / (phased.ranks if divided else phased.chunks)


def _config(rail: BuiltinConfig) -> Config:
    return Config(rail.algorithm.value, rail.protocol.value, rail.nchannels)
