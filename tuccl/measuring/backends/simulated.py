"""The `simulated` backend: models of NCCL and of the schedule executor over a topology.

On several nodes schedules are plans of phases, or stages and rounds, which an executor runs there;
a schedule with steps for all ranks, which none runs across hosts, is timed where the user brings
one. A communicator that is no more than a part of the machine has the links that its siblings leave
it (`tuccl.models.siblings`); the slowest sibling counts.

Where the timing names computation beside calls, they share multiprocessors with it
(`tuccl.models.figures`).

The default where there is no GPU: nothing is measured, everything is computed. The
constants of NCCL's model were fitted to measurements, by this project or by `tuccl calibrate` on
the machine itself; docs/lab/model.md has the errors. Noise is optional and seeded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from types import MappingProxyType

import numpy as np

from lookup_tables.provenance import SIMULATED, Provenance
from lookup_tables.table import NcclProtocol, Shape
from probes.topology.graph import Topology
from sketches.candidates import whole_machine
from synthesizer.programs.phases import PhasedSchedule
from synthesizer.simulate.simulator import CompiledSchedule, compile_schedule
from tuccl import __version__
from tuccl.errors import ConfigurationFailedError, InfeasibleError, MachineError, MeasurementError
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.across_hosts.phased_model import PhasedModel, PhaseParameters
from tuccl.models.across_hosts.staged_model import StagedModel
from tuccl.models.executor_model import (
    SLOTS,
    KernelParameters,
    execution_model,
    with_network_hops,
)
from tuccl.models.figures import (
    MULTIPROCESSORS,
    Fabric,
    MachineFigures,
    machine_figures,
    time_beside_us,
)
from tuccl.models.model_constants import MOST_CHANNELS, SHIPPED, ModelConstants
from tuccl.models.nccl_choice import (
    MODELLED_SETTINGS,
    allowed_pairs,
    nccl_choice,
    nccl_estimate_us,
    under,
)
from tuccl.models.nccl_model import builtin_time_us
from tuccl.models.placements import PlacementClass, placements
from tuccl.models.siblings import SiblingMachines
from tuccl.schedules.call_slices import slices_of_call
from tuccl.schedules.candidates import Candidate
from tuccl.search.trials.backend import Measured, RunningProfiles
from tuccl.search.trials.config import PHASES_PREFIX, Config, ProcessProfile, Settings, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.placement import ANYWHERE, Placement
from tuccl.search.trials.timing import Timing

_DISTURBED_SHARE = 0.02
_DISTURBED_SCALE = 0.10

_Schedule = tuple[Shape, str]
"""A schedule: the shape of its communicator, and its content hash."""
_SET_UP_S = 0.002
"""Seconds to instruct the workers and to launch once for warming up."""


class SimulatedBackend:
    """Times configurations on a model of one machine."""

    name = SIMULATED
    restart_s = 3.0
    """Seconds for four processes with NCCL to start again on one host."""

    def __init__(
        self,
        topology: Topology,
        schedules: Mapping[str, Candidate],
        seed: int,
        spread: float,
        constants: ModelConstants = SHIPPED,
        of_shapes: Mapping[Shape, Mapping[str, Candidate]] = MappingProxyType({}),
        timing: Timing = Timing(),  # noqa: B008 - frozen
        base: Settings = (),
    ) -> None:
        """Model one machine.

        Args:
            topology: The machine.
            schedules: Schedules by content hash.
            seed: Seed of the noise.
            spread: Relative standard deviation of a sample; 0 for none.
            constants: Constants of the model of NCCL.
            of_shapes: Schedules of further communicator shapes.
            timing: What calls are timed beside, and how many a sample has.
            base: Variables that NCCL has under every profile, of those that the model knows.
        """
        self._base = base
        self._topology = topology
        self._machine = machine_figures(topology)
        self._siblings = SiblingMachines(topology)
        self._constants = constants
        self.timing = timing
        self._running = RunningProfiles()
        self._seed = seed
        self._spread = spread
        self._schedules: dict[_Schedule, Candidate] = {
            (shape, content_hash): schedule
            for shape, own in {self._machine.shape: schedules, **of_shapes}.items()
            for content_hash, schedule in own.items()
        }
        self._classes = lru_cache(maxsize=None)(self._classes_of)
        self._phased_model = lru_cache(maxsize=None)(self._model_of_shape)
        self._staged_model = lru_cache(maxsize=None)(self._model_of_staged)
        self._time_us = lru_cache(maxsize=None)(self._time_without_noise_us)
        self._compiled_at = lru_cache(maxsize=None)(self._compile_at)
        self._simulated_us = lru_cache(maxsize=None)(self._simulate_us)

    @property
    def provenance(self) -> Provenance:
        """See `Backend`."""
        constants = "" if self._constants == SHIPPED else ", calibrated"
        details = f"after NCCL 2.28{constants}"
        return Provenance(self.name, tuccl_version=__version__, details=details)

    def resume(self, running: ProcessProfile) -> None:
        """Continue a search that was stopped with its workers under this profile."""
        self._running.use(running)

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        """Return samples of the modelled time; see `Backend.measure`."""
        time_us = self._time_us(task, config)
        name = task.name if task.shape == self._machine.shape else task.full_name
        subject = f"{name}:{config.describe()}"
        samples = noisy_samples(time_us, subject, self._seed, self._spread, first, repeats)
        calls = self.timing.calls(task.size_bytes)
        restart_s = self.restart_s if self._running.run(config) else 0.0
        return Measured(samples, restart_s + _SET_UP_S + sum(samples) * 1e-6 * calls)

    def restart(self) -> None:
        """See `Backend`."""
        self._running.end()

    def check(self, task: Task, config: Config) -> None:
        """Do nothing: a model has no data."""

    def cost_table(self, task: Task) -> CostTable | None:
        """See `Estimating`: what the model knows; NCCL does not know of siblings."""
        if task.placement == ANYWHERE:
            alone = [found.alone for found in self._classes(task.shape)]
        else:
            alone = [self._class_at(task.shape, task.placement).alone]
        ll128 = self._machine.fabric is Fabric.NVLINK
        operation, size_bytes = task.operation, task.size_bytes
        tables = [
            CostTable(
                tuple(
                    (*pair, nccl_estimate_us(operation, size_bytes, pair, machine))
                    for pair in allowed_pairs(operation, machine, ll128=ll128)
                )
            )
            for machine in (under(self._base, each) for each in alone)
        ]
        return CostTable.common(tables) if tables else None

    def _time_without_noise_us(self, task: Task, config: Config) -> float:
        alone_us = self._alone_us(task, config)
        computation_us = self.timing.computation_us(task)
        if computation_us == 0.0:
            return alone_us
        multiprocessors = MULTIPROCESSORS[self._machine.generation]
        blocks = self._blocks(task, config)
        return time_beside_us(alone_us, blocks, computation_us, multiprocessors)

    def _blocks(self, task: Task, config: Config) -> int:
        """Return the thread blocks of a call's kernel on the rank that has most."""
        if not config.is_schedule:
            choices = (
                nccl_choice(task.operation, task.size_bytes, config, machine)
                for machine in self._figures_at(task)
            )
            return max(choice.nchannels for choice in choices)
        schedule = self._schedules.get((task.shape, config.schedule))
        if schedule is None or schedule.is_across_hosts:
            return config.nchannels
        return config.nchannels * max(len(gpu.threadblocks) for gpu in schedule.steps.programs)

    def _alone_us(self, task: Task, config: Config) -> float:
        if config.algorithm.startswith(PHASES_PREFIX):
            return self._phased_us(task, config)
        if config.is_schedule:
            return self._schedule_us(task, config)
        return self._builtin_us(task, config)

    def _builtin_us(self, task: Task, config: Config) -> float:
        _require_known(config.nchannels, config.profile)
        return max(
            builtin_time_us(
                task.operation,
                task.size_bytes,
                nccl_choice(task.operation, task.size_bytes, config, machine),
                machine,
                self._constants,
            )
            for machine in self._figures_at(task)
        )

    def _figures_at(self, task: Task) -> tuple[MachineFigures, ...]:
        """Return the figures of the communicators whose times count."""
        if task.placement == ANYWHERE:
            found = self._siblings.figures(task.shape)
        else:
            found = (self._class_at(task.shape, task.placement).figures,)
        return tuple(under(self._base, each) for each in found)

    def _class_at(self, shape: Shape, placement: Placement) -> PlacementClass:
        """Return the class of communicators at a placement.

        Raises:
            ConfigurationFailedError: The machine has none.
        """
        for found in self._classes(shape):
            if found.placement == placement:
                return found
        raise ConfigurationFailedError(f"no communicators of {shape.ranks} ranks are placed so")

    def _classes_of(self, shape: Shape) -> tuple[PlacementClass, ...]:
        return placements(self._topology, shape)

    def _phased_us(self, task: Task, config: Config) -> float:
        phased = self._phases(task.shape, config.schedule)
        _require_known(0, config.profile)
        kernels = KernelParameters(config.nccl_protocol, config.nchannels, config.nthreads)
        if not phased.is_uniform:
            staged = self._staged_model(task.shape, task.placement, config.schedule)
            return staged.time_us(task.size_bytes, kernels, config.buffer_bytes)
        slices = slices_of_call(phased, task.size_bytes, config.buffer_bytes)
        parameters = PhaseParameters(kernels, slices, config.profile)
        model = self._phased_model(task.shape, task.placement)
        return model.time_us(phased, task.size_bytes, parameters)

    def _phases(self, shape: Shape, content_hash: str) -> PhasedSchedule:
        schedule = self._schedules.get((shape, content_hash))
        phased = None if schedule is None else schedule.phased
        if phased is None:
            raise _unknown(content_hash)
        return phased

    def _model_of_staged(
        self, shape: Shape, placement: Placement, content_hash: str
    ) -> StagedModel:
        phased = self._phases(shape, content_hash)
        return StagedModel(phased, self._machine_at(shape, placement), self._constants)

    def _model_of_shape(self, shape: Shape, placement: Placement) -> PhasedModel:
        return PhasedModel(grid_figures(self._machine_at(shape, placement)), self._constants)

    def _machine_at(self, shape: Shape, placement: Placement) -> Topology:
        """Return the part of the machine that communicators at a placement have."""
        if placement == ANYWHERE:
            return self._siblings.slowest(shape)
        return self._class_at(shape, placement).machine

    def _schedule_us(self, task: Task, config: Config) -> float:
        schedule = self._schedules.get((task.shape, config.schedule))
        if schedule is None or schedule.is_across_hosts:
            raise _unknown(config.schedule)
        placement = task.placement
        if placement != ANYWHERE:
            own = self._class_at(task.shape, placement).figures
            if own == self._siblings.slowest_figures(task.shape):
                placement = ANYWHERE  # The links that the schedule was made for.
        compiled = self._compiled_at(task.shape, placement, config.schedule)
        # All slots that hold the largest message give the same time: one simulation serves them.
        whole = ceil(compiled.largest_message_bytes(task.size_bytes, config.nchannels))
        slot_bytes = min(config.buffer_bytes // SLOTS, max(whole, 1))
        protocol = config.nccl_protocol
        return self._simulated_us(
            (task.shape, config.schedule),
            placement,
            task.size_bytes,
            protocol,
            config.nchannels,
            config.nthreads,
            slot_bytes,
        )

    def _simulate_us(
        self,
        schedule: _Schedule,
        placement: Placement,
        size_bytes: int,
        protocol: NcclProtocol,
        nchannels: int,
        nthreads: int,
        slot_bytes: int,
    ) -> float:
        model = execution_model(protocol, nthreads, nchannels, slot_bytes)
        shape, content_hash = schedule
        return self._compiled_at(shape, placement, content_hash).time_us(size_bytes, model)

    def _compile_at(
        self, shape: Shape, placement: Placement, content_hash: str
    ) -> CompiledSchedule:
        """Prepare a schedule on the links that communicators at a placement have.

        Raises:
            ConfigurationFailedError: They do not connect the ranks of a message.
        """
        schedule = self._schedules[shape, content_hash]
        if placement == ANYWHERE:
            sketch = with_network_hops(schedule.sketch, self._machine, self._constants)
            return compile_schedule(schedule.steps, sketch)
        machine = self._class_at(shape, placement).machine
        try:
            sketch = with_network_hops(whole_machine(machine), self._machine, self._constants)
            return compile_schedule(schedule.steps, sketch)
        except (MachineError, InfeasibleError) as error:
            raise ConfigurationFailedError(f"not on these links: {error}") from error


def _require_known(nchannels: int, profile: ProcessProfile) -> None:
    """Require channels and variables that the model of NCCL knows."""
    if max(nchannels, profile.min_nchannels) > MOST_CHANNELS:
        raise ConfigurationFailedError(f"the model knows no more than {MOST_CHANNELS} channels")
    unknown = set(profile.settings) - MODELLED_SETTINGS
    if unknown:
        raise ConfigurationFailedError(f"the model does not know {min(unknown)[0]}")


def _unknown(content_hash: str) -> MeasurementError:
    return MeasurementError(
        f"schedule {content_hash} is not among those of this run; "
        "synthesize again or remove its entry"
    )


def noisy_samples(
    time_us: float, subject: str, seed: int, spread: float, first: int, repeats: int
) -> tuple[float, ...]:
    """Return samples `first` to `first + repeats - 1` around `time_us`.

    The noise is seeded by what is measured, not by the order. It is multiplicative and skewed: most
    samples lie within the spread, one in fifty is disturbed. The spread of repeated launches is 0.2
    to 0.6 % on NVLink machines, several per cent over TCP.

    Args:
        time_us: The time without noise.
        subject: Names what is measured; equal subjects give equal noise.
        seed: Seed of the run.
        spread: Relative standard deviation of an undisturbed sample; 0 for no noise.
        first: Number of the first sample.
        repeats: Number of samples.
    """
    if spread == 0.0:
        return (time_us,) * repeats
    samples = []
    for number in range(first, first + repeats):
        digest = hashlib.blake2b(f"{seed}:{number}:{subject}".encode(), digest_size=16).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        factor = np.exp(spread * rng.standard_normal())
        if rng.random() < _DISTURBED_SHARE:
            factor *= 1.0 + _DISTURBED_SCALE * rng.random()
        samples.append(float(time_us * factor))
    return tuple(samples)
