"""The `simulated` backend: models of NCCL and of the schedule executor over a topology.

The embedded default where there is no GPU: nothing is measured, everything is computed, and the
figures rank configurations rather than promise microseconds. Noise is optional and seeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

from lookup_tables.table import NcclProtocol
from probes.topology import Topology
from sketches.sketch import Sketch
from synthesizer.algorithm import Algorithm
from synthesizer.simulator import CompiledSchedule, ExecutionModel, compile_schedule
from tuccl import __version__
from tuccl.backends.figures import machine_figures
from tuccl.backends.nccl_choice import shrink, stock_choice
from tuccl.backends.nccl_model import COSTS, builtin_time_us, channel_rate_gb_per_s
from tuccl.backends.noise import noisy_samples
from tuccl.backends.protocol import Measured
from tuccl.errors import MeasurementError
from tuccl.search.config import Config, Task

_EXECUTOR_LAUNCH_US = 2.5
_EXECUTOR_STEP_US = {NcclProtocol.LL: 0.45, NcclProtocol.LL128: 0.60, NcclProtocol.SIMPLE: 1.10}
_CALLS_PER_SAMPLE = 20
_EXECUTOR_SLOTS = 8
"""Slots that a connection's buffer is divided into."""


class SimulatedBackend:
    """Times configurations on a model of one machine."""

    name = "simulated"
    restart_s = 3.0
    """What four processes with NCCL take to start again on one host."""

    def __init__(
        self,
        topology: Topology,
        schedules: Mapping[str, tuple[Algorithm, Sketch]],
        seed: int,
        spread: float,
    ) -> None:
        """A model of one machine.

        Args:
            topology: The machine.
            schedules: By content hash, each with the sketch that it runs on.
            seed: Of the noise.
            spread: Relative standard deviation of a sample; 0 for none.
        """
        self._machine = machine_figures(topology)
        self._seed = seed
        self._spread = spread
        self._compiled: dict[str, CompiledSchedule] = {
            content_hash: compile_schedule(algorithm, sketch)
            for content_hash, (algorithm, sketch) in schedules.items()
        }
        self._time_us = lru_cache(maxsize=None)(self._time_without_noise_us)
        self._simulated_us = lru_cache(maxsize=None)(self._simulate_us)

    @property
    def versions(self) -> str:
        """What produced the figures."""
        return f"tuccl {__version__} simulated, after NCCL 2.28"

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        """Samples of the modelled time; see `Backend.measure`."""
        time_us = self._time_us(task, config)
        subject = f"{task.name}:{config.describe()}"
        samples = noisy_samples(time_us, subject, self._seed, self._spread, first, repeats)
        return Measured(samples, sum(samples) * 1e-6 * _CALLS_PER_SAMPLE)

    def check(self, task: Task, config: Config) -> None:
        """There is no data."""

    def close(self) -> None:
        """Nothing is held."""

    def _time_without_noise_us(self, task: Task, config: Config) -> float:
        if config.is_schedule:
            return self._schedule_us(task, config)
        return self._builtin_us(task, config)

    def _builtin_us(self, task: Task, config: Config) -> float:
        choice = stock_choice(task.operation, task.size_bytes, self._machine)
        algorithm = choice.algorithm if config.is_default else config.builtin
        protocol = choice.protocol if config.is_default else config.nccl_protocol
        # NCCL_NTHREADS does not reach LL128, nor NCCL_BUFFSIZE anything but Simple.
        threads = 0 if protocol is NcclProtocol.LL128 else config.nthreads
        buffer_bytes = config.buffer_bytes if protocol is NcclProtocol.SIMPLE else 0
        choice = shrink(
            task.size_bytes, algorithm, protocol, self._machine, config.nchannels, threads
        )
        return builtin_time_us(task.operation, task.size_bytes, choice, self._machine, buffer_bytes)

    def _schedule_us(self, task: Task, config: Config) -> float:
        compiled = self._compiled.get(config.schedule)
        if compiled is None:
            raise MeasurementError(
                f"schedule {config.schedule} is not among those of this run; "
                "synthesize again or remove its entry"
            )
        # Slots that hold the largest message anyway are all the same: one simulation serves them.
        whole = ceil(compiled.largest_message_bytes(task.size_bytes, config.nchannels))
        slot_bytes = min(config.buffer_bytes // _EXECUTOR_SLOTS, max(whole, 1))
        protocol = config.nccl_protocol
        return self._simulated_us(
            config.schedule,
            task.size_bytes,
            protocol,
            config.nchannels,
            config.nthreads,
            slot_bytes,
        )

    def _simulate_us(
        self,
        schedule: str,
        size_bytes: int,
        protocol: NcclProtocol,
        nchannels: int,
        nthreads: int,
        slot_bytes: int,
    ) -> float:
        model = ExecutionModel(
            launch_us=_EXECUTOR_LAUNCH_US,
            step_overhead_us=_EXECUTOR_STEP_US[protocol],
            threadblock_gb_per_s=channel_rate_gb_per_s(protocol, nthreads),
            wire_efficiency=COSTS[protocol].wire_efficiency,
            slot_bytes=slot_bytes,
            instances=nchannels,
        )
        return self._compiled[schedule].time_us(size_bytes, model)
