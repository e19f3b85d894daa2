"""Time of a schedule in stages and rounds, one after the other, or of several slices in turn.

- A stage costs the launch of a kernel, for each chunk in its longest chain a handover, and what its
  blocks copy and the links carry meanwhile. What the staging memory does not hold takes further
  launches, a slice of each chunk after the next.
- What runs inside nodes beside a round is a kernel of its own. A call in one piece takes the longer
  of both, and as long as a launch for the second stream.
- A round costs what a group of NCCL's sends and receives does: its kernel, a hop over the network,
  a hop's share of proxies and flags for each further message of a rank, and the data on links that
  all messages share fairly.

Of a call in slices the rounds of one run beside the stages of others, and with several lanes beside
further rounds, which share the network. Costs of kernels are those of
`tuccl.models.executor_model`, those of rounds NCCL's own. Nodes are held to end stages and rounds
at the same time. docs/lab/model.md says how far to trust it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from lookup_tables.table import NcclAlgorithm, NcclProtocol
from probes.topology.graph import Topology
from synthesizer.programs.phases import (
    PhasedSchedule,
    Slices,
    chunk_bytes_of,
    has_scratch_for,
    slices_of_call,
)
from tuccl.errors import ConfigurationFailedError
from tuccl.models.across_hosts.gpu_ways import gpu_ways
from tuccl.models.across_hosts.phase_pipeline import PhaseTime, pipelined_us
from tuccl.models.across_hosts.staged_load import RoundLoad, StagedLoad, StageLoad, staged_load
from tuccl.models.executor_model import KernelParameters, stage_us
from tuccl.models.figures import machine_figures
from tuccl.models.model_constants import SHIPPED, ModelConstants
from tuccl.models.nccl_model import network_us_of, send_receive_work, work_time_us

_LINES_BYTES = {NcclProtocol.LL: 8 << 20, NcclProtocol.LL128: 16 << 20}
"""Most bytes of lines in one half of the staging area (`tuccl/runtime/executor/staging_need.cc`).
"""
_DATA_SHARE = {NcclProtocol.LL: 0.5, NcclProtocol.LL128: 0.9375}
_LL_UP_TO_BYTES = 16 << 10
"""Largest message that NCCL sends with LL (NCCL_P2P_LL_THRESHOLD)."""


class StagedModel:
    """Times one schedule in stages and rounds on one machine."""

    def __init__(
        self, phased: PhasedSchedule, topology: Topology, constants: ModelConstants = SHIPPED
    ) -> None:
        """Model a schedule.

        Args:
            phased: The schedule.
            topology: The machine, whose nodes have the schedule's sizes.
            constants: Constants of the model.
        """
        self._phased = phased
        self._machine = machine_figures(topology)
        self._constants = constants
        self._load = staged_load(phased, gpu_ways(topology))

    def time_us(
        self,
        size_bytes: int,
        kernels: KernelParameters,
        slice_bytes: int | None = None,
        lanes: int | None = None,
    ) -> float:
        """Return the time of one call.

        Args:
            size_bytes: Size as nccl-tests counts it.
            kernels: Parameters of the kernels inside nodes.
            slice_bytes: Size of the slices into which the call is divided; None if it is not.
            lanes: Lanes of the rounds; None for the schedule's.

        Raises:
            ConfigurationFailedError: The executor leaves such a call to NCCL.
        """
        if not has_scratch_for(self._phased, size_bytes):
            raise ConfigurationFailedError("the executor has not the scratch memory that it needs")
        if kernels.protocol not in _DATA_SHARE:
            raise ConfigurationFailedError(f"stages do not run with {kernels.protocol.value}")
        slices = slices_of_call(self._phased, size_bytes, slice_bytes or max(1, size_bytes))
        times = [PhaseTime(self._stage_us(self._load.stages[0], slices, kernels))]
        for sent, stage in zip(self._load.rounds, self._load.stages[1:], strict=True):
            beside_us = self._stage_us(sent.beside, slices, kernels)
            times += [
                replace(self._round(sent, slices), beside_us=beside_us),
                PhaseTime(self._stage_us(stage, slices, kernels)),
            ]
        laned = self._phased if lanes is None else replace(self._phased, lanes=lanes)
        fork_us = 0.0
        if slices.count == 1 and any(sent.beside is not None for sent in self._load.rounds):
            # The round's stream starts behind the kernels', and these wait for it.
            fork_us = self._constants.phase_launch_us
        return fork_us + pipelined_us(laned, times, slices.count)

    def wires_us(self, size_bytes: int) -> float:
        """Return the time of the transfers alone, one stage or round after the other."""
        chunk_bytes = chunk_bytes_of(self._phased, size_bytes)
        inside_us = sum(stage.wire_us_per_byte for stage in self._load.stages if stage is not None)
        across_us = sum(
            max(sent.network_us_per_byte, sent.beside.wire_us_per_byte if sent.beside else 0.0)
            for sent in self._load.rounds
        )
        waits_us = len(self._load.rounds) * self._machine.network_latency_us
        return (inside_us + across_us) * chunk_bytes + waits_us

    def _stage_us(
        self, stage: StageLoad | None, slices: Slices, kernels: KernelParameters
    ) -> float:
        if stage is None:
            return 0.0
        return stage_us(
            kernels,
            handovers=stage.handovers,
            chunk_bytes=slices.chunk_bytes,
            wire_us=stage.wire_us_per_byte * slices.chunk_bytes,
            launches=_launches(self._load, slices.chunk_bytes, kernels.protocol),
            launch_us=self._constants.phase_launch_us,
        )

    def _round(self, sent: RoundLoad, slices: Slices) -> PhaseTime:
        # Parts of adjacent chunks are not adjacent, so each is a message of its own.
        in_one = slices.count == 1
        messages = sent.messages if in_one else sent.rank_chunks
        message_bytes = slices.chunk_bytes * (sent.message_chunks if in_one else 1)
        protocol = NcclProtocol.LL if message_bytes <= _LL_UP_TO_BYTES else NcclProtocol.SIMPLE
        work = send_receive_work(
            messages,
            message_bytes,
            sent.network_us_per_byte * slices.chunk_bytes,
            sent.rank_chunks * slices.chunk_bytes,
            sent.peer_chunks * slices.chunk_bytes,
            self._machine,
        )
        time_us = work_time_us(work, NcclAlgorithm.RING, protocol, self._constants)
        return PhaseTime(float(time_us), float(network_us_of(work, protocol, self._constants)))


def _launches(load: StagedLoad, chunk_bytes: int, protocol: NcclProtocol) -> int:
    """Return the launches of a stage."""
    if not load.arrivals:
        return 1
    slice_bytes = _LINES_BYTES[protocol] * _DATA_SHARE[protocol] / load.arrivals
    return max(1, math.ceil(chunk_bytes / slice_bytes))
